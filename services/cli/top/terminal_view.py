"""The live view as a terminal application."""

import asyncio
import re
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, Static

from services.cli.display.output import STYLES, plain_text
from services.cli.top.fleet_feed import FleetFeed
from services.cli.top.fleet_rows import EMPTY, FULL, SortKey, summary, top_table

REDRAW_SECONDS: Final = 0.5
LABELS: Final = {SortKey.UTILIZATION: "util", SortKey.TEMPERATURE: "temp"}  # for 80 columns
HOT_PERCENT: Final = 85
WARM_PERCENT: Final = 50
_STYLES: Final = {**STYLES, "sim": "magenta"}
_BAR: Final = re.compile(f"[{FULL}{EMPTY}]+")
_WORD: Final = re.compile(r"[a-z_]+")


class GpuLines(ScrollView, can_focus=True):
    """Only lines that are in view are turned into something coloured."""

    lines: Sequence[str] = ()

    def show(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.virtual_size = Size(self.size.width, len(lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        line = self.lines[number] if number < len(self.lines) else ""
        strip = Strip(colour_line(line).render(self.app.console))
        return strip.crop_extend(0, self.size.width, None).apply_style(self.rich_style)


class TopApp(App[None]):
    """Shows a feed until it is left."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary, #headings { text-style: bold; height: auto; }
    #lost { background: $error; color: $text; height: auto; display: none; }
    #filter { border: none; height: 1; display: none; }
    GpuLines { height: 1fr; scrollbar-size-horizontal: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        ("slash", "filter", "filter"),
        Binding("escape", "clear", "All", show=False),
        *((key.value[0], f"sort('{key.value}')", LABELS.get(key, key.value)) for key in SortKey),
    ]

    def __init__(self, feed: FleetFeed) -> None:
        super().__init__()
        self.feed = feed
        self.sort_key, self.wanted_text = SortKey.NODE, ""

    def compose(self) -> ComposeResult:
        yield Static(id="summary", markup=False)
        yield Static(id="lost", markup=False)
        yield Static(id="headings", markup=False)
        yield GpuLines()
        yield Input(id="filter", placeholder="node, model, holder, namespace, state or health")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(GpuLines).focus()
        self.run_worker(self.feed.follow())
        self.set_interval(REDRAW_SECONDS, self.redraw)
        self.call_after_refresh(self.redraw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    def redraw(self) -> None:
        """Show the feed's newest state."""
        now = asyncio.get_running_loop().time()
        rows = self.feed.state.rows(now, sort=self.sort_key, text=self.wanted_text)
        view = self.query_one(GpuLines)
        sort_text = f"  by {self.sort_key.value}" if self.sort_key is not SortKey.NODE else ""
        sort_text += f"  with {self.wanted_text!r}" if self.wanted_text else ""
        self.query_one("#summary", Static).update(summary(rows) + sort_text)
        table = top_table(rows)
        lines = plain_text(table, max(view.size.width - 2, 1)).split("\n")
        self.query_one("#headings", Static).update(lines[0])
        view.show(lines[1:] if rows else ["no GPU to show"])
        lost = self.query_one("#lost", Static)
        lost.display = bool(self.feed.lost)
        lost.update(f"connection lost, trying again: {self.feed.lost}")

    def action_sort(self, key: str) -> None:
        self.sort_key = SortKey(key)
        self.redraw()

    def action_filter(self) -> None:
        text_input = self.query_one(Input)
        text_input.display = True
        text_input.focus()

    def action_clear(self) -> None:
        self.query_one(Input).value = ""
        self._leave_filter()

    def on_input_changed(self, changed: Input.Changed) -> None:
        self.wanted_text = changed.value
        self.redraw()

    def on_input_submitted(self) -> None:
        self._leave_filter()

    def _leave_filter(self) -> None:
        self.query_one(Input).display = False
        self.query_one(GpuLines).focus()


def colour_line(line: str) -> Text:
    """Bars by how full they are, states in the colours that every table has."""
    text = Text(line, no_wrap=True, end="")
    for match in _BAR.finditer(line):
        percent = 100 * match[0].count(FULL) / len(match[0])
        style = "green" if percent < WARM_PERCENT else "yellow" if percent < HOT_PERCENT else "red"
        text.stylize(style, *match.span())
    for match in _WORD.finditer(line):
        if match[0] in _STYLES:
            text.stylize(_STYLES[match[0]] or "", *match.span())
    return text
