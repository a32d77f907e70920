"""Parquet as another program reads it."""

import io
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from shared.archives.parquet import Kind, ParquetFile

COLUMNS = {
    "at": Kind.MICROSECONDS,
    "node_id": Kind.TEXT,
    "memory_mb": Kind.INTEGER,
    "power_w": Kind.NUMBER,
}
INTEGERS = st.integers(-(2**63), 2**63 - 1)
ROW = st.tuples(
    st.integers(0, 4_000_000_000_000_000),
    st.none() | st.text(),
    st.none() | INTEGERS,
    st.none() | st.floats(allow_nan=False),
)


@given(st.lists(st.lists(ROW, min_size=1, max_size=40), max_size=20))
def test_other_reader_finds_values_and_nulls(
    groups: list[list[tuple[object, ...]]],
) -> None:
    import pyarrow.parquet

    file = ParquetFile(COLUMNS)

    for rows in groups:
        file.add(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))
    table = pyarrow.parquet.read_table(io.BytesIO(file.content()))

    rows = [row for group in groups for row in group]
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == file.rows == len(rows)
    assert table.column("at").cast("int64").to_pylist() == [row[0] for row in rows]
    for place, name in enumerate(COLUMNS):
        if name != "at":
            assert table.column(name).to_pylist() == [row[place] for row in rows]


def test_times_are_times_of_utc() -> None:
    import pyarrow.parquet

    file = ParquetFile({"at": Kind.MICROSECONDS})
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)

    file.add({"at": [int(at.timestamp()) * 1_000_000 + at.microsecond]})

    table = pyarrow.parquet.read_table(io.BytesIO(file.content()))
    assert table.column("at").to_pylist() == [at]
