from typing import Any

import pytest

from schemas.base import MAX_INTEGER
from schemas.errors import ErrorCode
from services.orchestrator.domain.configurations import MAX_VALUES
from shared.errors import MISTAKES, RefusedError
from tests.support.worlds.orchestrator_records import expand, make_file


def shown(**overrides: Any) -> list[dict[str, Any]]:
    return [point.show() for point in expand(make_file(**overrides)).points]


def test_the_last_parameter_varies_fastest() -> None:
    assert shown(parameters={"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_axes_vary_quantization_slowest() -> None:
    points = shown(
        parameters={"p": [1, 2]},
        parallel_config={"tp": [1, 2]},
        quant_config={"gemm_dtype": ["fp8", "auto"]},
    )

    order = [(p["quant_config.gemm_dtype"], p["parallel_config.tp"], p["p"]) for p in points]
    assert order == [(q, tp, p) for q in ("fp8", "auto") for tp in (1, 2) for p in (1, 2)]


def test_power_limit_is_an_axis_of_gpus() -> None:
    assert shown(gpus={"power_limit_w": [300, 400]}, parameters={"p": [1]}) == [
        {"gpus.power_limit_w": 300.0, "p": 1},
        {"gpus.power_limit_w": 400.0, "p": 1},
    ]
    assert shown(gpus={"power_limit_w": 300}) == [{"gpus.power_limit_w": 300.0}]


def test_clocks_vary_faster_than_power_limits() -> None:
    assert shown(gpus={"power_limit_w": 300, "sm_clock_mhz": [1200, 1980]}) == [
        {"gpus.power_limit_w": 300.0, "gpus.sm_clock_mhz": 1200},
        {"gpus.power_limit_w": 300.0, "gpus.sm_clock_mhz": 1980},
    ]


@pytest.mark.parametrize(
    ("overrides", "want"),
    [
        pytest.param({}, [{}], id="nothing varies"),
        pytest.param(
            {"parameters": {"tp": {"type": "choice", "values": [1, 2]}}},
            [{"tp": 1}, {"tp": 2}],
            id="the long form",
        ),
        pytest.param(
            {"parameters": {"a": {"type": "categorical", "values": ["x"]}}},
            [{"a": "x"}],
            id="categories",
        ),
        pytest.param(
            {"parameters": {"a": {"type": "integer", "low": 1, "high": 6, "step": 2}}},
            [{"a": 1}, {"a": 3}, {"a": 5}],
            id="a range in steps",
        ),
        pytest.param(
            {"parallel_config": {"moe_dense_tp": [1, 2], "enable_expert_parallel": True}},
            [
                {
                    "parallel_config.moe_dense_tp": 1,
                    "parallel_config.enable_expert_parallel": True,
                },
                {
                    "parallel_config.moe_dense_tp": 2,
                    "parallel_config.enable_expert_parallel": True,
                },
            ],
            id="experts",
        ),
        pytest.param(
            {"parallel_config": {"tp": 2, "dp": 1}},
            [{"parallel_config.tp": 2}],
            id="one value without a list",
        ),
        pytest.param(
            {"quant_config": {"preset": "a", "presets": ["b", "a"]}},
            [{"quant_config.preset": "a"}, {"quant_config.preset": "b"}],
            id="presets, each once",
        ),
        pytest.param(
            {"parameters": {"x": [None, True, 0.5]}},
            [{"x": None}, {"x": True}, {"x": 0.5}],
            id="all kinds of values",
        ),
    ],
)
def test_a_task_becomes_its_configurations(
    overrides: dict[str, Any], want: list[dict[str, Any]]
) -> None:
    assert shown(**overrides) == want


@pytest.mark.parametrize(
    ("max_iterations", "kept", "cut"), [(None, 6, 0), (4, 4, 2), (6, 6, 0), (100, 6, 0)]
)
def test_max_iterations_cuts_the_grid(max_iterations: int | None, kept: int, cut: int) -> None:
    grid = expand(
        make_file(
            parameters={"a": [1, 2, 3], "b": [1, 2]},
            optimization={"max_iterations": max_iterations},
        )
    )

    assert (len(grid.points), grid.total, grid.cut) == (kept, 6, cut)


def test_huge_grid_is_refused_unexpanded() -> None:
    parameters = {f"p{number}": list(range(1000)) for number in range(60)}

    with pytest.raises(RefusedError) as refused:
        expand(make_file(parameters=parameters))

    assert refused.value.code is ErrorCode.BAD_REQUEST
    assert refused.value.path == "$.optimization.max_iterations"


@pytest.mark.parametrize(
    ("values", "path", "says"),
    [
        pytest.param({"type": "integer", "low": 1, "high": 4}, "", "give its step", id="no step"),
        pytest.param(
            {"type": "continuous", "low": 0.1, "high": 0.9, "log": True}, "", "a list", id="numbers"
        ),
        pytest.param(
            {"type": "integer", "low": 4, "high": 1, "step": 1}, ".high", "at least 4", id="order"
        ),
        pytest.param(
            {"type": "integer", "low": 0, "high": 10**9, "step": 1}, ".step", "1000", id="many"
        ),
    ],
)
def test_range_without_steps_says_what_to_give(
    values: dict[str, Any], path: str, says: str
) -> None:
    with pytest.raises(RefusedError, match=says) as refused:
        shown(parameters={"slots": values})

    assert refused.value.path == f"$.parameters.slots{path}"


def test_a_range_has_at_most_a_thousand_values() -> None:
    most = {"type": "integer", "low": 1, "high": MAX_VALUES, "step": 1}

    assert len(shown(parameters={"a": most})) == MAX_VALUES
    with pytest.raises(RefusedError, match="at most 1000 values"):
        shown(parameters={"a": most | {"high": MAX_VALUES + 1}})


def test_a_range_of_one_value_is_that_value() -> None:
    only = {"type": "integer", "low": 4, "high": 4, "step": 1}

    assert shown(parameters={"slots": only}) == shown(parameters={"slots": [4]})


def test_cut_grid_is_expanded_only_so_far() -> None:
    parameters = {f"p{number}": list(range(1000)) for number in range(60)}

    grid = expand(make_file(parameters=parameters, optimization={"max_iterations": 3}))

    assert [point.parameters["p59"] for point in grid.points] == [0, 1, 2]
    assert (grid.total, grid.cut) == (MAX_INTEGER, MAX_INTEGER - 3)


def test_every_bad_range_is_refused_at_once() -> None:
    parameters = {
        "empty": {"type": "integer", "low": 4, "high": 2, "step": 1},
        "fine": [1, 2],
        "stepless": {"type": "integer", "low": 1, "high": 5},
    }

    with pytest.raises(RefusedError) as refused:
        expand(make_file(parameters=parameters))

    paths = [mistake["path"] for mistake in refused.value.details[MISTAKES]]
    assert paths == ["$.parameters.empty.high", "$.parameters.stepless"]
