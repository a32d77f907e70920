"""When something is made ready for what waits, and what it needs."""

import pytest
from msgspec.structs import replace

from schemas.executor.attempts import AttemptPhase, EngineSpec, Runtime
from services.executor.domain.preparation import (
    is_measuring,
    needs,
    spares_disk,
    spares_memory,
)


def engine(**changes: str) -> EngineSpec:
    given = {"engine": "vllm", "model": "a/model", **changes}
    return EngineSpec(runtime=Runtime.DOCKER, **given)  # type: ignore[arg-type]  # all are text


@pytest.mark.parametrize("phase", AttemptPhase)
def test_only_warm_up_and_measuring_are_disturbed(phase: AttemptPhase) -> None:
    others = (AttemptPhase.LOADING, AttemptPhase.PULLING)

    expected = phase in {AttemptPhase.WARMING_UP, AttemptPhase.MEASURING}
    assert is_measuring([*others, phase]) is expected
    assert not is_measuring(())


def test_weights_take_part_of_available_memory() -> None:
    assert spares_memory(50, 100, 50.0)
    assert not spares_memory(51, 100, 50.0)
    assert not spares_memory(1, 0, 50.0)


@pytest.mark.parametrize(
    ("free", "is_begun", "expected"),
    [(20, False, True), (19, False, False), (10, True, True), (9, True, False)],
)
def test_pull_starts_and_aborts_at_two_disk_limits(
    free: int, is_begun: bool, expected: bool
) -> None:
    assert spares_disk(free, 100, 20.0, is_begun=is_begun) is expected


def test_only_other_tag_or_model_needs_preparation() -> None:
    one = engine()

    assert needs(one) == needs(replace(one, parameters={"x": 1}))
    assert needs(one) == needs(engine(engine="vLLM"))
    assert len({needs(each) for each in (one, engine(image_tag="v1"), engine(model="b"))}) == 3
