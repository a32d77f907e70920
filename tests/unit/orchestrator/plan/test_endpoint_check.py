"""What a task may say of a server that runs already, and the loads that its limits let through."""

from typing import Any

import msgspec
import pytest

from schemas.task.task_file import DeploymentMode, TaskFile
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.plan.endpoint_check import refuse_bad_endpoint
from services.orchestrator.domain.plan.expansion import expand, find_axes
from services.orchestrator.domain.plan.planner import choose_mode
from shared.errors import MISTAKES, RefusedError


def endpoint_task(endpoint: dict[str, Any], **overrides: Any) -> TaskFile:
    content: dict[str, Any] = {
        "task_name": "measured",
        "model": {"id_or_path": "m"},
        "base_runtime": "openai",
        "endpoint": {"url": "http://gpu-01:8000", **endpoint},
    }
    return msgspec.convert({**content, **overrides}, TaskFile)


def refused_paths(task: TaskFile) -> list[str | None]:
    with pytest.raises(RefusedError) as refused:
        refuse_bad_endpoint(task)
    mistakes = (refused.value.details or {}).get(MISTAKES) or [{"path": refused.value.path}]
    return [mistake["path"] for mistake in mistakes]


def test_endpoint_says_its_mode() -> None:
    task = endpoint_task({})

    refuse_bad_endpoint(task)

    assert choose_mode(task, Installation()) is DeploymentMode.ENDPOINT


def test_several_urls_are_configurations_each_once() -> None:
    urls = ["http://a:1", "http://b:1", "http://a:1"]
    task = endpoint_task({"url": urls})

    grid = expand(find_axes(task), None)

    assert [point.show() for point in grid.points] == [
        {"endpoint.url": "http://a:1"},
        {"endpoint.url": "http://b:1"},
    ]


@pytest.mark.parametrize(
    "url",
    ["gpu-01:8000", "ftp://gpu-01", "http://", "http://u:p@gpu-01", "http://a b", "http://a/?x"],
)
def test_bad_url_is_refused(url: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        endpoint_task({"url": url})


def test_what_a_start_would_set_is_refused_by_field() -> None:
    task = endpoint_task({}, parameters={"slots": [1]}, gpus={"count": 2}, runtime_image_tag="v1")

    assert refused_paths(task) == ["$.runtime_image_tag", "$.parameters", "$.gpus"]


def test_key_that_is_no_secret_of_the_task_is_refused() -> None:
    task = endpoint_task({"api_key": "SERVER_KEY"})

    assert refused_paths(task) == ["$.endpoint.api_key"]
    refuse_bad_endpoint(endpoint_task({"api_key": "SERVER_KEY"}, secrets=["SERVER_KEY"]))


def test_gpus_without_a_node_are_refused() -> None:
    assert refused_paths(endpoint_task({"gpu_indices": [0]})) == ["$.endpoint.node"]


def test_endpoint_and_another_mode_are_refused() -> None:
    assert refused_paths(endpoint_task({}, deployment_mode="docker")) == ["$.deployment_mode"]


def test_mode_without_an_endpoint_is_refused() -> None:
    task = msgspec.structs.replace(
        endpoint_task({}), endpoint=None, deployment_mode=DeploymentMode.ENDPOINT
    )
    assert refused_paths(task) == ["$.endpoint"]


@pytest.mark.parametrize(
    ("limits", "benchmark", "paths"),
    [
        (
            {"max_concurrency": 8},
            {"num_concurrency": [4, 8, 16, 32]},
            ["$.benchmark.num_concurrency[2]", "$.benchmark.num_concurrency[3]"],
        ),
        (
            {"max_concurrency": 8},
            {"arrivals": ["closed(9)", "poisson(100)"]},
            ["$.benchmark.arrivals[0]"],
        ),
        (
            {"max_requests_per_second": 2},
            {"arrivals": ["poisson(2)", "constant(3)", "burst(4,2)"]},
            ["$.benchmark.arrivals[1]", "$.benchmark.arrivals[2]"],
        ),
        (
            {"max_requests_per_second": 2},
            {"num_concurrency": [1]},
            ["$.benchmark.num_concurrency[0]"],
        ),
        (
            {"max_concurrency": 8},
            {"load_search": {"max": 9}},
            ["$.benchmark.load_search.max"],
        ),
        (
            {"max_requests_per_second": 2},
            {"load_search": {"load": "poisson", "max": 3}},
            ["$.benchmark.load_search.max"],
        ),
        (
            {"max_concurrency": 8},
            {"tool": "aiperf", "arrivals": ["poisson(1)"]},
            ["$.benchmark.tool"],
        ),
    ],
)
def test_load_beyond_a_limit_is_refused_by_field(
    limits: dict[str, Any], benchmark: dict[str, Any], paths: list[str]
) -> None:
    assert refused_paths(endpoint_task(limits, benchmark=benchmark)) == paths


@pytest.mark.parametrize(
    ("limits", "benchmark"),
    [
        ({"max_concurrency": 8}, {"num_concurrency": [1, 8]}),
        ({"max_concurrency": 8}, {"arrivals": ["poisson(100)"]}),
        ({"max_requests_per_second": 2}, {"arrivals": ["poisson(2)"]}),
        ({"max_concurrency": 8}, {"load_search": {"max": 8}}),
    ],
)
def test_load_within_the_limits_is_taken(limits: dict[str, Any], benchmark: dict[str, Any]) -> None:
    refuse_bad_endpoint(endpoint_task(limits, benchmark=benchmark))
