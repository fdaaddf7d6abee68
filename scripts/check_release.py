"""Builds the sdist and the wheel, checks their contents, and tries each in an environment of its own.

`make release-check` runs it. It changes nothing in the repository: everything is made in a temporary folder.
With `--final`, the changelog must have the date of the release, and the work tree must be clean. With
`--keep FOLDER`, the checked files are copied to a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SDIST_FILES = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
"""The files of the sdist beside the package. The build backend adds `PKG-INFO` and `.gitignore`."""

SERVER = '''
from antiphon import Context, Server

server = Server("smoke")


@server.tool(task="optional")
async def add(a: int, b: int, ctx: Context) -> int:
    """Add two numbers."""
    return await ctx.step(sum, [a, b])
'''

TRY_IMPORTS = """
import importlib.metadata, json, sys
import antiphon
from antiphon import *
from antiphon.console.assets import Assets
points = importlib.metadata.entry_points
print(json.dumps({
    "file": antiphon.__file__,
    "version": antiphon.__version__,
    "plugin": [point.value for point in points(group="pytest11", name="antiphon")],
    "page": len(Assets().files),
}))
"""


# The version and the changelog


def read_version(root: Path = ROOT) -> str:
    """Return the version of the package, from the one place that has it."""
    found = re.search(r'^VERSION = "([^"]+)"$', (root / "src/antiphon/version.py").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit('src/antiphon/version.py has no line VERSION = "…".')
    return found[1]


def changelog_problems(text: str, version: str, *, final: bool) -> Iterator[str]:
    """Yield why the topmost heading of the changelog does not fit the version."""
    found = re.search(r"^## (.+)$", text, re.MULTILINE)
    heading = "" if found is None else found[1]
    name, _, date = heading.partition(", ")
    if name != version:
        yield f"The topmost heading of CHANGELOG.md is {heading!r}, and the version is {version}."
    if not re.fullmatch(r"unreleased|\d{4}-\d\d-\d\d", date):
        yield f"The topmost heading of CHANGELOG.md is {heading!r}: write '{version}, unreleased', or a date."
    elif final and date == "unreleased":
        yield f"CHANGELOG.md says that {version} is unreleased: write the date of the release."


# The contents of the files


def package_files(root: Path = ROOT) -> set[str]:
    """Return the files of the package in the work tree, by their path in the wheel."""
    source = root / "src"
    return {
        path.relative_to(source).as_posix()
        for path in (source / "antiphon").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Return the content of each file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def wheel_problems(files: dict[str, bytes], version: str, root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with the contents and the metadata of a wheel."""
    info = f"antiphon-{version}.dist-info/"
    packed = {name for name in files if not name.startswith(info)}
    wanted = package_files(root)
    for name in sorted(wanted - packed):
        yield f"The wheel lacks {name}."
    for name in sorted(packed - wanted):
        yield f"The wheel has {name}, which is not part of the package."
    if "antiphon/py.typed" not in packed:
        yield "The wheel has no typed marker: antiphon/py.typed."
    if f"{info}METADATA" not in files:
        yield f"The wheel has no metadata for the version {version}."
        return
    yield from metadata_problems(BytesParser().parsebytes(files[f"{info}METADATA"]), version, root)
    points = files.get(f"{info}entry_points.txt", b"").decode()
    for line in ("antiphon = antiphon.cli:main", "antiphon = antiphon.testing.pytest_plugin"):
        if line not in points:
            yield f"The wheel lacks the entry point {line!r}."
    if f"{info}licenses/LICENSE" not in files:
        yield "The wheel lacks the license."


def metadata_problems(metadata: Message, version: str, root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with the metadata of a wheel or an sdist."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for field, value in {
        "Name": "antiphon",
        "Version": version,
        "Summary": project["description"],
        "Requires-Python": f">={PYTHONS[0]}",
        "License-Expression": project["license"],
        "Description-Content-Type": "text/markdown",
    }.items():
        if metadata[field] != value:
            yield f"The metadata has {field}: {metadata[field]}, in place of {value}."
    classifiers = metadata.get_all("Classifier", [])
    for classifier in ("Typing :: Typed", *(f"Programming Language :: Python :: {each}" for each in PYTHONS)):
        if classifier not in classifiers:
            yield f"The metadata lacks the classifier {classifier!r}."
    extras = sorted(metadata.get_all("Provides-Extra", []))
    if extras != sorted(project["optional-dependencies"]):
        yield f"The metadata has the extras {extras}, which are not those of pyproject.toml."
    description = metadata.get_payload(decode=True)
    if not isinstance(description, bytes) or description.strip() != (root / "README.md").read_bytes().strip():
        yield "The long description is not README.md."


def sdist_problems(sdist: Path, version: str, root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with the contents of an sdist: it has the package, and a few files beside it."""
    with tarfile.open(sdist) as archive:
        names = {member.name for member in archive.getmembers() if member.isfile()}
    top = f"antiphon-{version}/"
    wanted = {f"src/{name}" for name in package_files(root)} | SDIST_FILES
    packed = {name.removeprefix(top) for name in names}
    for name in sorted(wanted - packed):
        yield f"The sdist lacks {name}."
    for name in sorted(packed - wanted):
        yield f"The sdist has {name}, which is not needed to build and to install the package."


# Building and trying


def build(folder: Path) -> tuple[Path, Path, Path]:
    """Return the sdist, the wheel that the sdist builds, and the wheel that the work tree builds."""
    command = [sys.executable, "-m", "build", "--no-isolation"]
    _run([*command, "--outdir", folder / "dist", ROOT])
    _run([*command, "--wheel", "--outdir", folder / "direct", ROOT])
    [sdist], [wheel], [direct] = (
        [*(folder / name).glob(pattern)]
        for name, pattern in (("dist", "*.tar.gz"), ("dist", "*.whl"), ("direct", "*.whl"))
    )
    return sdist, wheel, direct


def try_installed(archive: Path, folder: Path, version: str) -> Iterator[str]:
    """Install an archive into a new environment, and yield what does not work there."""
    print(f"Trying {archive.name} in a new environment.", flush=True)
    folder.mkdir()
    venv.create(folder / "env", with_pip=True)
    python, command = folder / "env/bin/python", folder / "env/bin/antiphon"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "install", archive])
    _run([*pip, "check"])
    (folder / "server.py").write_text(SERVER)
    found = json.loads(_run([python, "-c", TRY_IMPORTS], folder))
    if not Path(found["file"]).is_relative_to(folder):
        yield f"Python imports {found['file']}, and not the installed package."
    if found["version"] != version or _run([command, "--version"], folder).split() != ["antiphon", version]:
        yield f"The installed package has the version {found['version']}, and not {version}."
    if found["plugin"] != ["antiphon.testing.pytest_plugin"]:
        yield "pytest does not find the plugin."
    if "Usage: antiphon console" not in _run([command, "console", "--help"], folder):
        yield "`antiphon console --help` does not print how it is used."
    if (answer := _run([command, "call", "server.py", "add", "a=1", "b=2"], folder)) != "3\n":
        yield f"`antiphon call` of a file prints {answer!r}."
    yield from _try_serving(command, folder)


def resolve_extras(wheel: Path, python: Path) -> None:
    """Find versions for the packages of each extra, without installing them; ends the check without any."""
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    for extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]:
        print(f"Resolving antiphon[{extra}].", flush=True)
        _run([*pip, "install", "--dry-run", f"antiphon[{extra}] @ {wheel.resolve().as_uri()}"])


def _try_serving(command: Path, folder: Path) -> Iterator[str]:
    """Serve a file with a store and the console, and call it over HTTP."""
    options = ["--port", "0", "--console", "--store", "sqlite:///tasks.db"]
    serving = subprocess.Popen(
        [command, "run", "server.py", *options],
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        assert serving.stdout is not None
        found = re.search(r"http://\S+/mcp", serving.stdout.readline())
        if found is None:
            yield "`antiphon run` does not print its address."
            return
        if (answer := _run([command, "call", found[0], "add", "a=1", "b=2"], folder)) != "3\n":
            yield f"`antiphon call` of a served tool prints {answer!r}."
    finally:
        serving.terminate()
        serving.wait(30)


def _environment() -> dict[str, str]:
    """Return the environment of a new user: without a path to the sources, and without settings of ours."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("ANTIPHON_")
    }


def _run(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """Run a command and return its output; ends the check if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """Check a release; return 1 if something is wrong with it."""
    parser = argparse.ArgumentParser(description="Build a release, check it, and try it.")
    parser.add_argument(
        "--final", action="store_true", help="the changelog has a date, the work tree is clean"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy the checked files to this folder")
    options = parser.parse_args(arguments)
    version = read_version()
    problems = [*changelog_problems((ROOT / "CHANGELOG.md").read_text(), version, final=options.final)]
    if options.final and (changed := _run(["git", "status", "--porcelain"], ROOT)):
        problems.append(f"The work tree has changes that are not committed:\n{changed}")
    with tempfile.TemporaryDirectory(prefix="antiphon-release-") as name:
        folder = Path(name)
        print(f"Building antiphon {version}.", flush=True)
        sdist, wheel, direct = build(folder)
        problems += sdist_problems(sdist, version)
        problems += wheel_problems(wheel_files(wheel), version)
        if wheel_files(wheel) != wheel_files(direct):
            problems.append("The sdist builds another wheel than the work tree does.")
        _run([sys.executable, "-m", "twine", "check", "--strict", sdist, wheel])
        for number, archive in enumerate((wheel, sdist)):
            problems += try_installed(archive, folder / f"try-{number}", version)
        resolve_extras(wheel, folder / "try-0/env/bin/python")
        if options.keep is not None and not problems:
            options.keep.mkdir(parents=True, exist_ok=True)
            for archive in (sdist, wheel):
                print(f"Kept {shutil.copy(archive, options.keep)}.")
    print("\n".join(problems) or f"antiphon {version} can be released.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
