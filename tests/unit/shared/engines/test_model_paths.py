"""Which models a task may name: an id of a hub, or what is below a node's model roots."""

import pytest

from shared.engines.models import model_refusal

ROOTS = ("/models", "/data/llms/")


@pytest.mark.parametrize(
    "model",
    ["meta-llama/Llama-3.1-8B", "org/model:Q4_K_M", "a.b/c", "x/../y"],
)
@pytest.mark.parametrize("roots", [(), ROOTS])
def test_hub_id_passes_whatever_the_roots(model: str, roots: tuple[str, ...]) -> None:
    assert model_refusal(model, roots) is None


@pytest.mark.parametrize("model", ["/models", "/models/a", "/data/llms/a/b", "./a", ".hidden/a"])
def test_a_path_below_a_root_is_let_through(model: str) -> None:
    assert model_refusal(model, ROOTS) is None
    refusal = model_refusal(model, ())
    assert refusal is not None
    assert "GPUSTEWARD_EXECUTOR_MODEL_ROOTS" in refusal


@pytest.mark.parametrize(
    "model",
    [
        "/etc/passwd",
        "/models-of-others/a",
        "/models/../etc",
        "/data/llm",
        "..",
        "../models/a",
        "a/../../b",
        "~",
        "~root/.ssh",
    ],
)
def test_a_path_outside_every_root_is_refused(model: str) -> None:
    refusal = model_refusal(model, ROOTS)

    assert refusal is not None
    assert repr(model) in refusal
    assert "/models, /data/llms/" in refusal


def test_every_path_is_below_the_root() -> None:
    assert model_refusal("/etc", ["/"]) is None


@pytest.mark.parametrize("model", ["http://models/x", "s3://bucket/x", "file:///etc", "a+b://c"])
def test_an_address_is_refused(model: str) -> None:
    refusal = model_refusal(model, ROOTS)

    assert refusal is not None
    assert "the address" in refusal
