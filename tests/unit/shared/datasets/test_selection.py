from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from schemas.task.dataset import DatasetSpec, DropReason
from shared.datasets.bounds import MAX_PROMPT_CHARACTERS
from shared.datasets.rows import Row
from shared.datasets.selection import answer_length, draw_candidates, refuse_length

ROWS = st.lists(st.sampled_from(["", "a", "b", "c d", "e f g"]).map(Row), max_size=60)


@given(rows=ROWS, sample=st.integers(1, 20), deduplicate=st.booleans(), seed=st.integers(0, 9))
def test_every_row_is_drawn_or_has_a_reason(
    rows: Sequence[Row], sample: int, deduplicate: bool, seed: int
) -> None:
    spec = DatasetSpec(path="x", sample=sample, deduplicate=deduplicate, seed=seed)

    drawn = draw_candidates(rows, spec)

    assert drawn == draw_candidates(rows, spec)
    assert len(drawn.rows) + drawn.dropped.total() == drawn.rows_read == len(rows)
    assert len(drawn.rows) <= sample
    assert drawn.dropped[DropReason.EMPTY] == sum(not row.prompt for row in rows)
    prompts = [row.prompt for row in rows if row.prompt]
    if deduplicate:
        assert len({row.prompt for row in drawn.rows}) == len(drawn.rows)
        assert drawn.dropped[DropReason.DUPLICATE] == len(prompts) - len(set(prompts))
    if len(drawn.rows) < sample:
        assert DropReason.NOT_SAMPLED not in drawn.dropped


def test_another_seed_draws_others() -> None:
    rows = [Row(str(number)) for number in range(1000)]
    first, second = (
        draw_candidates(rows, DatasetSpec(path="x", sample=50, seed=seed)).rows for seed in (0, 1)
    )

    assert first != second
    assert 200 < sum(int(row.prompt) for row in first) / 50 < 800


def test_row_that_is_too_large_is_dropped() -> None:
    drawn = draw_candidates([Row("a" * (MAX_PROMPT_CHARACTERS + 1))], DatasetSpec(path="x"))

    assert (drawn.rows, drawn.dropped) == ([], {DropReason.TOO_LARGE: 1})


def test_more_than_the_sample_is_drawn_where_lengths_count() -> None:
    rows = [Row(str(number)) for number in range(1000)]

    assert len(draw_candidates(rows, DatasetSpec(path="x", sample=5)).rows) == 5
    spec = DatasetSpec(path="x", sample=5, max_input_tokens=9)
    assert len(draw_candidates(rows, spec).rows) == 50


def test_lengths_at_the_bounds_are_taken() -> None:
    spec = DatasetSpec(path="x", min_input_tokens=3, max_input_tokens=5)

    reasons = [refuse_length(tokens, spec) for tokens in (2, 3, 5, 6)]
    assert reasons == [DropReason.TOO_SHORT, None, None, DropReason.TOO_LONG]


def test_answer_is_as_long_as_the_row_says_and_no_longer() -> None:
    spec = DatasetSpec(path="x", max_output_tokens=50)

    assert answer_length(Row("a", "b c", 7), 2, spec) == 7
    assert answer_length(Row("a", "b c"), 2, spec) == 2
    assert answer_length(Row("a"), None, spec) == 50
    assert answer_length(Row("a", "", 700), None, spec) == 50
