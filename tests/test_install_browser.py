"""The script that installs a browser for the tests, with a package manager that only records its words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT

SCRIPT = ROOT / "scripts" / "install_browser.py"


def run(folder: Path) -> str:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT)], env={"PATH": str(folder)}, capture_output=True, text=True, check=True
    )
    return ran.stdout


def program(path: Path, script: str = "") -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_browser_that_is_there_is_used(tmp_path: Path) -> None:
    program(tmp_path / "chromium")
    program(tmp_path / "apt-get", f"echo called > {tmp_path}/log")
    assert run(tmp_path) == ""
    assert not (tmp_path / "log").exists()


def test_without_a_package_manager_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    assert run(tmp_path) == "No browser for the tests of pages. On Debian: apt-get install chromium.\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")
@pytest.mark.parametrize("code", [0, 1])
def test_root_on_debian_installs_it(tmp_path: Path, code: int) -> None:
    program(tmp_path / "apt-get", f'echo "$@" >> {tmp_path}/log; exit {code}')
    said = run(tmp_path)
    words = (tmp_path / "log").read_text().splitlines()
    if code:
        assert said.startswith("apt-get update failed.")
    else:
        assert words == ["-qq update", "-qq install --yes --no-install-recommends chromium"]
