"""What the chart renders, without a cluster."""

from base64 import b64decode
from typing import Any

import pytest
from cryptography import x509

from services.cluster.settings import ClusterSettings
from services.executor.settings import ExecutorSettings
from services.gateway.settings import GatewaySettings
from services.scheduler.settings import SchedulerSettings
from services.telemetry.settings import TelemetrySettings
from shared.settings import load_settings
from tests.support.kubernetes.api import Object
from tests.support.kubernetes.chart import CHART, EXAMPLES, pod_templates, rendered, run_helm

pytestmark = pytest.mark.kubernetes
PLATFORM = ("scheduler", "orchestrator", "results", "gateway")
PODS = (*PLATFORM, "cluster", "executor", "telemetry")
every_pod = pytest.mark.parametrize("name", PODS)
every_example = pytest.mark.parametrize("example", [None, *EXAMPLES])


def spec_of(name: str, example: str | None = None) -> Object:
    specs = {found: template["spec"] for found, _, template in pod_templates(example)}
    spec: Object = specs[name]
    return spec


def container_of(name: str, example: str | None = None) -> Object:
    (container,) = spec_of(name, example)["containers"]
    return dict(container)


def named(objects: list[Object], kind: str, name: str) -> Object:
    (thing,) = [
        thing for thing in objects if thing["kind"] == kind and thing["metadata"]["name"] == name
    ]
    return thing


def kinds_of(objects: list[Object]) -> set[str]:
    return {thing["kind"] for thing in objects}


def namespaces_of(objects: list[Object]) -> set[str]:
    return {
        thing["metadata"]["name"]
        if thing["kind"] == "Namespace"
        else thing["metadata"]["namespace"]
        for thing in objects
        if thing["kind"] == "Namespace" or "namespace" in thing["metadata"]
    }


def test_smallest_values_make_the_whole_with_defaults() -> None:
    objects = rendered("smallest")

    assert {name for name, _, _ in pod_templates("smallest")} == set(PODS)
    assert namespaces_of(objects) == {
        *("gpusteward", "gpusteward-cluster", "gpusteward-engines", "gpusteward-agents"),
        "kube-public",
    }
    assert kinds_of(objects).isdisjoint({"Ingress", "ServiceMonitor", "PodMonitor"})
    secrets = [thing for thing in objects if thing["kind"] == "Secret"]
    assert {each["metadata"]["name"] for each in secrets} == {"gateway-tls", "telemetry-tls"}
    assert container_of("gateway", "smallest")["image"] == "registry.example.org/gpusteward:0.1.0"
    settings = named(objects, "ConfigMap", "platform")["data"]
    assert settings["GPUSTEWARD_NATS_URL"] == "tls://nats.messaging.svc:4222"


def test_ingress_has_tls_and_monitors_have_a_token() -> None:
    objects = rendered("ingress")

    ingress = named(objects, "Ingress", "gateway")["spec"]
    assert ingress["tls"] == [{"hosts": ["gpus.example.org"], "secretName": "gpus-example-org-tls"}]
    (rule,) = ingress["rules"]
    assert rule["host"] == "gpus.example.org"
    backend = rule["http"]["paths"][0]["backend"]["service"]
    service = named(objects, "Service", backend["name"])
    assert [port["name"] for port in service["spec"]["ports"]] == [backend["port"]["name"]]
    monitor = named(objects, "ServiceMonitor", "gateway")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
    credentials = {"name": "gpusteward-prometheus", "key": "token"}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": credentials}
    labels = named(objects, "PodMonitor", "telemetry")["spec"]["selector"]["matchLabels"]
    ((_, _, template),) = [found for found in pod_templates("ingress") if found[0] == "telemetry"]
    assert labels.items() <= template["metadata"]["labels"].items()


def test_agents_alone_bring_nothing_of_the_platform() -> None:
    objects = rendered("agents")

    assert [name for name, _, _ in pod_templates("agents")] == ["telemetry"]
    assert namespaces_of(objects) == {"gpusteward-agents"}
    agent = environment_of("telemetry", "agents")
    assert agent["GPUSTEWARD_NATS_URL"] == "tls://steward.example.org:4222"
    assert agent["GPUSTEWARD_TELEMETRY_LABELS"] == "gpusteward.io/cluster=k8s-west"


def test_every_value_reaches_what_it_is_for() -> None:
    objects = rendered("everything")

    image = "registry.example.org:5000/tools/gpu-steward:0.1.0-site1"
    for name, _, template in pod_templates("everything"):
        spec = template["spec"]
        assert spec["containers"][0]["image"] == image
        assert spec["imagePullSecrets"] == [{"name": "registry-login"}]
        assert spec["priorityClassName"] == "steward"
        assert template["metadata"]["annotations"]["example.org/team"] == "inference"
        assert "nodeSelector" in spec or name == "telemetry"
    assert "runtimeClassName" not in spec_of("telemetry", "everything")
    assert "tolerations" not in spec_of("telemetry", "everything")
    claim = named(objects, "PersistentVolumeClaim", "executor")["spec"]
    assert claim["storageClassName"] == "fast"
    assert claim["resources"]["requests"]["storage"] == "20Gi"
    budgets = {
        thing["metadata"]["name"] for thing in objects if thing["kind"] == "PodDisruptionBudget"
    }
    assert budgets == {"scheduler", "gateway"}
    assert namespaces_of(objects) == {
        *("gpusteward", "steward-cluster", "steward-agents", "tuning", "nightly", "kube-public"),
    }
    for namespace in ("tuning", "nightly"):
        own = [thing for thing in objects if thing["metadata"].get("namespace") == namespace]
        names = sorted((thing["kind"], thing["metadata"]["name"]) for thing in own)
        assert names == [
            ("NetworkPolicy", "engines"),
            *(("Role", f"gpusteward-{name}") for name in ("cluster", "executor")),
            *(("RoleBinding", f"gpusteward-{name}") for name in ("cluster", "executor")),
        ]
    credentials = spec_of("cluster", "everything")["volumes"][0]["secret"]
    assert credentials["items"] == [{"key": "k8s-east.json", "path": "cluster.json"}]
    assert ports_out_of(named(objects, "NetworkPolicy", "platform")) == {53, 4318, 4223, 6432}
    assert ports_out_of(named(objects, "NetworkPolicy", "telemetry")) == {53, 4318, 4223, 6443}


def ports_out_of(policy: Object) -> set[int]:
    rules = policy["spec"]["egress"]
    return {port["port"] for rule in rules for port in rule.get("ports", ())}


@every_example
def test_no_two_objects_have_one_name(example: str | None) -> None:
    names = [
        (thing["kind"], thing["metadata"].get("namespace"), thing["metadata"]["name"])
        for thing in rendered(example)
    ]

    assert len(names) == len(set(names))


@every_example
def test_every_reference_leads_to_an_object(example: str | None) -> None:
    objects = rendered(example)
    there = {
        (thing["kind"], thing["metadata"].get("namespace"), thing["metadata"]["name"])
        for thing in objects
    }

    for _, namespace, template in pod_templates(example):
        spec = template["spec"]
        assert ("ServiceAccount", namespace, spec["serviceAccountName"]) in there
        for source in spec["containers"][0]["envFrom"]:
            assert ("ConfigMap", namespace, source["configMapRef"]["name"]) in there
    for thing in objects:
        if not thing["kind"].endswith("RoleBinding"):
            continue
        role = thing["roleRef"]
        home = thing["metadata"].get("namespace") if role["kind"] == "Role" else None
        assert (role["kind"], home, role["name"]) in there
        for subject in thing["subjects"]:
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in there


@every_example
def test_lint_finds_nothing(example: str | None) -> None:
    values = CHART / "values.yaml" if example is None else EXAMPLES[example]

    ended = run_helm("lint", "--strict", CHART, "--values", values)

    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("image.tga=1", "at '/image': additional properties 'tga' not allowed"),
        ("ingress.enabled=true", "at '/ingress/host': minLength"),
        ("agents.resources.limits.memory=lots", "at '/agents/resources/limits/memory': 'lots'"),
        ("serviceMonitor.enabled=true", "at '/serviceMonitor/token/secretName': minLength"),
    ],
)
def test_wrong_value_is_refused_with_its_place(setting: str, place: str) -> None:
    ended = run_helm("template", CHART, "--set", setting)

    assert ended.returncode != 0
    assert place in ended.stderr


def test_provider_reaches_the_gateway_alone_by_its_secret() -> None:
    mounts = {
        name: {volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
        for name in PLATFORM
        if (volumes := spec_of(name, "everything")["volumes"])
    }
    values = {
        each["name"]: each.get("value") for each in container_of("gateway", "everything")["env"]
    }

    assert [name for name, secrets in mounts.items() if "steward-oidc" in secrets] == ["gateway"]
    assert values["GPUSTEWARD_GATEWAY_OIDC_ISSUER"] == "https://id.example.org/realms/people"
    assert values["GPUSTEWARD_GATEWAY_OIDC_MAPPING_FILE"] == "/run/oidc/roles.toml"
    without = {each["name"] for each in container_of("gateway")["env"]}
    assert not {name for name in without if "OIDC" in name}


def test_notes_name_every_secret_that_pods_wait_for() -> None:
    values = EXAMPLES["everything"]

    ended = run_helm("install", "gpusteward", CHART, "--dry-run=client", "--values", values)

    _, _, notes = ended.stdout.partition("NOTES:")
    secrets = {
        volume["secret"]["secretName"]
        for _, _, template in pod_templates("everything")
        for volume in template["spec"]["volumes"]
        if "secret" in volume
    }
    secrets -= {"telemetry-tls"}  # cert-manager makes it
    for name in (*secrets, "steward-database", "steward-prometheus"):
        assert f"create secret generic {name} " in notes


@every_pod
@every_example
def test_a_pod_may_as_little_as_it_can(name: str, example: str | None) -> None:
    if example == "agents" and name != "telemetry":
        return
    spec = spec_of(name, example)

    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "hostNetwork" not in spec
    assert "hostIPC" not in spec
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert "readinessProbe" in container
        # In place of the image's entrypoint, which is `gpusteward`.
        assert container["command"] == ["python", "-m", f"services.{name}"]
    if name != "telemetry":
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert "hostPID" not in spec
    calls_the_api = name in {"cluster", "executor", "telemetry"}
    assert spec["automountServiceAccountToken"] is calls_the_api


@every_pod
def test_only_kubelet_folder_is_mounted_read_only(name: str) -> None:
    volumes = spec_of(name)["volumes"]
    paths = [each["hostPath"]["path"] for each in volumes if "hostPath" in each]
    mounts = {each["name"]: each for each in container_of(name)["volumeMounts"]}

    assert paths == (["/var/lib/kubelet/pod-resources"] if name == "telemetry" else [])
    assert mounts.keys() == {each["name"] for each in volumes}
    for each in ("credentials", "pod-resources", "tokens"):
        assert mounts.get(each, {"readOnly": True})["readOnly"] is True


def test_there_are_two_schedulers() -> None:
    assert named(rendered(), "Deployment", "scheduler")["spec"]["replicas"] == 2


def test_journal_and_engines_outlive_the_release() -> None:
    kept = {
        (thing["kind"], thing["metadata"]["name"])
        for thing in rendered()
        if thing["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }

    assert kept == {
        ("PersistentVolumeClaim", "executor"),
        *(("Namespace", f"gpusteward-{name}") for name in ("cluster", "engines", "agents")),
    }


def environment_of(name: str, example: str | None = None) -> dict[str, str]:
    container = container_of(name, example)
    maps = {
        each["metadata"]["name"]: each["data"]
        for each in rendered(example)
        if each["kind"] == "ConfigMap"
    }
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= maps[source["configMapRef"]["name"]]
    given = {each["name"]: each.get("value") or referred(each) for each in container["env"]}
    return found | given


def referred(variable: dict[str, Any]) -> str:
    """Of a secret, which only databases' addresses come from, or of the pod's node."""
    is_secret = "secretKeyRef" in variable["valueFrom"]
    address = "postgresql://db.example.org/steward?sslmode=verify-full"
    return address if is_secret else "node-1.example.org"


@pytest.mark.parametrize("example", [None, "everything"])
def test_every_pod_speaks_tls_alone(example: str | None) -> None:
    gateway, agent = environment_of("gateway", example), environment_of("telemetry", example)
    objects = rendered(example)

    for name in PODS:
        assert environment_of(name, example)["GPUSTEWARD_NATS_URL"].startswith("tls://")
        assert "GPUSTEWARD_INSECURE_PLAINTEXT" not in environment_of(name, example)
    assert gateway["GPUSTEWARD_GATEWAY_TLS_CERT"] == "/run/tls/tls.crt"
    assert agent["GPUSTEWARD_TELEMETRY_METRICS_CERT"] == "/run/tls/tls.crt"
    container = container_of("gateway", example)
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    (port,) = named(objects, "Service", "gateway")["spec"]["ports"]
    assert port["appProtocol"] == "https"


def test_monitors_verify_what_they_read() -> None:
    objects = rendered("ingress")
    (of_gateway,) = named(objects, "ServiceMonitor", "gateway")["spec"]["endpoints"]
    (of_agents,) = named(objects, "PodMonitor", "telemetry")["spec"]["podMetricsEndpoints"]

    for endpoint, host, name in (
        (of_gateway, "gateway.gpusteward.svc", "gateway-tls"),
        (of_agents, "telemetry.gpusteward-agents.svc", "telemetry-tls"),
    ):
        authority = {"secret": {"name": name, "key": "ca.crt"}}
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"] == {"ca": authority, "serverName": host}
        data = named(objects, "Secret", name)["data"]
        pem = {each: b64decode(data[each]) for each in data}
        leaf = x509.load_pem_x509_certificate(pem["tls.crt"])
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(pem["ca.crt"]))
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert host in names.get_values_for_type(x509.DNSName)


def test_plain_text_takes_the_value_that_names_the_risk() -> None:
    url = "nats.url=nats://nats.nats.svc:4222"
    refused = run_helm("template", CHART, "--set", url)
    objects = rendered(None, url, "insecurePlaintext=true")
    settings = named(objects, "ConfigMap", "platform")["data"]

    assert refused.returncode != 0
    assert "insecurePlaintext=true, with which everybody on the way reads" in refused.stderr
    assert settings["GPUSTEWARD_INSECURE_PLAINTEXT"] == "true"
    assert "Secret" not in kinds_of(objects)


def test_ingress_without_a_certificate_is_refused() -> None:
    values = EXAMPLES["ingress"]
    ended = run_helm("template", CHART, "--values", values, "--set", "ingress.tls.secretName=")

    assert ended.returncode != 0
    assert "browsers would be served without TLS" in ended.stderr


def test_cert_manager_makes_what_has_no_secret() -> None:
    issuer = "tls.certManager.issuerName=internal"
    objects = rendered(None, issuer)

    assert "Secret" not in kinds_of(objects)
    for name in ("gateway-tls", "telemetry-tls"):
        spec = named(objects, "Certificate", name)["spec"]
        assert spec["secretName"] == name
        assert spec["issuerRef"] == {"name": "internal", "kind": "Issuer"}


def test_the_settings_are_ones_that_there_are() -> None:
    agent = load_settings(TelemetrySettings, "telemetry", environment_of("telemetry"))
    scheduler = load_settings(SchedulerSettings, "scheduler", environment_of("scheduler"))
    watcher = load_settings(ClusterSettings, "cluster", environment_of("cluster"))
    executor = load_settings(ExecutorSettings, "executor", environment_of("executor"))
    gateway = load_settings(GatewaySettings, "gateway", environment_of("gateway", "everything"))

    assert (watcher.node_id, executor.node_id) == ("cluster", "cluster")
    assert (executor.cluster, executor.cluster_namespace) == (True, "gpusteward-engines")
    assert agent.labels == "gpusteward.io/cluster=cluster"
    assert agent.node_id.startswith("node-1-example-org-")
    assert agent.kubernetes_node == "node-1.example.org"
    assert scheduler.admits("cluster")
    assert not scheduler.admits("node-1")
    assert gateway.traces_endpoint == "http://collector.tracing.svc:4318"
    assert gateway.tokens_file == "/run/tokens/tokens.json"
