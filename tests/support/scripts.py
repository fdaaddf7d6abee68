"""The scripts of the Makefile as modules, so that a test can call their functions."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from tests.support.process import ROOT


def load_script(name: str) -> Any:
    """Import a script of the folder `scripts`, under a name that no test has."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks for its module there
    spec.loader.exec_module(module)
    return module
