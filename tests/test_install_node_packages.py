"""The npm packages of the tests: none runs a script when it is installed, and each has one version."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.process import ROOT
from tests.support.scripts import load_script

SCRIPT = ROOT / "scripts" / "install_node_packages.py"


def test_no_package_runs_a_script_when_it_is_installed(tmp_path: Path) -> None:
    package, folder = tmp_path / "package", tmp_path / "folder"
    package.mkdir()
    scripts = {"postinstall": f"touch {tmp_path}/has-run", "preinstall": f"touch {tmp_path}/has-run"}
    described = {"name": "hostile", "version": "1.0.0", "scripts": scripts}
    (package / "package.json").write_text(json.dumps(described))
    subprocess.run([sys.executable, SCRIPT, folder, package], check=True, timeout=300)
    assert (folder / "node_modules" / "hostile" / "package.json").exists()
    assert not (tmp_path / "has-run").exists()


def test_every_package_that_others_need_has_its_version_in_the_repository() -> None:
    installer = load_script("install_node_packages")
    installed = set(installer.found(ROOT / ".node"))
    assert installed == set(installer.INDIRECT.read_text().split()), "run install_node_packages.py --pin"
