"""Turns a function's signature into a JSON schema and a binder for arguments, at registration.

Owns which parameters a function may have. It must not know tools, prompts or the wire.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Union, get_args, get_origin

import pydantic
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaValidator, core_schema

from antiphon.errors import DefinitionError
from antiphon.runtime.authoring import docstring
from antiphon.runtime.authoring.depends import Marker, marked_function, resolve_alias
from antiphon.runtime.authoring.typed_dicts import adapt_typed_dicts

__all__ = [
    "Parameters",
    "Signature",
    "explain",
    "first_sentence",
    "name_of",
    "schema_of",
    "split_parameters",
    "underlying_function",
]

_MAX_PROBLEMS = 100
"""How many problems of a call's arguments are described."""
_BOUND = ("self", "cls")
"""The names of a first parameter that Python passes, and no caller."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function, by who passes them."""

    passed: list[inspect.Parameter]
    """Those that callers pass."""
    context: str | None
    """The name of the one that gets the `Context`, or `None`."""
    dependencies: Mapping[str, Callable[..., Any]]
    """The functions whose values the others get, by the names of these parameters."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters and the return type of a function."""

    description: str | None
    schema: dict[str, Any]
    model: type[pydantic.BaseModel]
    returns: Any
    context: str | None
    """The name of the parameter that gets the `Context`, or `None`."""
    parameters: Mapping[str, Any]
    """The types of the parameters that callers pass, by name."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The parameter names of model fields that are named differently, by field."""
    open: bool = False
    """Whether the function takes `**kwargs`."""
    dependencies: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """The functions whose values parameters get, by parameter."""

    @classmethod
    def of(cls, function: Callable[..., Any], context: type) -> Signature:
        """Read a function's signature; raises `DefinitionError` for a parameter that callers cannot pass."""
        label = name_of(function)
        hints = _hints(function, label)
        description, meanings = docstring.read(underlying_function(function, unwrap=True))
        fields: dict[str, Any] = {}
        names: dict[str, str] = {}
        parameters: dict[str, Any] = {}
        takes_more = False
        split = split_parameters(function, context, hints)
        for parameter in split.passed:
            if parameter.kind is parameter.VAR_KEYWORD:
                takes_more = True
                continue
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise DefinitionError(
                    f"{label}: the parameter {parameter.name!r} cannot be given by name. "
                    "Callers pass all arguments by name: remove the '/' or the '*args'."
                )
            hint = hints.get(parameter.name, Any)
            parameters[parameter.name] = hint
            key = _field_name(parameter.name)
            while key in fields:
                key += "_"
            if key != parameter.name:
                names[key] = parameter.name
            fields[key] = _field(parameter, hint, meanings.get(parameter.name), renamed=key in names)
        model = _model(label, fields, takes_more)
        return cls(
            description=description,
            schema=_input_schema(label, model),
            model=model,
            returns=hints.get("return", inspect.Parameter.empty),
            context=split.context,
            parameters=parameters,
            names=names,
            open=takes_more,
            dependencies=split.dependencies,
        )

    def binder(self) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Return a function that turns a call's arguments into keyword arguments.

        The returned function raises `pydantic.ValidationError`.
        """
        validate = self.model.__pydantic_validator__.validate_python
        if not self.names and not self.open:
            straight = _dictionary_validator(self.model) or (lambda arguments: validate(arguments).__dict__)
            return _unless_exact(_exact_types(self.parameters, self.model), straight)
        names = self.names

        def bind(arguments: Mapping[str, Any]) -> dict[str, Any]:
            value = validate(arguments)
            bound = {names.get(key, key): item for key, item in value.__dict__.items()}
            return bound | (value.__pydantic_extra__ or {})

        return bind


class _PlainSchema(GenerateJsonSchema):
    """Omits the titles that pydantic derives from names: they cost tokens and add no information."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> Any:
        for default in (schema.get("default"), schema.get("default_factory")):
            if isinstance(default, Marker):  # of a field: the default of a parameter is read before
                raise default.refusal()
        return super().default_schema(schema)

    def _update_class_schema(self, json_schema: Any, cls: Any, config: Any) -> None:
        super()._update_class_schema(json_schema, cls, config)
        if json_schema.get("title") == getattr(cls, "__name__", None):
            json_schema.pop("title", None)


def _exact_types(parameters: Mapping[str, Any], model: type[pydantic.BaseModel]) -> Mapping[str, type] | None:
    """Return the types of the parameters if all are plain strings, numbers or booleans, else `None`."""
    plain = all(
        hint in (str, int, float, bool)
        and not model.model_fields[name].metadata
        and model.model_fields[name].alias is None
        for name, hint in parameters.items()
    )
    return dict(parameters) if plain and parameters else None


def _unless_exact(
    exact: Mapping[str, type] | None, validate: Callable[[Any], dict[str, Any]]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a binder that skips validation for arguments that have exactly the expected types."""
    if exact is None:
        return validate
    names = exact.keys()
    in_order, types_in_order = [*exact], [*exact.values()]

    def bind(arguments: Mapping[str, Any]) -> dict[str, Any]:
        if [*arguments] == in_order:
            if [*map(type, arguments.values())] == types_in_order:
                return dict(arguments)
        elif arguments.keys() == names and all(type(arguments[name]) is exact[name] for name in names):
            return dict(arguments)
        return validate(arguments)

    return bind


def _dictionary_validator(model: type[pydantic.BaseModel]) -> Callable[[Any], dict[str, Any]] | None:
    """Return a validator that returns a dictionary, which is twice as fast as building a model.

    Returns `None` if the model's schema does not allow this.
    """
    whole: Any = model.__pydantic_core_schema__
    inner = whole["schema"] if whole["type"] == "definitions" else whole
    if inner["type"] != "model" or inner["schema"]["type"] != "model-fields":
        return None
    fields = {
        name: core_schema.typed_dict_field(
            field["schema"],
            required=field["schema"]["type"] != "default",
            validation_alias=field.get("validation_alias"),
        )
        for name, field in inner["schema"]["fields"].items()
    }
    schema: Any = core_schema.typed_dict_schema(fields, extra_behavior="forbid")
    if whole["type"] == "definitions":
        schema = core_schema.definitions_schema(schema, whole["definitions"])
    return SchemaValidator(schema).validate_python


def schema_of(
    adapter: pydantic.TypeAdapter[Any], *, mode: typing.Literal["validation", "serialization"]
) -> Any:
    """Return the JSON schema of a type, without generated titles."""
    return adapter.json_schema(mode=mode, by_alias=True, schema_generator=_PlainSchema)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, for messages and as the default name of a tool."""
    target = function.func if isinstance(function, functools.partial) else function
    return getattr(target, "__name__", None) or type(target).__name__


def split_parameters(
    function: Callable[..., Any], context: type, hints: Mapping[str, Any] | None = None
) -> Parameters:
    """Return the parameters of a function, by who passes them.

    Raises `DefinitionError` for `self`, for a `ctx` without an annotation, for a second `Context`, and for a
    dependency that cannot be passed by name.
    """
    label = name_of(function)
    if hints is None:
        hints = _hints(function, label)
    passed: list[inspect.Parameter] = []
    dependencies: dict[str, Callable[..., Any]] = {}
    found: str | None = None
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        name = parameter.name
        if _is_context(hints.get(name, Any), context):
            if found is not None:
                raise DefinitionError(
                    f"{label}: {found!r} and {name!r} are both a Context. "
                    "A call has one Context: remove one of the two parameters."
                )
            found = name
            continue
        if (needed := marked_function(label, name, hints.get(name), parameter.default)) is not None:
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise DefinitionError(
                    f"{label}: the dependency {name!r} cannot be passed by name. Remove the '/' or the '*'."
                )
            dependencies[name] = needed
            continue
        if name not in hints:
            if position == 0 and name in _BOUND:
                raise DefinitionError(
                    f"{label}: this is a method without its object, so callers would have to pass {name!r}. "
                    f"Register the method of an object, such as thing.{label}, once the object exists."
                )
            if name == "ctx":
                raise DefinitionError(
                    f"{label}: the parameter 'ctx' has no annotation, so callers would have to pass it. "
                    "Write ctx: Context."
                )
        passed.append(parameter)
    return Parameters(passed, found, dependencies)


def explain(error: pydantic.ValidationError, names: Mapping[str, str] | None = None) -> str:
    """Describe the problems of a call's arguments, one per line, so that a model can correct them.

    More than `_MAX_PROBLEMS` are counted and not described: to make their list takes as long as a caller
    likes, and nobody reads it.
    """
    if (count := error.error_count()) > _MAX_PROBLEMS:
        return f"- arguments: {count} problems, too many to list: see the schema of the arguments"
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        path = [str((names or {}).get(str(part), part)) for part in problem["loc"]]
        message = problem["msg"]
        if problem["type"] == "extra_forbidden":
            message = "There is no such argument"
        elif problem["type"] == "missing":
            message = "This argument is required"
        given = (
            ""
            if problem["type"] in ("missing", "extra_forbidden")
            else f" (given: {_short(problem['input'])})"
        )
        lines.append(f"- {'.'.join(path) or 'arguments'}: {message}{given}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def underlying_function(function: Callable[..., Any], *, unwrap: bool = False) -> Callable[..., Any]:
    """Return the function behind a partial or a callable object, and with `unwrap` behind decorators."""
    while isinstance(function, functools.partial):
        function = function.func
    if unwrap:
        function = inspect.unwrap(function)
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    return function


def _hints(function: Callable[..., Any], label: str) -> dict[str, Any]:
    target = underlying_function(function, unwrap=True)
    if inspect.isclass(target):
        target = target.__init__
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{label}: the annotation {error.name!r} cannot be found. "
            "Define or import it at the top of the function's module."
        ) from None
    except (SyntaxError, TypeError) as error:
        raise DefinitionError(f"{label}: an annotation is not a type: {first_sentence(error)}.") from None
    return {name: adapt_typed_dicts(hint) for name, hint in hints.items()}


def _is_context(hint: Any, context: type) -> bool:
    hint = resolve_alias(hint)
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_context(get_args(hint)[0], context)
    if origin in (Union, types.UnionType):
        return any(_is_context(member, context) for member in get_args(hint))
    kind = hint if origin is None else origin  # Context[State]
    return inspect.isclass(kind) and issubclass(kind, context)


def _field_name(name: str) -> str:
    """Return a name that a pydantic model accepts for a field."""
    if name.startswith(("_", "model_")) or hasattr(pydantic.BaseModel, name):
        return f"argument_{name.strip('_')}_"
    return name


def _field(parameter: inspect.Parameter, hint: Any, meaning: str | None, *, renamed: bool) -> Any:
    default = parameter.default
    if isinstance(default, FieldInfo):
        info = FieldInfo.from_annotated_attribute(hint, default)
    elif default is parameter.empty:
        info = FieldInfo.from_annotation(hint)
    else:
        info = FieldInfo.from_annotated_attribute(hint, default)
    if info.description is None and meaning:
        info.description = meaning
    if renamed:
        info.alias = info.validation_alias = parameter.name
    return (hint, info)


def _model(label: str, fields: dict[str, Any], takes_more: bool) -> type[pydantic.BaseModel]:
    config = pydantic.ConfigDict(extra="allow" if takes_more else "forbid", arbitrary_types_allowed=False)
    try:
        return pydantic.create_model(f"{label}Arguments", __config__=config, **fields)
    except (pydantic.errors.PydanticUserError, TypeError) as error:
        culprits = [name for name, (hint, _) in fields.items() if not _is_readable(hint)]
        which = f"the type of the parameter {culprits[0]!r}" if culprits else "a parameter's type"
        raise DefinitionError(
            f"{label}: {which} cannot be read from JSON: {first_sentence(error)}. "
            "Use plain data, a dataclass, a TypedDict or a pydantic model."
        ) from None


def _is_readable(hint: Any) -> bool:
    try:
        pydantic.TypeAdapter(hint)
    except (pydantic.errors.PydanticUserError, TypeError):
        return False
    return True


def first_sentence(error: Exception) -> str:
    """Return the first sentence of a pydantic error; the rest is not about the author's code."""
    return str(error).partition("\n")[0].partition(". Set `arbitrary_types_allowed")[0].removesuffix(".")


def _input_schema(label: str, model: type[pydantic.BaseModel]) -> dict[str, Any]:
    try:
        schema = model.model_json_schema(by_alias=True, schema_generator=_PlainSchema)
    except pydantic.errors.PydanticInvalidForJsonSchema as error:
        raise DefinitionError(
            f"{label}: a parameter's type has no JSON schema: {first_sentence(error)}. "
            "Use plain data, a dataclass, a TypedDict or a pydantic model."
        ) from None
    except DefinitionError as error:
        raise DefinitionError(f"{label}: {error}") from None
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema
