"""The way in which the tests run the official conformance suite: a failure of either side is seen."""

from __future__ import annotations

from tests.conformance.test_client import Run
from tests.support.process import free_port


def test_a_server_that_does_not_answer_fails(conformance_cli: Run) -> None:
    ran = conformance_cli("server", "--url", f"http://localhost:{free_port()}/mcp", "--scenario", "ping")
    assert ran.code == 1
    assert [check["status"] for check in ran[0].checks if check["id"] == "ping"] == ["FAILURE"]


def test_a_client_whose_process_fails_is_reported(conformance_cli: Run) -> None:
    ran = conformance_cli("client", "--command", "false", "--scenario", "initialize")
    assert ran.code == 1
    assert "Client exited with code 1" in ran.output


def test_a_client_that_raises_an_error_is_reported_with_it(conformance_cli: Run) -> None:
    ran = conformance_cli("client", "--command", "asked", "--scenario", "auth/resource-mismatch")
    assert "Client exited with code 1" in ran.output
    assert "antiphon.errors.clients.AuthorizationFailed" in ran.output
