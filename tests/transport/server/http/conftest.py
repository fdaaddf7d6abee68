"""The two ways into a server over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import serving


@pytest.fixture(scope="module", params=serving.WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How `serving` serves a `Server`: what uses this fixture is done on both ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "WAY", request.param)
        yield str(request.param)
