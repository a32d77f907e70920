from typing import Any

import pytest

from schemas.gpus.gpu_request import ClusterRequest, GpuRequest, Placement
from schemas.task.task_file import DeploymentMode, TaskFile
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.plan import sizing
from services.orchestrator.domain.plan.sizing import (
    MAX_GROUP,
    world_size,
    world_size_given,
)
from shared.errors import RefusedError
from shared.gpu.sizing import memory_per_gpu_mb
from tests.support.worlds.orchestrator_records import make_file


def request_for(
    task: TaskFile,
    point: Point,
    node_ids: tuple[str, ...],
    mode: DeploymentMode = DeploymentMode.PROCESS,
) -> GpuRequest:
    """Return the request of a task whose memory is estimated by its model's name alone."""
    return sizing.request_for(
        task.gpus,
        point,
        node_ids,
        estimated_mb=memory_per_gpu_mb(task.model.id_or_path),
        wait_timeout_seconds=task.optimization.wait_timeout_seconds,
        mode=mode,
    )


def point(parameters: dict[str, Any], parallel: dict[str, Any] | None = None) -> Point:
    return Point(quant={}, parallel=parallel or {}, parameters=parameters)


@pytest.mark.parametrize(
    "name", ["tp", "tp-size", "tp_size", "tensor-parallel-size", "--tp-size", "TP_SIZE"]
)
def test_every_spelling_of_tp_counts(name: str) -> None:
    assert world_size(point({name: 4})) == 4


@pytest.mark.parametrize("kind", ["dp", "cp"])
@pytest.mark.parametrize("form", ["{}", "{}-size", "{}_size"])
def test_every_degree_counts_in_every_spelling(kind: str, form: str) -> None:
    assert world_size(point({form.format(kind): 3, "tp": 2, "pp-size": 2})) == 12


@pytest.mark.parametrize(
    ("parameters", "parallel", "want"),
    [
        pytest.param({}, {}, 1, id="nothing said"),
        pytest.param({"tp": 2, "pp": 3}, {}, 6, id="tp times pp"),
        pytest.param({"dp": 2, "cp": 4}, {}, 4, id="the largest of dp and cp"),
        pytest.param({}, {"tp": 2, "dp": 2, "ep": 8}, 4, id="experts need no GPU of their own"),
        pytest.param({"tp": "2"}, {}, 2, id="a number as text"),
        pytest.param({"tpsize": 4}, {}, 4, id="without a hyphen"),
        pytest.param({"tp": None}, {}, 1, id="left to the engine"),
        pytest.param({"tpx": 8}, {}, 1, id="another parameter"),
        pytest.param({"data-parallel-size": 2}, {"tp": 4}, 8, id="both blocks"),
    ],
)
def test_the_world_size_follows_from_the_degrees(
    parameters: dict[str, Any], parallel: dict[str, Any], want: int
) -> None:
    assert world_size(point(parameters, parallel)) == want
    assert world_size_given(parallel | parameters) == want


@pytest.mark.parametrize(
    ("parameters", "parallel", "want", "estimated"),
    [
        pytest.param({}, {"tp": 4, "dcp": 4}, 4, 16, id="decode context within tp"),
        pytest.param(
            {"enable-dp-attention": True, "tp": 8, "dp": 4}, {}, 8, 32, id="attention within tp"
        ),
        pytest.param({"enable_dp_attention": False, "tp": 2}, {"dp": 4}, 8, 8, id="replicas"),
    ],
)
def test_degrees_within_tp_need_no_own_gpu(
    parameters: dict[str, Any], parallel: dict[str, Any], want: int, estimated: int
) -> None:
    assert world_size(point(parameters, parallel)) == want
    assert world_size_given(parallel | parameters) == estimated, "the documented product"


def test_parallel_config_over_64_gpus_is_refused() -> None:
    assert world_size(point({}, {"tp": 8, "pp": 8})) == 64

    with pytest.raises(RefusedError, match="at most 64 GPUs") as refused:
        world_size(point({"pp": 8}, {"tp": 16}))

    assert refused.value.path == "$.parallel_config"


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "two", 5000])
def test_bad_degree_is_refused_by_path(value: object) -> None:
    with pytest.raises(RefusedError) as refused:
        world_size(point({"tp-size": value}))

    assert refused.value.path == "$.parameters.tp-size"


def test_more_gpus_than_any_group_has_are_refused() -> None:
    with pytest.raises(RefusedError, match="at most 4096 GPUs"):
        world_size(point({"tp": 4096, "pp": 2}))


@pytest.mark.parametrize(
    ("model", "want"),
    [
        ("llama-3-70b", 20_000),
        ("huggyllama/llama-65B", 20_000),
        ("llama-2-13b-chat", 12_000),
        ("Qwen2.5-7B-Instruct", 12_000),
        ("llama-3-2-1b-instruct", 8_000),
        ("smollm2-135m", 8_000),
        ("gpt-270b", 8_000),
        ("opt-6.7b", 8_000),
    ],
)
def test_memory_follows_from_the_models_name(model: str, want: int) -> None:
    assert memory_per_gpu_mb(model) == want


def test_the_gpus_block_goes_before_the_estimate() -> None:
    task = make_file(
        model={"id_or_path": "llama-3-70b"},
        gpus={
            "count": 3,
            "min_memory_mb": 0,
            "models": ["H100"],
            "priority": 5,
            "cpu_count": 2.5,
            "host_memory_mb": 64_000,
        },
        optimization={"wait_timeout_seconds": 9},
    )

    request = request_for(task, point({"tp": 8}), ("n1",))

    assert (request.gpus, request.min_memory_mb, request.priority) == (3, 0, 5)
    assert (request.gpu_models, request.node_ids) == (("H100",), ("n1",))
    assert (request.cpu_count, request.host_memory_mb) == (2.5, 64_000)
    assert request.wait_timeout_seconds == 9


@pytest.mark.parametrize(("tp", "balanced"), [(1, False), (2, True)])
def test_a_group_of_gpus_needs_balanced_memory(tp: int, balanced: bool) -> None:
    assert request_for(make_file(), point({"tp": tp}), ()).balanced_memory is balanced


def test_unlike_free_memory_may_be_requested() -> None:
    file = make_file(gpus={"count": 2, "balanced_memory": False})

    assert not request_for(file, point({}), ()).balanced_memory


def test_shares_are_requested_without_memory() -> None:
    wanted = {"shares": 0.25, "enforced_shares": True, "min_free_shares": 0.5}

    request = request_for(make_file(gpus=wanted), point({}), ())

    assert (request.shares, request.enforced_shares, request.min_free_shares) == (0.25, True, 0.5)
    assert (request.gpus, request.nodes, request.min_memory_mb) == (1, 1, None)
    assert request.unfragmented, "an engine for one GPU finds all of its shares there"


def test_task_uses_the_words_of_a_request() -> None:
    numa = {"key": "numa_node", "values": ["0"]}
    index = {"key": "gpu_index", "values": ["1", "2"]}
    zone = {"selector": {"key": "label", "label": "zone", "values": ["a"]}, "weight": 5}
    wanted = {
        "device_uuids": ["GPU-1"],
        "placement": "spread",
        "preemptible": True,
        "priority": -5,
        "require": [numa, index],
        "prefer": [zone],
        "mixed_models": True,
    }

    request = request_for(make_file(gpus=wanted), point({}), ("n1",))

    assert request.device_uuids == ("GPU-1",)
    assert (request.placement, request.preemptible) == (Placement.SPREAD, True)
    assert (request.priority, request.mixed_models) == (-5, True)
    assert [selector.key.value for selector in request.require] == ["numa_node", "gpu_index"]
    assert request.prefer[0].weight == 5


@pytest.mark.parametrize(
    ("wanted", "mode", "path"),
    [
        pytest.param({"device_uuids": ["GPU-1"]}, "ome", "$.gpus.device_uuids", id="uuid"),
        pytest.param({"power_limit_w": 300}, "ome", "$.gpus.power_limit_w", id="power"),
        pytest.param({"sm_clock_mhz": 1200}, "ome", "$.gpus.sm_clock_mhz", id="clock"),
        pytest.param(
            {"sm_clock_mhz": [1200], "mig_profile": "1g.10gb"},
            "process",
            "$.gpus.sm_clock_mhz",
            id="clock of a part",
        ),
        pytest.param(
            {"require": [{"key": "numa_node", "values": ["0"]}]},
            "ome",
            "$.gpus.require[0]",
            id="numa",
        ),
        pytest.param(
            {"require": [{"key": "numa_node", "values": ["x"]}]},
            "process",
            "$.gpus.require[0].values[0]",
            id="no number",
        ),
        pytest.param(
            {"prefer": [{"selector": {"key": "label", "values": ["a"]}}]},
            "process",
            "$.gpus.prefer[0].selector",
            id="no label named",
        ),
        pytest.param(
            {"power_limit_w": 300, "shares": 0.5}, "process", "$.gpus.power_limit_w", id="shared"
        ),
    ],
)
def test_meaningless_wish_is_refused_by_path(wanted: dict[str, Any], mode: str, path: str) -> None:
    file = make_file(gpus=wanted)

    with pytest.raises(RefusedError) as refused:
        request_for(file, point({}), ("n1",), mode=DeploymentMode(mode))

    assert refused.value.path == path


def test_filled_gpus_may_leave_fragments() -> None:
    request = request_for(make_file(gpus={"shares": 1.25, "share_strategy": "fill"}), point({}), ())

    assert not request.unfragmented


@pytest.mark.parametrize(
    ("gpus", "parameters", "path"),
    [
        ({"count": 2}, {}, "$.gpus.count"),
        ({"num_nodes": 2}, {}, "$.gpus.num_nodes"),
        ({"min_memory_mb": 10}, {}, "$.gpus.min_memory_mb"),
        ({"mig_profile": "1g.10gb"}, {}, "$.gpus.mig_profile"),
        ({}, {"tp": 2}, "$.gpus.shares"),
    ],
)
def test_exclusion_of_shares_names_the_rule(
    gpus: dict[str, Any], parameters: dict[str, Any], path: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        request_for(make_file(gpus={"shares": 0.5, **gpus}), point(parameters), ())

    assert refused.value.path == path
    assert "shares" in str(refused.value)


def test_mig_instance_has_room_for_the_model() -> None:
    request = request_for(make_file(gpus={"mig_profile": "1g.10gb"}), point({}), ())

    assert (request.mig_profile, request.gpus, request.shares) == ("1g.10gb", 1, None)
    assert request.min_memory_mb is not None
    with pytest.raises(RefusedError, match="no count with mig_profile"):
        request_for(make_file(gpus={"mig_profile": "1g.10gb", "count": 1}), point({}), ())


def test_vgpu_cores_are_shares_or_whole_gpus() -> None:
    part = request_for(make_file(gpus={"vgpu_cores": 20, "vgpu_memory_mb": 4_000}), point({}), ())
    whole = request_for(make_file(gpus={"vgpu_cores": 200}), point({"tp": 2}), ())

    assert (part.shares, part.min_memory_mb, part.vgpu_cores) == (0.2, 20_000, None)
    assert (whole.shares, whole.gpus) == (None, 2)


@pytest.mark.parametrize(
    ("gpus", "path"),
    [
        ({"mps_cores": 50}, "$.gpus.mps_cores"),
        ({"time_slices": 1}, "$.gpus.time_slices"),
        ({"vgpu_cores": 50, "count": 1}, "$.gpus.count"),
        ({"vgpu_cores": 50, "mig_profile": "1g.10gb"}, "$.gpus.vgpu_cores"),
        ({"vgpu_cores": 150}, "$.gpus.vgpu_cores"),
    ],
)
def test_parts_of_clusters_are_refused_on_hosts(gpus: dict[str, Any], path: str) -> None:
    with pytest.raises(RefusedError) as refused:
        request_for(make_file(gpus=gpus), point({}), ())

    assert refused.value.path == path


def test_a_cluster_gives_out_whole_gpus() -> None:
    with pytest.raises(RefusedError, match="whole GPUs"):
        request_for(make_file(gpus={"shares": 0.5}), point({}), (), mode=DeploymentMode.KUBERNETES)


def test_largest_group_bounds_parameters() -> None:
    assert world_size(point({"tp": MAX_GROUP // 2, "pp": 2})) == MAX_GROUP

    with pytest.raises(RefusedError, match="expected at most 4096 GPUs"):
        world_size(point({"tp": MAX_GROUP // 2, "pp": 3}))


@pytest.mark.parametrize(("count", "is_refused"), [(MAX_GROUP, False), (MAX_GROUP + 1, True)])
def test_largest_group_bounds_cluster_nodes(count: int, is_refused: bool) -> None:
    file = make_file(gpus={"cluster": "c", "nodes": [f"n{number}" for number in range(count)]})

    def cluster() -> ClusterRequest | None:
        return request_for(file, point({}), (), mode=DeploymentMode.KUBERNETES).cluster

    if is_refused:
        with pytest.raises(RefusedError, match="at most 4096 nodes") as refused:
            cluster()
        assert refused.value.path == "$.gpus.nodes"
    else:
        asked = cluster()
        assert asked is not None
        assert len(asked.node_names) == count
