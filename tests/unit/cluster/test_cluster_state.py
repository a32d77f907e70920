"""What nodes have and pods hold, against an independent count over raw objects."""

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.cluster.nodes import (
    ClusterGpuReading,
    ClusterNode,
    GpuSharing,
    GpuSupply,
    NodeTaint,
    ReadingsSource,
)
from services.cluster.domain.cluster_state import ClusterState, GpuNames
from shared.accelerator_rules.quantities import mebibytes, whole
from shared.ids import node_token
from shared.kubernetes.objects.devices import ResourceClaim, ResourceSlice
from shared.kubernetes.objects.nodes import Node
from shared.kubernetes.objects.pods import Pod
from shared.labels import RESERVATION_LABEL, parse_id

GPU = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Object = dict[str, Any]


def make_state(*resources: str) -> ClusterState:
    return ClusterState(
        GpuNames(resources or (GPU,), frozenset({DRIVER})),
        lambda labels: parse_id(labels.get(RESERVATION_LABEL)),
        node_token,
    )


def node(name: str, gpus: str | None = "8", **more: Any) -> Object:
    quantities = {"cpu": "64"} | ({GPU: gpus} if gpus is not None else {})
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "capacity": quantities,
            "allocatable": quantities,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    } | more


def pod(name: str, on: str, *gpus: int, init: tuple[Object, ...] = (), **more: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {}},
        "spec": {
            "nodeName": on,
            "containers": [container(each) for each in gpus],
            "initContainers": list(init),
        },
        "status": {"phase": "Running"},
    } | more


def container(gpus: int | str, *, sidecar: bool = False) -> Object:
    limits = {GPU: str(gpus)} if gpus else {}
    found: Object = {"name": "c", "resources": {"limits": limits, "requests": limits}}
    return found | ({"restartPolicy": "Always"} if sidecar else {})


def slice_(name: str, on: str | None, /, *devices: str, **pool: Any) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": on,
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1} | pool,
            "devices": [{"name": each} for each in devices],
        },
    }


def claim(name: str, *devices: str, pool: str = "pool", **status: Any) -> Object:
    results = [{"driver": DRIVER, "pool": pool, "device": each} for each in devices]
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "status": {"allocation": {"devices": {"results": results}}} | status,
    }


def apply(state: ClusterState, *objects: Object) -> None:
    for each in objects:
        if "driver" in each.get("spec", {}):
            state.apply_slice(msgspec.convert(each, ResourceSlice))
        elif "containers" in each.get("spec", {}):
            state.apply_pod(msgspec.convert(each, Pod))
        elif "allocation" in each.get("status", {}):
            state.apply_claim(msgspec.convert(each, ResourceClaim))
        else:
            state.apply_node(msgspec.convert(each, Node))


def view(state: ClusterState) -> dict[str, ClusterNode]:
    state.take_changes()
    return dict(state.nodes)


def figures(found: ClusterNode, resource: str = GPU) -> tuple[int, int, int]:
    (gpus,) = [each for each in found.gpus if each.resource == resource]
    return gpus.capacity, gpus.allocatable, gpus.requested


def test_gpu_cores_count_as_gpus_shares_as_whole() -> None:
    core = "tencent.com/vcuda-core"
    state, reservation = make_state(core), uuid4()
    ours = pod("ours", "a", 1)
    ours["metadata"]["labels"] = {RESERVATION_LABEL: str(reservation)}
    ours["spec"]["containers"][0]["resources"]["limits"] = {core: "200"}
    part = pod("part", "a", 1)
    part["spec"]["containers"][0]["resources"]["limits"] = {core: "30"}
    for each in (ours, part):
        each["spec"]["containers"][0]["resources"].pop("requests")
    quantities = {core: "800"}

    apply(state, node("a", status={"capacity": quantities, "allocatable": quantities}), ours, part)

    found = view(state)["a"]
    assert figures(found, core) == (8, 8, 3)
    assert found.gpus[0].by_reservation == {reservation: 2}


def test_node_capacity_and_pod_requests_are_counted() -> None:
    state, reservation = make_state(), uuid4()
    ours = pod("ours", "a", 2)
    ours["metadata"]["labels"] = {RESERVATION_LABEL: str(reservation)}

    apply(state, node("a"), pod("foreign", "a", 1, 2), ours)

    found = view(state)["a"]
    assert figures(found) == (8, 8, 5)
    assert found.gpus[0].by_reservation == {reservation: 2}
    assert found.gpus[0].supply is GpuSupply.DEVICE_PLUGIN


@pytest.mark.parametrize(
    ("init", "containers", "expected"),
    [
        ((), (1, 2), 3),
        ((container(4),), (1, 2), 4),
        ((container(2), container(3)), (1,), 3),
        ((container(1, sidecar=True),), (1, 2), 4),
        ((container(1, sidecar=True), container(4)), (2,), 5),
        ((container(4), container(1, sidecar=True)), (2,), 4),
        ((container(2, sidecar=True), container(2, sidecar=True)), (0,), 4),
    ],
)
def test_a_pod_holds_what_it_needs_at_once(
    init: tuple[Object, ...], containers: tuple[int, ...], expected: int
) -> None:
    state = make_state()

    apply(state, node("a"), pod("p", "a", *containers, init=init))

    assert figures(view(state)["a"]) == (8, 8, expected)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_or_unbound_pod_holds_nothing(phase: str) -> None:
    state = make_state()

    apply(state, node("a"), pod("p", "a", 2), pod("waiting", "", 4))
    assert figures(view(state)["a"]) == (8, 8, 2)

    apply(state, pod("p", "a", 2, status={"phase": phase}))
    assert figures(view(state)["a"]) == (8, 8, 0)


def test_resources_are_known_by_their_exact_names() -> None:
    state = make_state(GPU, "nvidia.com/mig-*")
    quantities = {GPU: "2", "nvidia.com/gpu.shared": "8", "nvidia.com/mig-1g.10gb": "7"}

    apply(state, node("a", status={"capacity": quantities, "allocatable": quantities}))

    found = view(state)["a"]
    assert [each.resource for each in found.gpus] == [GPU, "nvidia.com/mig-1g.10gb"]
    assert figures(found) == (2, 2, 0)


def test_a_node_without_gpus_is_none_of_the_view() -> None:
    state = make_state()

    apply(state, node("a", None), node("b", "0"))

    assert view(state) == {}


def test_node_without_gpus_shows_held_ones() -> None:
    state = make_state()

    apply(state, node("a", "0"), pod("p", "a", 3))

    assert figures(view(state)["a"]) == (0, 0, 3)


def test_a_nodes_state_and_labels_are_shown() -> None:
    state = make_state()
    given = node(
        "a.example", spec={"unschedulable": True, "taints": [{"key": "k", "effect": "NoExecute"}]}
    )
    given["metadata"]["labels"] |= {
        "nvidia.com/gpu.product": "H100",
        "nvidia.com/gpu.memory": "81559",
    }

    apply(state, given)

    found = view(state)["a.example"]
    assert (found.is_ready, found.is_cordoned, found.hostname) == (True, True, "a.example")
    assert (found.gpu_model, found.gpu_memory_mb) == ("H100", 81559)
    assert found.taints == (NodeTaint(key="k", effect="NoExecute"),)
    assert found.node_id == node_token("a.example") != "a.example"


def test_only_what_differs_is_reported() -> None:
    state = make_state()
    apply(state, node("a"), node("b"))
    assert [each.name for each in state.take_changes()[0]] == ["a", "b"]

    apply(state, node("a"), pod("p", "b", 1))

    assert [each.name for each in state.take_changes()[0]] == ["b"]
    assert state.take_changes() == ([], [])
    state.remove_node("a")
    assert state.take_changes() == ([], ["a"])


def test_readings_go_with_their_node() -> None:
    state, at = make_state(), datetime(2026, 1, 1, tzinfo=UTC)
    reading = (ClusterGpuReading(index=0, utilization_percent=5),)
    apply(state, node("a"))

    state.set_readings("a", reading, ReadingsSource.DCGM, at)
    state.set_readings("unknown", reading, ReadingsSource.DCGM, at)

    assert view(state)["a"].readings == reading
    assert view(state)["a"].readings_at == at
    state.remove_node("a")
    apply(state, node("a"))
    assert view(state)["a"].readings == ()


class TestDevices:
    def test_complete_pool_counts_and_claims_hold(self) -> None:
        state, reservation = make_state(), uuid4()
        ours = claim("ours", "gpu-1", "gpu-2")
        ours["metadata"]["labels"] = {RESERVATION_LABEL: str(reservation)}

        apply(state, node("a", None), slice_("s", "a", "gpu-0", "gpu-1", "gpu-2"), ours)

        (gpus,) = view(state)["a"].gpus
        assert (gpus.supply, gpus.resource) == (GpuSupply.DRA, DRIVER)
        assert (gpus.capacity, gpus.allocatable, gpus.requested) == (3, 3, 2)
        assert gpus.by_reservation == {reservation: 2}

    def test_unlabelled_claim_belongs_to_its_pod(self) -> None:
        state, reservation = make_state(), uuid4()
        user = pod("p", "a", 0)
        user["metadata"]["labels"] = {RESERVATION_LABEL: str(reservation)}
        used = claim("c", "gpu-0", reservedFor=[{"resource": "pods", "uid": "uid-p"}])

        apply(state, node("a", None), slice_("s", "a", "gpu-0"), used)
        assert view(state)["a"].gpus[0].by_reservation == {}

        apply(state, user)
        assert view(state)["a"].gpus[0].by_reservation == {reservation: 1}

        state.remove_pod(("ns", "p"))
        assert view(state)["a"].gpus[0].by_reservation == {}

    def test_removed_pod_frees_its_claims_reservation(self) -> None:
        state, reservation = make_state(), uuid4()
        user = pod("p", "a", 0)
        user["metadata"]["labels"] = {RESERVATION_LABEL: str(reservation)}
        reserved = [{"resource": "pods", "uid": "uid-p"}]
        for number in (0, 1):
            apply(state, claim(f"c{number}", f"gpu-{number}", reservedFor=reserved))
        apply(state, node("a", None), slice_("s", "a", "gpu-0", "gpu-1"), user)
        assert view(state)["a"].gpus[0].by_reservation == {reservation: 2}

        state.remove_claim(("ns", "c0"))
        assert view(state)["a"].gpus[0].by_reservation == {reservation: 1}

        state.remove_pod(("ns", "p"))
        assert view(state)["a"].gpus[0].by_reservation == {}

    def test_pool_with_missing_slice_is_not_counted(self) -> None:
        state = make_state()
        first = slice_("s1", "a", "gpu-0", resourceSliceCount=2)
        second = slice_("s2", "a", "gpu-1", resourceSliceCount=2)

        apply(state, node("a", None), first)
        assert view(state) == {}
        assert "1 of 2 slices of generation 1" in state.pools.incomplete()[0]

        apply(state, second)
        assert figures(view(state)["a"], DRIVER) == (2, 2, 0)
        assert state.pools.incomplete() == []

        apply(state, slice_("s1", "a", "gpu-0", resourceSliceCount=2, generation=2))
        assert view(state) == {}

        state.remove_slice("s1")
        assert view(state) == {}

    def test_older_slices_do_not_count(self) -> None:
        state = make_state()

        apply(
            state,
            node("a", None),
            slice_("old", "a", "gpu-0", "gpu-1"),
            slice_("new", "a", "gpu-0", generation=2),
        )

        assert figures(view(state)["a"], DRIVER) == (1, 1, 0)

    def test_admin_access_and_other_drivers_hold_nothing(self) -> None:
        state = make_state()
        watching, other = claim("w", "gpu-0"), claim("o", "gpu-0")
        watching["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
        other["status"]["allocation"]["devices"]["results"][0]["driver"] = "net.example"

        apply(state, node("a", None), slice_("s", "a", "gpu-0"), watching, other)

        assert figures(view(state)["a"], DRIVER) == (1, 1, 0)

    def test_partly_allocated_gpu_is_not_free(self) -> None:
        state = make_state()
        given = slice_("s", "a")
        given["spec"]["sharedCounters"] = [
            {"name": f"set-{i}", "counters": slices_of(7)} for i in (0, 1)
        ]
        given["spec"]["devices"] = [
            {
                "name": f"gpu-{i}",
                "attributes": {"type": {"string": "gpu"}},
                "consumesCounters": drawn(i, 7),
            }
            for i in (0, 1)
        ] + [
            {
                "name": "mig-0",
                "attributes": {"type": {"string": "mig"}},
                "consumesCounters": drawn(0, 1),
            }
        ]

        apply(state, node("a", None), given)
        assert figures(view(state)["a"], DRIVER) == (2, 2, 0)

        apply(state, claim("c", "mig-0"))
        assert figures(view(state)["a"], DRIVER) == (2, 2, 1)

    def test_gpu_without_enough_counters_is_not_free(self) -> None:
        state = make_state()
        given = slice_("s", "a", "gpu-0", "gpu-1", "gpu-2", "gpu-3")
        given["spec"]["sharedCounters"] = [{"name": "set-0", "counters": slices_of(7)}]
        for each in given["spec"]["devices"]:
            each["consumesCounters"] = drawn(0, 3)
        given["spec"]["devices"][3]["consumesCounters"] = drawn(1, 1)  # which nobody tells

        apply(state, node("a", None), given)

        assert figures(view(state)["a"], DRIVER) == (4, 4, 2)

    def test_a_tainted_gpu_is_not_allocatable(self) -> None:
        state = make_state()
        given = slice_("s", "a", "gpu-0", "gpu-1")
        given["spec"]["devices"][0]["taints"] = [{"key": "k", "effect": "NoSchedule"}]

        apply(state, node("a", None), given)

        assert figures(view(state)["a"], DRIVER) == (2, 1, 0)

    def test_pool_overrides_stale_model_labels(self) -> None:
        state = make_state()
        old, given = node("a", None), slice_("s", "a", "gpu-0")
        old["metadata"]["labels"]["nvidia.com/gpu.product"] = "A100"
        given["spec"]["devices"][0] |= {
            "attributes": {"productName": {"string": "NVIDIA H100"}},
            "capacity": {"memory": {"value": "81559Mi"}},
        }

        apply(state, old, given)

        found = view(state)["a"]
        assert (found.gpu_model, found.gpu_memory_mb) == ("NVIDIA H100", 81559)

    def test_what_is_on_no_single_node_is_not_counted(self) -> None:
        state = make_state()

        apply(state, node("a", None), slice_("s", None, "gpu-0"))

        assert view(state) == {}

    def test_resource_backed_by_claim_counts_once(self) -> None:
        state = make_state()
        status = {
            "phase": "Running",
            "extendedResourceClaimStatus": {"requestMappings": [{"resourceName": GPU}]},
        }

        apply(
            state,
            node("a", None),
            slice_("s", "a", "gpu-0"),
            pod("p", "a", 1, status=status),
            claim("c", "gpu-0"),
        )

        assert [each.resource for each in view(state)["a"].gpus] == [DRIVER]


def drawn(number: int, slices: int) -> list[Object]:
    return [{"counterSet": f"set-{number}", "counters": slices_of(slices)}]


def slices_of(number: int) -> Object:
    return {"slices": {"value": str(number)}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", 8),
        ("1k", 1000),
        ("1500m", 2),
        ("1e3", 1000),
        ("2Ki", 2048),
        ("-1", 0),
        ("x", 0),
        ("", 0),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, expected: int) -> None:
    assert whole(text) == expected


def test_memory_is_in_mebibytes() -> None:
    assert mebibytes("80Gi") == 81920
    assert mebibytes("85520809984") == 81559


NODES = ("a", "b", "c")


@given(st.integers(0, 2**32))
@example(1340)  # two claims share a device
def test_any_event_order_gives_a_full_count(seed: int) -> None:
    rng = random.Random(seed)
    state = make_state()
    known: dict[tuple[str, str], Object] = {}
    reservations = [uuid4() for _ in range(3)]

    for _ in range(rng.randrange(5, 80)):
        kind = rng.choice(["node", "pod", "pod", "slice", "claim"])
        name = f"{kind}-{rng.randrange(5)}" if kind != "node" else rng.choice(NODES)
        if (kind, name) in known and rng.random() < 0.3:
            del known[kind, name]
            remove(state, kind, name)
            continue
        known[kind, name] = made = make(rng, kind, name, reservations)
        apply(state, made)
        if rng.random() < 0.2:
            state.take_changes()
        if rng.random() < 0.1:
            list_again(state, known)

    assert {name: totals(each) for name, each in view(state).items()} == counted(known)
    fresh = make_state()
    list_again(fresh, known)
    assert view(fresh) == view(state)


def make(rng: random.Random, kind: str, name: str, reservations: list[UUID]) -> Object:
    labels = {RESERVATION_LABEL: str(rng.choice(reservations))} if rng.random() < 0.5 else {}
    on = rng.choice((*NODES, "gone"))
    match kind:
        case "node":
            return node(name, str(rng.randrange(9)) if rng.random() < 0.8 else None)
        case "pod":
            made = pod(
                name, on if rng.random() < 0.9 else "", *(rng.randrange(3) for _ in range(2))
            )
            made["metadata"] |= {"labels": labels, "uid": f"uid-{name}-{rng.randrange(2)}"}
            made["status"]["phase"] = rng.choice(["Running", "Running", "Pending", "Succeeded"])
        case "slice":
            number = rng.randrange(2)
            made = slice_(
                name,
                on,
                *(f"{name}-{i}" for i in range(rng.randrange(4))),
                name=f"pool-{number}",
                generation=rng.randrange(1, 3),
                resourceSliceCount=rng.randrange(1, 3),
            )
        case _:
            devices = {f"slice-{rng.randrange(5)}-{rng.randrange(4)}" for _ in range(2)}
            made = claim(name, *sorted(devices), pool=f"pool-{rng.randrange(2)}")
            made["metadata"]["labels"] = labels
    return made


def remove(state: ClusterState, kind: str, name: str) -> None:
    match kind:
        case "node":
            state.remove_node(name)
        case "pod":
            state.remove_pod(("ns", name))
        case "slice":
            state.remove_slice(name)
        case _:
            state.remove_claim(("ns", name))


def list_again(state: ClusterState, known: dict[tuple[str, str], Object]) -> None:
    def of(kind: str, type_: Any) -> list[Any]:
        return [msgspec.convert(each, type_) for (k, _), each in known.items() if k == kind]

    state.replace_claims(of("claim", ResourceClaim))
    state.replace_pods(of("pod", Pod), NOW)
    state.replace_nodes(of("node", Node))
    state.replace_slices(of("slice", ResourceSlice))


def totals(found: ClusterNode) -> dict[str, tuple[int, int, int]]:
    return {each.resource: (each.capacity, each.allocatable, each.requested) for each in found.gpus}


def counted(known: dict[tuple[str, str], Object]) -> dict[str, dict[str, tuple[int, int, int]]]:
    """By going over everything once, without anything that the state remembers."""
    requested: Counter[str] = Counter()
    for (kind, _), each in known.items():
        if kind == "pod" and each["status"]["phase"] in {"Running", "Pending"}:
            limits = [c["resources"]["limits"].get(GPU, "0") for c in each["spec"]["containers"]]
            requested[each["spec"]["nodeName"]] += sum(int(limit) for limit in limits)
    given = {
        (result["pool"], result["device"])
        for (kind, _), each in known.items()
        if kind == "claim"
        for result in each["status"]["allocation"]["devices"]["results"]
    }
    slices = [each["spec"] for (kind, _), each in known.items() if kind == "slice"]
    found: dict[str, dict[str, tuple[int, int, int]]] = {}
    for (kind, name), each in known.items():
        if kind != "node":
            continue
        gpus = int(each["status"]["capacity"].get(GPU, "0"))
        if gpus or requested[name]:
            found[name] = {GPU: (gpus, gpus, requested[name])}
        for devices in [
            [
                (s["pool"]["name"], d["name"])
                for s in newest
                for d in s["devices"]
                if s["nodeName"] == name
            ]
            for newest in whole_pools(slices)
        ]:
            if devices:
                has, _, holds = found.setdefault(name, {}).get(DRIVER, (0, 0, 0))
                total = has + len(devices)
                found[name][DRIVER] = (total, total, holds + len(given.intersection(devices)))
        of_node = found.get(name, {})
        if of_node.keys() == {GPU, DRIVER} and gpus:  # both give out the same GPUs: neither may
            found[name] = {by: (has, 0, holds) for by, (has, _, holds) in of_node.items()}
    return found


def whole_pools(slices: list[Object]) -> list[list[Object]]:
    pools = []
    for name in {each["pool"]["name"] for each in slices}:
        of_pool = [each for each in slices if each["pool"]["name"] == name]
        generation = max(each["pool"]["generation"] for each in of_pool)
        newest = [each for each in of_pool if each["pool"]["generation"] == generation]
        if all(each["pool"]["resourceSliceCount"] == len(newest) for each in newest):
            pools.append(newest)
    return pools


@pytest.mark.parametrize(
    ("labels", "serves"),
    [
        ({"cuda-major-version": "12", "cuda-minor-version": "4"}, "12.4"),
        ({"cuda-major-version": "12"}, None),
        ({"cuda-major-version": "12", "cuda-minor-version": "x"}, None),
        ({}, None),
    ],
)
def test_node_labels_give_cuda_of_driver(labels: dict[str, str], serves: str | None) -> None:
    state = make_state()
    state.apply_node(msgspec.convert(node("a", metadata={"name": "a", "labels": labels}), Node))

    ((seen,), _) = state.take_changes()

    assert seen.cuda_driver_version == serves


def sized(cpu: str, memory: str, storage: str = "", *, sidecar: bool = False) -> Object:
    named = {"cpu": cpu, "memory": memory, "ephemeral-storage": storage}
    requests = {name: amount for name, amount in named.items() if amount}
    found: Object = {"name": "c", "resources": {"requests": requests}}
    return found | ({"restartPolicy": "Always"} if sidecar else {})


def host(found: ClusterNode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """CPUs in thousandths, memory and storage in MiB, pods: what there is, and what is asked."""
    has, asked = found.allocatable_host, found.requested_host
    assert has is not None
    return (
        (has.cpu_milli, has.memory_mb, has.ephemeral_storage_mb, has.pods),
        (asked.cpu_milli, asked.memory_mb, asked.ephemeral_storage_mb, asked.pods),
    )


def test_pods_without_gpus_hold_host_resources() -> None:
    state = make_state()
    big = {GPU: "8", "cpu": "63900m", "memory": "515Gi", "ephemeral-storage": "1Ti", "pods": "110"}
    plain = pod("plain", "a")
    plain["spec"]["containers"] = [sized("500m", "1Gi"), sized("0.25", "100M", "10Gi")]
    plain["spec"]["overhead"] = {"cpu": "50m", "memory": "1"}
    waits = pod("waits", "")
    done = pod("done", "a", status={"phase": "Succeeded"})
    done["spec"]["containers"] = waits["spec"]["containers"] = [sized("32", "100Gi")]

    apply(state, node("a", status={"capacity": big, "allocatable": big}), plain, waits, done)

    assert host(view(state)["a"]) == (
        (63_900, 515 * 1024, 1 << 20, 110),
        (800, 1024 + 96 + 1, 10 * 1024, 1),
    )
    state.remove_pod(("ns", "plain"))
    assert host(view(state)["a"])[1] == (0, 0, 0, 0)


def test_host_request_is_maximum_over_pod_life() -> None:
    state = make_state()
    parted = pod("parted", "a", init=(sized("1", "1Gi", sidecar=True), sized("8", "512Mi")))
    parted["spec"]["containers"] = [sized("2", "4Gi")]
    whole_pod = pod("whole", "a")
    whole_pod["spec"] |= {
        "containers": [sized("2", "4Gi")],
        "resources": {"limits": {"cpu": "16"}, "requests": {"memory": "1Gi"}},
    }
    apply(state, node("a"), parted)
    assert host(view(state)["a"])[1] == (9_000, 5 * 1024, 0, 1)

    apply(state, whole_pod)

    assert host(view(state)["a"])[1] == (25_000, 6 * 1024, 0, 2)


def test_node_labels_are_published_for_preferences() -> None:
    state = make_state()
    labels = {"kubernetes.io/hostname": "a", "zone": "east"}

    apply(state, node("a", metadata={"name": "a", "labels": labels}))

    assert view(state)["a"].labels == labels


CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"


def limited(**limits: str) -> Object:
    named = {"core": CORE, "memory": MEMORY, "gpu": GPU, "shared": "nvidia.com/gpu.shared"}
    return {"name": "c", "resources": {"limits": {named[k]: v for k, v in limits.items()}}}


def test_gpu_shares_are_counted_in_units_beside_gpus() -> None:
    state = make_state(CORE)
    quantities = {CORE: "200", MEMORY: "120"}
    mine = UUID(int=7)
    part, other = pod("part", "a"), pod("other", "a")
    part["spec"]["containers"] = [limited(core="30", memory="16")]
    part["metadata"]["labels"] = {RESERVATION_LABEL: str(mine)}
    other["spec"]["containers"] = [limited(core="100")]

    apply(state, node("a", status={"capacity": quantities, "allocatable": quantities}), part, other)

    (gpus,) = view(state)["a"].gpus
    assert (gpus.capacity, gpus.allocatable, gpus.requested) == (2, 2, 2)
    assert (gpus.units_per_gpu, gpus.allocatable_units, gpus.requested_units) == (100, 200, 130)
    assert (gpus.allocatable_memory_units, gpus.requested_memory_units) == (120, 16)
    assert gpus.whole_requested == 1
    assert (gpus.by_reservation, gpus.units_by_reservation) == ({mine: 1}, {mine: 30})


@pytest.mark.parametrize(
    ("labels", "per_gpu", "sharing"),
    [
        pytest.param({}, 1, None, id="whole GPUs"),
        pytest.param({"sharing-strategy": "none", "count": "8"}, 1, None, id="not shared"),
        pytest.param(
            {"sharing-strategy": "time-slicing", "count": "2", "replicas": "9"},
            4,
            GpuSharing.TIME_SLICING,
            id="slices by the number of GPUs",
        ),
        pytest.param(
            {"sharing-strategy": "mps", "replicas": "4"}, 4, GpuSharing.MPS, id="by replicas"
        ),
    ],
)
def test_plugin_shared_gpus_are_counted_as_slices(
    labels: dict[str, str], per_gpu: int, sharing: GpuSharing | None
) -> None:
    state = make_state()
    named = {f"nvidia.com/gpu.{key}": value for key, value in labels.items()}
    apply(state, node("a", metadata={"name": "a", "labels": named}), pod("p", "a", 1, 2))

    (gpus,) = view(state)["a"].gpus

    assert (gpus.units_per_gpu, gpus.sharing) == (per_gpu, sharing)
    assert gpus.allocatable == 8 // per_gpu
    assert gpus.requested_units == (3 if sharing else 0)
