// Forms for the schemas of elicitations and of tools. What has no field of its own is a field for JSON.

import { h, replace } from "./dom.js";

let count = 0;

/**
 * Returns a form for a schema of an object. `values()` returns `null` after showing what cannot be read.
 * @param {any} schema
 * @param {{values?: Record<string, any>, submitLabel?: string, onsubmit?: (values: Record<string, any>) => void, actions?: import("./dom.js").Child}} [options]
 */
export function form(schema, { values = {}, submitLabel = "Send", onsubmit, actions } = {}) {
  const required = new Set(schema.required ?? []);
  const given = new Map(Object.entries(values));
  const fields = Object.entries(schema.properties ?? {}).map(([name, property]) =>
    fieldOf(name, property, given.get(name) ?? property.default, required.has(name)),
  );
  const general = h("p.error", { role: "alert", hidden: true });

  /** Shows a message at each field, and those of other names above the buttons. */
  function showErrors(problems = {}, message = "") {
    let first = /** @type {any} */ (null);
    const others = new Map(Object.entries(problems));
    for (const { name, input, error } of fields) {
      const text = others.get(name) ?? "";
      replace(error, text).hidden = !text;
      input.setAttribute("aria-invalid", Boolean(text));
      if (others.delete(name)) first ??= input;
    }
    const rest = [...others].map(([name, text]) => `${name}: ${text}`).join(" ") || (first ? "" : message);
    replace(general, rest).hidden = !rest;
    first?.focus();
  }

  function read() {
    // A field may be named like a property of all objects.
    const found = Object.create(null);
    const problems = Object.create(null);
    for (const { name, read } of fields) {
      try {
        const value = read();
        if (value !== undefined) found[name] = value;
        else if (required.has(name)) problems[name] = "Enter a value.";
      } catch (error) {
        problems[name] = error.message;
      }
    }
    showErrors(problems);
    return Object.keys(problems).length ? null : found;
  }

  const submit = (event) => {
    event.preventDefault();
    const found = read();
    if (found) onsubmit?.(found);
  };
  const button = onsubmit && h("button.primary", { type: "submit" }, submitLabel);
  const node = h("form.form", { novalidate: true, onsubmit: submit }, fields.map((field) => field.node), general, (button || actions) && h("div.actions", button, actions));
  return { node, values: read, showErrors, focus: () => fields[0]?.input.focus() };
}

/** Returns the field of a property. `read` returns `undefined` for no value, and throws for a wrong one. */
function fieldOf(name, schema, value, isRequired) {
  const id = `field-${++count}`;
  const { input, box = input, read } = controlOf(id, withoutNull(schema), value, isRequired);
  const error = h("p.error", { id: `${id}-error`, hidden: true });
  const help = schema.description && h("p.help", { id: `${id}-help` }, schema.description);
  input.setAttribute("aria-describedby", `${help ? `${id}-help ` : ""}${id}-error`);
  const isCheck = input.type === "checkbox";
  const title = [schema.title ?? name, !isRequired && (!isCheck || box !== input) && h("span.optional", " optional")];
  const label = h("label", { for: id }, title);
  const node =
    box !== input
      ? h("fieldset.field", h("legend", title), box, help, error)
      : h("div.field", isCheck ? h("div.check", input, label) : [label, help, input], isCheck && help, error);
  return { name, node, input, error, read };
}

/** Returns the choices of a schema as pairs of value and title; `undefined` if it has none. */
function choicesOf(schema) {
  const list = schema?.oneOf ?? schema?.anyOf;
  if (list?.length && list.every((each) => "const" in each)) return list.map((each) => [each.const, each.title ?? each.const]);
  return schema?.enum?.map((each, at) => [each, schema.enumNames?.[at] ?? each]);
}

/** Returns the schema without the alternative `null`. */
function withoutNull(schema) {
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((each) => each !== "null");
    return types.length === 1 ? { ...schema, type: types[0] } : schema;
  }
  const rest = schema.anyOf?.filter((each) => each.type !== "null");
  return rest?.length === 1 && schema.anyOf.length === 2 ? { ...schema, anyOf: undefined, ...rest[0] } : schema;
}

const TYPES = { email: "email", uri: "url", date: "date", password: "password" };

function controlOf(id, schema, value, isRequired) {
  const { type, format, maxLength } = schema;
  const choices = choicesOf(schema);
  if (choices) {
    const at = choices.findIndex(([each]) => each === value);
    const empty = (at < 0 || !isRequired) && h("option", { value: "" }, isRequired ? "Choose…" : "—");
    const input = h("select", { id, value: at < 0 ? "" : at }, empty, choices.map(([, title], place) => h("option", { value: place }, String(title))));
    return { input, read: () => choices[input.value || -1]?.[0] };
  }
  const items = type === "array" && choicesOf(schema.items);
  if (items?.length) {
    const boxes = items.map(([each], at) => h("input", { type: "checkbox", id: at ? `${id}-${at}` : id, checked: value?.includes?.(each) }));
    const box = items.map(([, title], at) => h("div.check", boxes[at], h("label", { for: boxes[at].id }, String(title))));
    return { input: boxes[0], box, read: () => items.filter((_, at) => boxes[at].checked).map(([each]) => each) };
  }
  if (type === "boolean") {
    let isSet = isRequired || value !== undefined;
    const input = h("input", { type: "checkbox", id, checked: value === true, onchange: () => (isSet = true) });
    return { input, read: () => (isSet ? input.checked : undefined) };
  }
  if (type === "integer" || type === "number") {
    const input = h("input", { id, type: "number", step: "any", min: schema.minimum, max: schema.maximum, value: value ?? "" });
    const read = () => {
      if (input.validity.badInput) throw new Error("Enter a number.");
      if (type === "integer" && !Number.isInteger(Number(input.value))) throw new Error("Enter a whole number.");
      return input.value === "" ? undefined : Number(input.value);
    };
    return { input, read };
  }
  if (type === "string") {
    const text = typeof value === "string" ? value : "";
    const isLong = maxLength > 200 || text.includes("\n");
    const placeholder = format === "date-time" && new Date().toISOString();
    const input = h(isLong ? "textarea" : "input", { id, type: isLong ? null : TYPES[format], placeholder, maxlength: maxLength, value: text });
    return { input, read: () => (input.value || (isRequired && schema.minLength === 0) ? input.value : undefined) };
  }
  const text = value === undefined ? "" : JSON.stringify(value, null, 2);
  const input = h("textarea.mono", { id, rows: 4, spellcheck: "false", placeholder: "JSON", value: text });
  const read = () => {
    try {
      return input.value.trim() ? JSON.parse(input.value) : undefined;
    } catch (error) {
      throw new Error(`This is not JSON: ${error.message}`);
    }
  };
  return { input, read };
}
