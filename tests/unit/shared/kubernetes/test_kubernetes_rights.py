"""Every call of a cluster's API in the code, and the right that it takes."""

import ast
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final

from services.cli.doctor import cluster_report
from services.executor.runtimes.kubernetes.cluster import MAIN_KIND, OTHER_KINDS
from services.executor.runtimes.kubernetes.kinds import RESOURCE_OF_KIND
from services.executor.runtimes.kubernetes.preflight import CLUSTER_RIGHTS, RIGHTS
from shared.kubernetes import requirements
from shared.kubernetes.names import Resource
from shared.kubernetes.requirements import Right
from tests.support.paths import ROOT

FOLDERS: Final = (
    "services/cli",
    "services/cluster",
    "services/executor",
    "services/orchestrator",
    "services/scheduler",
    "shared/kubernetes/pod_exec.py",
)
CALLERS: Final = frozenset({"client", "cluster"})
METHODS: Final = frozenset(
    {"apply", "call", "create", "delete", "find", "find_of_kind", "get", "list_objects", "may"}
    | {"read", "stream", "version", "websocket"}
)
FUNCTIONS: Final = frozenset({"_read", "list_objects", "run_in_pod", "watch"})


def names(*resources: Resource) -> tuple[str, ...]:
    return tuple(Right(each, ()).place for each in resources)


OME: Final = ("inferenceservices.ome.io", "servingruntimes.ome.io")
MAIN: Final = names(*MAIN_KIND.values())
OTHERS: Final = names(*(each for kinds in OTHER_KINDS.values() for each in kinds))
MADE: Final = names(*RESOURCE_OF_KIND.values())
DRA: Final = ("resourceslices", "deviceclasses", "resourceclaims")
DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
SLICES: Final = "resourceslices.resource.k8s.io"


def of(verbs: str, *places: str) -> set[tuple[str, str]]:
    return {(place, verb) for place in places for verb in verbs.split()}


# By file, then by the call as it is written, what it takes; everybody may ask for the version, for
# kinds, and what it may itself.
NONE: Final[set[tuple[str, str]]] = set()
CALLS: Final[Mapping[str, Mapping[str, set[tuple[str, str]]]]] = {
    "services/executor/runtimes/kubernetes/cluster.py": {
        # Of `read`, `list_objects` and `find`, whose callers are here, and of `apply`.
        "client.get(resource, name)": NONE,
        "client.call('GET', path)": NONE,
        "client.apply(resource, {**made, 'metadata': metadata})": of("get create patch", *MADE),
        "client.create(SECRETS, secret)": of("create", "secrets"),
    },
    "services/executor/runtimes/kubernetes/compile_cache.py": {
        "cluster.read(CLAIMS, volume.claim)": of("get", "persistentvolumeclaims"),
        "cluster.read(NODES, name)": of("get", "nodes"),
    },
    "services/executor/runtimes/kubernetes/runtime.py": {
        "cluster.find_of_kind(self.kind, finding)": of("list", *MAIN, *OTHERS, "pods"),
        "cluster.find_of_kind(self.kind, own_labels(self._settings, self.kind))": of(
            "list", *MAIN, *OTHERS, "pods"
        ),
        "cluster.apply(made, finding)": of("get create patch", *MADE),
    },
    "services/executor/runtimes/kubernetes/references.py": {
        "cluster.read(BASE_MODELS, name)": of("get", "basemodels.ome.io"),
        "cluster.read(CLUSTER_MODELS, name)": of("get", "clusterbasemodels.ome.io"),
        "cluster.read(CLUSTER_RUNTIMES, name)": of("get", "clusterservingruntimes.ome.io"),
        "cluster.read(CLAIMS, name)": of("get", "persistentvolumeclaims"),
    },
    "services/executor/runtimes/kubernetes/preflight.py": {
        "client.version()": NONE,
        "client.call('GET', f'/apis/{OME_VERSION}')": NONE,
        "client.call('GET', DEFINITIONS.path(None, name))": of("get", DEFINITIONS),
        "client.may(verb, right.resource)": NONE,
        "client.call('GET', CLUSTER_RUNTIMES.path())": of("list", "clusterservingruntimes.ome.io"),
        "list_objects(self.cluster.client, CONFIG_MAPS)": of("list", "configmaps"),
    },
    "services/executor/runtimes/kubernetes/leader_worker.py": {
        "client.call('GET', f'/apis/{LEADER_WORKER_VERSION}')": NONE,
    },
    "services/executor/runtimes/kubernetes/deployment.py": {
        "cluster.read(SERVICES, self.name)": of("get", "services"),
    },
    "services/executor/runtimes/kubernetes/watched.py": {
        "watch(self.client, self.resource)": of(
            "list watch", *MAIN, "pods", "workloads.kueue.x-k8s.io"
        ),
    },
    "services/executor/runtimes/kubernetes/ending.py": {
        "cluster.find((resource,), self.labels)": of("list", *MAIN, "pods"),
        "cluster.find(OTHER_KINDS[self.kind], self.labels)": of("list", *OTHERS),
        "client.delete(target.resource, metadata.name)": of("delete", *MAIN, *OTHERS, "pods"),
        "cluster.list_objects(PODS, ObjectList[PodDetails])": of("list", "pods"),
        "cluster.read(NODES, node)": of("get", "nodes"),
        "client.delete(PODS, pod.metadata.name)": of("delete", "pods"),
    },
    "services/executor/runtimes/kubernetes/logs.py": {
        "client.stream(path)": of("get", "pods/log"),
        "client.call('GET', path)": of("get", "pods/log"),
    },
    "services/cluster/watching.py": {
        "watch(self._client, source.resource)": of(
            "list watch",
            "nodes",
            "pods",
            "configmaps",
            *(f"{each}.resource.k8s.io" for each in DRA),
        ),
        "client.version()": NONE,
    },
    "services/cluster/readings/reader.py": {
        "run_in_pod(self._client, pod.namespace)": of("create get", "pods/exec"),
        "client.call('GET', path)": of("get", "pods/proxy"),
    },
    "shared/kubernetes/pod_exec.py": {"client.websocket(path)": of("create get", "pods/exec")},
    # By who defines devices, and not by this platform.
    "services/cli/commands/gpus/devices.py": {
        "client.apply(CONFIG_MAPS, _own(config_map))": NONE,
        "list_objects(client, CONFIG_MAPS)": NONE,
    },
    # By who installs device plugins.
    "services/cli/commands/gpus/check_cluster.py": {
        "client.version()": NONE,
        **{
            f"list_objects(client, {kind})": NONE
            for kind in ("NODES", "DAEMON_SETS", "SERVICES", "PODS", "ENDPOINT_SLICES")
        },
    },
    "services/cli/doctor/kubernetes.py": {"cluster.get()": NONE},  # what the report below says
    "services/cli/doctor/cluster_report.py": {
        "client.version()": NONE,
        "_read(client, '/api/v1/nodes')": of("list", "nodes"),
        "_read(client, '/apis/resource.k8s.io/v1/resourceslices')": of("list", SLICES),
        "_read(client, f\"/apis/{OME_VERSION.partition('/')[0]}\")": NONE,
        "_read(client, f\"/apis/{KUEUE_VERSION.partition('/')[0]}\")": NONE,
        "client.call('GET', path)": of("get", DEFINITIONS),
        "client.may(verb, right.resource)": NONE,
    },
}


def calls_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        arguments = ", ".join(ast.unparse(each) for each in node.args[:2])
        match node.func:
            case ast.Name(name) if name in FUNCTIONS:
                yield f"{name}({arguments})"
            case ast.Attribute(owner, name) if name in METHODS:
                caller = ast.unparse(owner).rpartition(".")[2].lstrip("_")
                if caller in CALLERS:
                    yield f"{caller}.{name}({arguments})"


def found_calls() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for folder in FOLDERS:
        path = ROOT / folder
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            text = file.read_text()
            if "kubernetes" in text and "docker" not in file.name:
                found[str(file.relative_to(ROOT))] = set(calls_in(text))
    return {file: calls for file, calls in found.items() if calls}


def groups(module: ModuleType) -> Iterator[Right]:
    for name, group in vars(module).items():
        if name.endswith("_RIGHTS") and isinstance(group, tuple):
            yield from group


def test_every_api_call_has_a_right() -> None:
    assert found_calls() == {file: set(calls) for file, calls in CALLS.items()}


def test_preflight_checks_exactly_the_used_rights() -> None:
    taken = {right for calls in CALLS.values() for rights in calls.values() for right in rights}
    by_doctor = set(groups(cluster_report))
    by_executor = [*RIGHTS.values(), *CLUSTER_RIGHTS.values()]

    assert {(each.place, verb) for each in by_doctor for verb in each.verbs} == taken
    assert set(groups(requirements)) == by_doctor
    assert {each for group in by_executor for each in group} <= by_doctor
