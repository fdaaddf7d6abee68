"""Each test is done on both ways into a server over HTTP."""

from __future__ import annotations

import pytest

from tests.support import serving


@pytest.fixture(params=serving.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a `Server` is served."""
    monkeypatch.setattr(serving, "WAY", request.param)
    return str(request.param)
