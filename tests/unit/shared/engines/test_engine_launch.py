from typing import Any

import pytest

from shared.engines.table import LAUNCHES


@pytest.mark.parametrize(
    ("engine", "model", "arguments"),
    [
        ("vllm", "org/model", ["org/model"]),
        ("vllm", "/models/m", ["/models/m"]),
        ("sglang", "org/model", ["--model-path", "org/model"]),
        ("sglang", "/models/m", ["--model-path", "/models/m"]),
        ("llamacpp", "org/model", ["--hf-repo", "org/model"]),
        ("llamacpp", "/models/m.gguf", ["--model", "/models/m.gguf"]),
    ],
)
def test_engine_gets_its_model_in_its_form(engine: str, model: str, arguments: list[str]) -> None:
    assert LAUNCHES[engine].model_arguments(model) == arguments


@pytest.mark.parametrize(
    ("engine", "parameters", "arguments"),
    [
        ("vllm", {"max_num_seqs": 8, "seed": None}, [["--max-num-seqs", "8"]]),
        ("vllm", {"enforce-eager": False}, [["--no-enforce-eager"]]),
        ("vllm", {"headless": False}, [[]]),
        ("sglang", {"disable-cuda-graph": True}, [["--disable-cuda-graph"]]),
        ("sglang", {"disable-cuda-graph": False}, [[]]),
    ],
)
def test_parameters_become_flags_of_the_engine(
    engine: str, parameters: dict[str, Any], arguments: list[list[str]]
) -> None:
    assert LAUNCHES[engine].arguments(parameters) == arguments
