"""How many GPUs a configuration needs, in every spelling."""

from typing import Any

import pytest

from schemas.errors import ErrorCode
from services.scheduler.domain.estimate import estimate
from shared.errors import RefusedError


@pytest.mark.parametrize(
    ("config", "want"),
    [
        pytest.param({}, 1, id="nothing said"),
        pytest.param({"parameters": {"tp-size": [1, 2, 4], "pp-size": [1]}}, 4, id="a list"),
        pytest.param(
            {"parameters": {"tp_size": {"type": "choice", "values": [2, 8]}}}, 8, id="a choice"
        ),
        pytest.param(
            {"parameters": {"tp_size": {"type": "integer", "low": 1, "high": 4}}}, 4, id="a range"
        ),
        pytest.param({"parameters": {"tp": 2, "pp": "3"}}, 6, id="scalars, one as text"),
        pytest.param(
            {"parameters": {"tp": [2], "dp": [3], "cp-size": [4], "dcp": [2]}},
            8,
            id="the largest of dp, dcp and cp counts",
        ),
        pytest.param(
            {"parallel_config": {"tp": [2, 4], "dp": [1, 2]}, "parameters": {"mem": [0.8]}},
            8,
            id="parallel_config",
        ),
        pytest.param(
            {"parallel_config": {"tp": 2, "preset": None}, "parameters": {"tp-size": [4]}},
            4,
            id="the larger of the two blocks",
        ),
        pytest.param({"parameters": {"ep": [8], "moe_tp": 4}}, 1, id="others do not count"),
    ],
)
def test_world_size_is_the_largest_combination(config: dict[str, Any], want: int) -> None:
    assert estimate(config).world_size == want
    assert estimate(config).gpus == want


@pytest.mark.parametrize("kind", ["tensor", "pipeline", "data", "context", "decode-context"])
def test_every_documented_spelling_is_understood(kind: str) -> None:
    short = "".join(word[0] for word in kind.split("-")) + "p"

    for name in (f"{kind}-parallel-size", f"{short}-size", f"{short}_size", short, f"--{short}"):
        assert estimate({"parameters": {name: [1, 3]}}).gpus == 3, name


@pytest.mark.parametrize(
    ("model", "want"),
    [
        pytest.param("meta-llama/Llama-3-70B-Instruct", 20_000, id="70B"),
        pytest.param("llama-65b", 20_000, id="65B"),
        pytest.param("llama-2-13b", 12_000, id="13B"),
        pytest.param("Qwen2-7B", 12_000, id="7B"),
        pytest.param("qwen-1.7b", 8_000, id="1.7B is not 7B"),
        pytest.param("llama-3-2-1b-instruct", 8_000, id="1B"),
        pytest.param("some-model", 8_000, id="unknown"),
    ],
)
def test_memory_follows_the_models_name(model: str, want: int) -> None:
    assert estimate({"model": {"id_or_path": model}}).min_memory_mb == want


def test_model_with_too_many_digits_has_no_size() -> None:
    assert estimate({"model": "1" * 5_000 + "b"}).min_memory_mb == 8_000


@pytest.mark.parametrize(
    ("config", "path"),
    [
        pytest.param({"parameters": {"tp": ["two"]}}, "$.task_config.parameters.tp", id="a word"),
        pytest.param({"parameters": {"tp": [0]}}, "$.task_config.parameters.tp", id="zero"),
        pytest.param({"parameters": {"tp": [True]}}, "$.task_config.parameters.tp", id="a flag"),
        pytest.param(
            {"parameters": {"tp": "1" * 5_000}},
            "$.task_config.parameters.tp",
            id="more digits than Python reads",
        ),
        pytest.param({"parameters": [1]}, "$.task_config.parameters", id="no object"),
    ],
)
def test_invalid_degree_is_refused_with_its_place(config: dict[str, Any], path: str) -> None:
    with pytest.raises(RefusedError) as refused:
        estimate(config)

    assert refused.value.code is ErrorCode.BAD_REQUEST
    assert refused.value.path == path
