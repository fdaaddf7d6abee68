"""The auth scenarios of the official conformance suite against this library's client.

How many checks succeed depends on how many requests the client makes. What counts is that no check fails and
none warns.
"""

import pytest

from tests.conformance.test_client import Run

BOTH = (
    "basic-cimd",
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "pre-registration",
    "scope-from-scopes-supported",
    "scope-from-www-authenticate",
    "scope-omitted-when-undefined",
    "scope-retry-limit",
    "scope-step-up",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-none",
    "token-endpoint-auth-post",
)

SCENARIOS = {
    "2025-03-26": ("2025-03-26-oauth-endpoint-fallback", "2025-03-26-oauth-metadata-backcompat"),
    "2025-11-25": BOTH,
    "2026-07-28": (
        *BOTH,
        "authorization-server-migration",
        "iss-normalized",
        "iss-not-advertised",
        "iss-supported",
        "iss-supported-missing",
        "iss-unexpected",
        "iss-wrong-issuer",
        "metadata-issuer-mismatch",
        "offline-access-not-supported",
        "offline-access-scope",
        "resource-mismatch",
    ),
    "extensions": (
        "client-credentials-basic",
        "client-credentials-jwt",
        "dpop",
        "dpop-nonce",
        "enterprise-managed-authorization",
        "wif-jwt-bearer",
    ),
}


@pytest.mark.parametrize(
    ("version", "scenario"),
    [(version, scenario) for version, scenarios in SCENARIOS.items() for scenario in scenarios],
)
def test_an_auth_scenario_passes(conformance_cli: Run, version: str, scenario: str) -> None:
    chosen = [] if version == "extensions" else ["--spec-version", version]
    ran = conformance_cli("client", "--command", "asked", "--scenario", f"auth/{scenario}", *chosen)
    assert [name for name, _ in ran] == [f"auth/{scenario}"]
    checks = ran[0][1]
    assert not [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    assert [check for check in checks if check["status"] == "SUCCESS"]
