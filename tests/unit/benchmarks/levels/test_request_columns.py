"""Requests of a level, packed and unpacked."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.task.benchmark import RequestColumns
from shared.benchmarks.levels.request_columns import (
    DamagedColumns,
    RequestRow,
    pack_requests,
    thin_requests,
    unpack_requests,
)
from shared.benchmarks.metrics import RequestSample, level_result
from tests.unit.benchmarks.test_metrics import NOW

MICROSECONDS = st.none() | st.integers(0, 4_000_000_000).map(lambda us: us / 1e6)
TOKENS = st.none() | st.integers(0, 1_000_000)
ROWS = st.builds(
    RequestRow,
    ttft=MICROSECONDS,
    e2e_latency=MICROSECONDS,
    num_input_tokens=TOKENS,
    num_output_tokens=TOKENS,
    error=st.none() | st.sampled_from(("503", "timeout", "connect")),
    turn=st.none() | st.integers(1, 64),
    num_first_tokens=st.integers(1, 9),
)


@given(st.lists(ROWS))
def test_what_was_packed_is_unpacked(rows: list[RequestRow]) -> None:
    columns = msgspec.msgpack.decode(
        msgspec.msgpack.encode(pack_requests(rows)), type=RequestColumns
    )

    assert unpack_requests(columns) == rows


@pytest.mark.parametrize("count", [0, 1, 3, 2_000_000])
def test_columns_of_another_length_are_refused(count: int) -> None:
    columns = pack_requests([RequestRow(ttft=0.5)] * 2)

    with pytest.raises(DamagedColumns):
        unpack_requests(msgspec.structs.replace(columns, count=count))


def test_requests_of_attempt_are_thinned_evenly() -> None:
    def level(number: int, requests: int) -> object:
        samples = [
            RequestSample(
                ttft=n / 1000, e2e_latency=n / 500, num_input_tokens=9, num_output_tokens=n
            )
            for n in range(requests)
        ]
        return level_result(
            scenario="D(9,9)",
            num_concurrency=number,
            started_at=NOW,
            run_duration=4.0,
            samples=samples,
            error_codes={},
        )

    levels = (level(1, 3000), level(2, 0), level(4, 1000))
    kept = thin_requests(levels, most=400)  # type: ignore[arg-type]
    again = thin_requests(kept, most=100)

    assert thin_requests(levels, most=4000) == levels  # type: ignore[arg-type]
    for found, most in ((kept, 400), (again, 100)):
        columns = [each.requests for each in found]
        assert columns[1] is None
        one_in = {each.one_in for each in columns if each is not None}
        assert len(one_in) == 1
        assert most // 2 < sum(each.count for each in columns if each is not None) <= most
        last = unpack_requests(columns[0])[-1].num_output_tokens  # type: ignore[arg-type]
        assert last is not None and last > 2900  # noqa: PT018  # one fact
    assert kept[0].num_requests == 3000
