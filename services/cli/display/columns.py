"""Tables of text: which columns there is room for, and how wide each of them is."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

UNKNOWN: Final = "-"
GAP: Final = 2
MIN_COLUMN_WIDTH: Final = 14  # of a column whose text may be shortened or wrapped
ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; the other fields name headings.

    `numeric` ones are aligned to the right. Where a terminal is too narrow, text of the `shortened`
    is cut and that of the `wrapped` is broken into lines, then whole columns are left out: those
    without any content first, then those that `important` does not name, from the right, then its
    last. The first column always stays, and nothing else is ever cut. Text of `cut_last` is cut
    only where the columns that are more important leave it no room. Where the `noted` column is not
    shown in full, `notes` say it below.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    numeric: frozenset[str] = frozenset()
    important: Sequence[str] = ()
    shortened: frozenset[str] = frozenset()
    wrapped: frozenset[str] = frozenset()
    cut_last: frozenset[str] = frozenset()
    noted: str = ""
    notes: Sequence[str] = ()

    def only(self, names: Sequence[str]) -> "Table":
        """These columns in this order, each named by its heading or the beginning of it.

        Raises KeyError with the name that no heading has.
        """
        indices = [self._find_column(name) for name in names]
        return replace(
            self,
            headings=[self.headings[n] for n in indices],
            rows=[[row[n] for n in indices] for row in self.rows],
        )

    def _find_column(self, name: str) -> int:
        headings = [heading.casefold() for heading in self.headings]
        prefix = name.strip().casefold()
        if prefix in headings:
            return headings.index(prefix)
        matches = [n for n, heading in enumerate(headings) if prefix and heading.startswith(prefix)]
        if len(matches) != 1:
            raise KeyError(name)
        return matches[0]


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is shown: its place in the rows, its width in characters."""

    number: int
    width: int


def fit(table: Table, width: int | None = None) -> list[Column]:
    """The columns that `width` characters have room for; all of them, in full, without one.

    The first column is there even where it alone is wider.
    """
    natural = [
        max(map(len, (heading, *cells)))
        for heading, cells in zip(table.headings, _columns(table), strict=True)
    ]
    everything = [Column(n, natural_width) for n, natural_width in enumerate(natural)]
    if width is None or _total(natural) <= width:
        return everything
    narrowest = [
        _narrowest(table, heading, cells)
        for heading, cells in zip(table.headings, _columns(table), strict=True)
    ]
    shown_columns = _by_importance(table)
    for place, n in enumerate(shown_columns):
        if table.headings[n] in table.cut_last:
            room = width - _total([*(narrowest[column] for column in shown_columns[:place]), 0])
            narrowest[n] = max(narrowest[n], min(natural[n], room))
    while len(shown_columns) > 1 and _total([narrowest[n] for n in shown_columns]) > width:
        shown_columns.pop()
    spare = max(0, width - _total([narrowest[n] for n in shown_columns]))
    widths = {}
    for n in shown_columns:
        widths[n] = min(natural[n], narrowest[n] + spare)
        spare -= widths[n] - narrowest[n]
    return [Column(n, widths[n]) for n in sorted(widths)]


def list_hidden_headings(table: Table, columns: Sequence[Column]) -> list[str]:
    """Headings of the columns that are not among these."""
    shown_numbers = {column.number for column in columns}
    return [heading for n, heading in enumerate(table.headings) if n not in shown_numbers]


def needs_notes(table: Table, columns: Sequence[Column]) -> bool:
    """Return whether text of the noted column is cut in these columns, or missing."""
    if not table.notes or table.noted not in table.headings:
        return False
    place = list(table.headings).index(table.noted)
    width = next((column.width for column in columns if column.number == place), 0)
    return any(len(row[place]) > width for row in table.rows)


def cell_lines(table: Table, heading: str, cell: str, width: int) -> list[str]:
    """A cell's text in lines of at most `width`; longer only where it may not be changed."""
    if len(cell) <= width:
        return [cell]
    if heading in table.wrapped:
        return textwrap.wrap(cell, width)
    return [cell[: width - 1] + ELLIPSIS] if heading in table.shortened else [cell]


def heading_lines(heading: str, width: int) -> list[str]:
    """A heading broken at its spaces."""
    return textwrap.wrap(heading, width, break_long_words=False)


def _columns(table: Table) -> list[tuple[str, ...]]:
    return list(zip(*table.rows, strict=True)) if table.rows else [()] * len(table.headings)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _narrowest(table: Table, heading: str, cells: Sequence[str]) -> int:
    longest_cell = max(map(len, cells), default=0)
    if heading in table.shortened | table.wrapped:
        longest_cell = min(MIN_COLUMN_WIDTH, longest_cell)
    return max(longest_cell, *map(len, heading.split()))


def _by_importance(table: Table) -> list[int]:
    """Places of columns, the most important first."""
    ranks = {heading: n for n, heading in enumerate(table.important)}
    is_empty = [set(cells) <= {"", UNKNOWN} for cells in _columns(table)]

    def rank(n: int) -> tuple[bool, bool, int, int]:
        return n > 0, is_empty[n], ranks.get(table.headings[n], len(ranks)), n

    return sorted(range(len(table.headings)), key=rank)
