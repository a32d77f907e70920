"""The smallest change that helps, judged by a rule that each test makes up."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.gpus.gpu_request import GpuRequest, Selector, SelectorKey
from schemas.scheduler.reasons import ChangeKind
from services.scheduler.domain.advice.suggestions import TRIALS, suggest

LABEL = Selector(key=SelectorKey.LABEL, label="zone", values=("a",))
WHOLE = GpuRequest(
    gpus=8,
    nodes=4,
    min_memory_mb=40_000,
    min_compute_capability="8.9",
    max_utilization_percent=50.0,
    balanced_memory=True,
    cpu_count=16.0,
    host_memory_mb=64_000,
    gpu_models=("H100",),
    require=(LABEL,),
    expected_duration_seconds=3600.0,
)


@pytest.mark.parametrize(
    ("rule", "kind", "changed", "said"),
    [
        pytest.param(
            lambda r: r.gpus <= 5,
            ChangeKind.FEWER_GPUS,
            {"gpus": 5},
            "ask for 5 GPUs of each node instead of 8",
            id="gpus",
        ),
        pytest.param(
            lambda r: r.nodes <= 3,
            ChangeKind.FEWER_NODES,
            {"nodes": 3},
            "ask for 3 nodes instead of 4",
            id="nodes",
        ),
        pytest.param(
            lambda r: (r.min_memory_mb or 0) <= 31_337,
            ChangeKind.LESS_MEMORY,
            {"min_memory_mb": 31_337},
            "ask for 31337 MB of free memory per GPU instead of 40000 MB",
            id="memory",
        ),
        pytest.param(
            lambda r: r.max_utilization_percent >= 72.4,
            ChangeKind.HIGHER_UTILIZATION_LIMIT,
            {"max_utilization_percent": 73.0},
            "accept GPUs that others use to 73 % instead of 50 %",
            id="utilization",
        ),
        pytest.param(
            lambda r: not r.balanced_memory,
            ChangeKind.UNBALANCED_MEMORY,
            {"balanced_memory": False},
            "do without balanced memory",
            id="balance",
        ),
        pytest.param(
            lambda r: r.mixed_models,
            ChangeKind.MIXED_MODELS,
            {"mixed_models": True},
            "accept GPUs of several models together",
            id="mixed models",
        ),
        pytest.param(
            lambda r: (r.cpu_count or 0) <= 6.5,
            ChangeKind.LESS_CPU,
            {"cpu_count": 6.0},
            "ask for 6 CPUs of a node instead of 16",
            id="cpu",
        ),
        pytest.param(
            lambda r: r.host_memory_mb is None,
            ChangeKind.LESS_HOST_MEMORY,
            {"host_memory_mb": None},
            "ask for 0 MB of a node's memory instead of 64000 MB",
            id="no host memory",
        ),
        pytest.param(
            lambda r: (r.host_memory_mb or 0) <= 48_000,
            ChangeKind.LESS_HOST_MEMORY,
            {"host_memory_mb": 48_000},
            "ask for 48000 MB of a node's memory instead of 64000 MB",
            id="host memory",
        ),
        pytest.param(
            lambda r: not r.gpu_models,
            ChangeKind.DROP_SELECTOR,
            {"gpu_models": ()},
            "do not insist on models H100",
            id="model",
        ),
        pytest.param(
            lambda r: r.min_compute_capability is None,
            ChangeKind.DROP_SELECTOR,
            {"min_compute_capability": None},
            "do not insist on compute capability 8.9",
            id="capability",
        ),
        pytest.param(
            lambda r: not r.require,
            ChangeKind.DROP_SELECTOR,
            {"require": ()},
            "do not insist on label zone in a",
            id="zone",
        ),
        pytest.param(
            lambda r: (r.expected_duration_seconds or 1e9) <= 600,
            ChangeKind.SHORTER_DURATION,
            {"expected_duration_seconds": 600.0},
            "tell that it takes no longer than 600 s instead of 3600 s",
            id="duration",
        ),
        pytest.param(
            lambda r: r.priority > 41,
            ChangeKind.HIGHER_PRIORITY,
            {"priority": 42},
            "raise the priority from 0 to 42",
            id="priority",
        ),
    ],
)
def test_suggestion_is_as_small_as_possible(
    rule: Callable[[GpuRequest], bool], kind: ChangeKind, changed: dict[str, Any], said: str
) -> None:
    found = suggest(WHOLE, rule)

    assert found is not None
    assert found.changes == (kind,)
    assert found.request == replace(WHOLE, **changed)
    assert found.message == f"{said}: then it is granted now"


def test_smallest_share_is_suggested() -> None:
    either = suggest(WHOLE, lambda r: r.gpus <= 7 or (r.min_memory_mb or 0) <= 20_000)
    other = suggest(WHOLE, lambda r: r.gpus <= 4 or (r.min_memory_mb or 0) <= 39_000)
    overtaking = suggest(WHOLE, lambda r: r.gpus <= 1 or r.priority > 0)

    assert either is not None
    assert either.changes == (ChangeKind.FEWER_GPUS,)
    assert other is not None
    assert other.changes == (ChangeKind.LESS_MEMORY,)
    assert overtaking is not None
    assert overtaking.changes == (ChangeKind.FEWER_GPUS,)


def test_several_changes_only_if_one_fails() -> None:
    found = suggest(WHOLE, lambda r: r.gpus <= 6 and r.nodes <= 2 and not r.gpu_models)

    assert found is not None
    assert found.request == replace(WHOLE, gpus=6, nodes=2, gpu_models=())
    assert sorted(found.changes) == [
        ChangeKind.DROP_SELECTOR,
        ChangeKind.FEWER_GPUS,
        ChangeKind.FEWER_NODES,
    ]
    assert "6 GPUs" in found.message
    assert "2 nodes" in found.message
    assert "H100" in found.message


def test_no_suggestion_where_none_helps() -> None:
    assert suggest(WHOLE, lambda _: False) is None
    assert suggest(WHOLE, lambda _: True) is None


def test_a_duration_that_was_not_told_may_be_told() -> None:
    found = suggest(GpuRequest(), lambda r: (r.expected_duration_seconds or 1e9) <= 7200)

    assert found is not None
    assert found.changes == (ChangeKind.SHORTER_DURATION,)
    assert found.request.expected_duration_seconds == 7200


def test_suggestion_search_is_bounded_and_valid() -> None:
    selectors = tuple(
        Selector(key=SelectorKey.LABEL, label=f"l{n}", values=("x",)) for n in range(32)
    )
    asked: list[GpuRequest] = []

    def rule(request: GpuRequest) -> bool:
        asked.append(request)
        left = {each.label for each in request.require}
        return not left & {"l3", "l9", "l17", "l30"} and request.gpus <= 2

    found = suggest(replace(WHOLE, require=selectors), rule)

    assert len(asked) <= TRIALS
    assert found is not None
    assert rule(found.request)
    assert len(found.changes) == 5


def test_longest_suggested_duration_is_thirty_days() -> None:
    found = suggest(GpuRequest(), lambda r: r.expected_duration_seconds is not None)

    assert found is not None
    assert found.request.expected_duration_seconds == 30 * 24 * 3600
