"""The Kubernetes manifests of the how-to: valid by the schemas, and in agreement with the settings."""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from antiphon.cli.run.load import load_server
from antiphon.cli.run.threads import GRACE_SECONDS
from antiphon.instrumentation import FLUSH_SECONDS
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.limits import Limits
from antiphon.store import open_store
from tests.support.process import ROOT
from tests.test_deploy import parsed

FOLDER = ROOT / "examples" / "deploy" / "kubernetes"
VERSION = "1.37"
MANIFESTS: list[dict[str, Any]] = [
    manifest
    for path in sorted(FOLDER.glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
SETTINGS = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")


def found(kind: str, name: str) -> dict[str, Any]:
    """The manifest of a kind with a name."""
    (manifest,) = (each for each in MANIFESTS if each["kind"] == kind and each["metadata"]["name"] == name)
    return manifest


def pod(name: str) -> dict[str, Any]:
    """The specification of the pods of a deployment."""
    spec: dict[str, Any] = found("Deployment", name)["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    """The only container of a deployment."""
    (only,) = pod(name)["containers"]
    assert isinstance(only, dict)
    return only


def limits() -> Limits:
    """The limits of the server that is deployed."""
    return load_server(str(FOLDER.parent / "weather.py")).limits


DEPLOYMENTS = pytest.mark.parametrize("name", ["weather-server", "weather-worker"])


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_a_manifest_fits_the_schema_of_its_kind(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_a_mistake_does_not_fit() -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**found("Service", "weather"), "spce": {}}, VERSION, strict=True)


def test_there_are_all_the_parts() -> None:
    kinds = sorted(manifest["kind"] for manifest in MANIFESTS)
    assert kinds == sorted(
        ["ConfigMap", "Secret", "Service", "Ingress", *["Deployment", "PodDisruptionBudget"] * 2]
    )


@DEPLOYMENTS
def test_the_command_is_one_and_serves_where_the_probes_ask(name: str) -> None:
    ours = container(name)
    understood = parsed(ours["command"])
    is_server = name == "weather-server"
    assert understood["command"] == ("run" if is_server else "worker")
    assert understood["target"] == "weather.py"
    assert not is_server or understood["no_worker"]
    (port,) = ours["ports"]
    assert understood["port"] == port["containerPort"]
    probes = {probe: ours[f"{probe}Probe"]["httpGet"] for probe in ("startup", "readiness", "liveness")}
    assert {probe: asked["path"] for probe, asked in probes.items()} == {
        "startup": "/readyz",
        "readiness": "/readyz",
        "liveness": "/healthz",
    }
    assert {asked["port"] for asked in probes.values()} == {port["name"]}
    annotations = found("Deployment", name)["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])


@DEPLOYMENTS
def test_the_readiness_probe_waits_for_the_check_of_the_store(name: str) -> None:
    """The probe of an instance waits two seconds at most for a store that stands still."""
    for probe in ("startupProbe", "readinessProbe"):
        assert container(name)[probe]["timeoutSeconds"] > 2


@DEPLOYMENTS
def test_a_pod_has_the_time_that_its_process_needs_to_stop(name: str) -> None:
    ours, bounds = container(name), limits()
    slept = ours.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    delay = slept + bounds.shutdown_delay
    # Functions in threads and the exporters have a moment after the drain.
    needed = delay + bounds.drain_timeout + GRACE_SECONDS + FLUSH_SECONDS
    assert pod(name)["terminationGracePeriodSeconds"] > needed
    if name == "weather-server":
        readiness = ours["readinessProbe"]
        assert delay >= 2 * readiness["periodSeconds"] * readiness["failureThreshold"]


@DEPLOYMENTS
def test_the_variables_exist_and_the_secrets_are_in_the_secret(name: str) -> None:
    config, secret = found("ConfigMap", "weather-config"), found("Secret", "weather-secrets")
    assert container(name)["envFrom"] == [
        {"configMapRef": {"name": config["metadata"]["name"]}},
        {"secretRef": {"name": secret["metadata"]["name"]}},
    ]
    assert "env" not in container(name)
    assert set(secret["stringData"]) == {"ANTIPHON_SECRETS", "ANTIPHON_STORE"}
    named = {*config["data"], *secret["stringData"]}
    assert [key for key in sorted(named) if f"`{key}`" not in SETTINGS] == []
    commented = re.findall(r"# (ANTIPHON_\w+):", (FOLDER / "config.yaml").read_text(encoding="utf-8"))
    assert commented == ["ANTIPHON_OTEL"]
    assert f"`{commented[0]}`" in SETTINGS


def test_the_secret_of_the_example_is_refused_and_its_store_can_be_opened() -> None:
    values = found("Secret", "weather-secrets")["stringData"]
    with pytest.raises(ValueError, match="at least 16"):
        Seal([values["ANTIPHON_SECRETS"]])
    open_store(values["ANTIPHON_STORE"])


@DEPLOYMENTS
def test_pods_have_few_rights(name: str) -> None:
    rights, ours = pod(name)["securityContext"], container(name)["securityContext"]
    assert rights["runAsNonRoot"]
    assert rights["runAsUser"] >= 1000, "Kubernetes cannot tell from a name that it is not root"
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
    assert ours["readOnlyRootFilesystem"]
    assert not ours["allowPrivilegeEscalation"]
    assert ours["capabilities"] == {"drop": ["ALL"]}
    assert pod(name)["automountServiceAccountToken"] is False
    assert pod(name)["enableServiceLinks"] is False, "a service could set ANTIPHON_PORT"


@DEPLOYMENTS
def test_a_pod_has_more_memory_than_callers_may_use(name: str) -> None:
    resources = container(name)["resources"]
    assert resources["limits"] == {"memory": "1Gi"}
    assert 2 * limits().max_memory_bytes < 2**30


@DEPLOYMENTS
def test_selectors_find_the_pods_of_their_deployment_only(name: str) -> None:
    deployment = found("Deployment", name)["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    budget = found("PodDisruptionBudget", name)["spec"]
    assert budget["selector"]["matchLabels"] == labels
    available = budget.get("minAvailable", deployment["replicas"] - budget.get("maxUnavailable", 0))
    assert 0 < available < deployment["replicas"], "a node can be drained, and somebody still serves"
    selects = found("Service", "weather")["spec"]["selector"] == labels
    assert selects == (name == "weather-server")


def test_the_ingress_forwards_the_endpoint_alone_without_stickiness() -> None:
    ingress, service = found("Ingress", "weather"), found("Service", "weather")["spec"]
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert path["path"] == parsed(container("weather-server")["command"])["path"]
    backend = path["backend"]["service"]
    (port,) = service["ports"]
    assert (backend["name"], backend["port"]["name"]) == ("weather", port["name"])
    assert port["targetPort"] in [each["name"] for each in container("weather-server")["ports"]]
    assert service["sessionAffinity"] == "None"
    annotations = ingress["metadata"]["annotations"]
    assert not any("affinity" in key for key in annotations)
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]) > limits().keep_alive_interval
    hosts = found("ConfigMap", "weather-config")["data"]["ANTIPHON_HOSTS"].split(",")
    assert rule["host"] in hosts
    assert [host for tls in ingress["spec"]["tls"] for host in tls["hosts"]] == [rule["host"]]


def test_no_version_is_taken_away_before_the_next_one_serves() -> None:
    spec = found("Deployment", "weather-server")["spec"]
    assert spec["strategy"]["type"] == "RollingUpdate"
    update = spec["strategy"]["rollingUpdate"]
    assert update["maxUnavailable"] == 0, "all replicas of the version before serve until then"
    assert update["maxSurge"] >= 1, "the next version could not begin"
    probe = container("weather-server")["readinessProbe"]["httpGet"]
    assert probe["path"] == "/readyz", "Kubernetes would take it for serving as soon as it runs"
