"""Which requests are refused before they are stored, and with which words."""

import math

import pytest

from schemas.gpus.gpu_request import (
    GpuRequest,
    Preference,
    Selector,
    SelectorKey,
    SelectorOperator,
)
from services.scheduler.intake.validation import check_wanted
from shared.errors import RefusedError

IN, AT_LEAST, EXISTS = SelectorOperator.IN, SelectorOperator.AT_LEAST, SelectorOperator.EXISTS
LABEL, NUMA = SelectorKey.LABEL, SelectorKey.NUMA_NODE
CAPABILITY, MODEL = SelectorKey.COMPUTE_CAPABILITY, SelectorKey.GPU_MODEL


@pytest.mark.parametrize(
    "selector",
    [
        Selector(key=LABEL, label="zone", values=("b", "")),
        Selector(key=LABEL, label="zone", operator=EXISTS),
        Selector(key=CAPABILITY, operator=AT_LEAST, values=("8.0",)),
        Selector(key=NUMA, values=("0", "1")),
        Selector(key=MODEL, values=("H100",)),
    ],
)
def test_a_selector_that_can_match_is_accepted(selector: Selector) -> None:
    check_wanted(GpuRequest(require=(selector,), prefer=(Preference(selector=selector),)))


@pytest.mark.parametrize(
    ("selector", "path", "says"),
    [
        (Selector(key=LABEL, values=("b",)), "", "the name of a label"),
        (Selector(key=MODEL, label="zone", values=("b",)), "", "the name of a label"),
        (Selector(key=MODEL), ".values", "one value or more for 'in', got 0"),
        (Selector(key=MODEL, values=(" ",)), ".values[0]", "something to match, got ' '"),
        (Selector(key=MODEL, operator=AT_LEAST, values=("9",)), "", "got 'at_least'"),
        (Selector(key=NUMA, operator=AT_LEAST), ".values", "one value for 'at_least', got 0"),
        (Selector(key=NUMA, operator=EXISTS, values=("1",)), ".values", "no value for 'exists'"),
        (Selector(key=NUMA, values=("0", "x")), ".values[1]", "a number or a version"),
        (Selector(key=CAPABILITY, operator=AT_LEAST, values=("abc",)), ".values[0]", "got 'abc'"),
        (Selector(key=LABEL, label="a\x00b", operator=EXISTS), ".label", "without NUL"),
    ],
)
def test_impossible_selector_is_refused_in_place(selector: Selector, path: str, says: str) -> None:
    with pytest.raises(RefusedError, match=says) as refused:
        check_wanted(GpuRequest(require=(selector,)))

    assert refused.value.path == f"$.request.require[0]{path}"


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (GpuRequest(cpu_count=math.nan), "cpu_count"),
        (GpuRequest(max_utilization_percent=math.nan), "max_utilization_percent"),
        (GpuRequest(expected_duration_seconds=1e18), "expected_duration_seconds"),
        (GpuRequest(wait_timeout_seconds=math.inf), "wait_timeout_seconds"),
        (GpuRequest(gpu_models=("H100", "")), "gpu_models[1]"),
    ],
)
def test_meaningless_number_or_name_is_refused(request_: GpuRequest, path: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_wanted(request_)

    assert refused.value.path == f"$.request.{path}"
