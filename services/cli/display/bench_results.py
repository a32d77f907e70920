"""What `bench` shows: how far it is on one line, then a table of levels."""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TextIO

import click
import msgspec

from schemas.task.benchmark import (
    BenchmarkResult,
    Distribution,
    LevelMark,
    LevelResult,
)
from schemas.task.level_bound import Bound
from schemas.task.modality import Modality
from schemas.task.prefix_cache import CacheReset
from schemas.telemetry.monitoring import GpuStats
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import number, print_table
from services.cli.display.task_results import gpu_cells
from shared.benchmarks.experiment_metrics import has_failed
from shared.benchmarks.levels.level_text import (
    describe_failed_levels,
    load_text,
    percent_text,
    request_text,
)
from shared.benchmarks.tools.adapter import LoadPhase, Progress, ProgressCallback
from shared.datasets.texts import dataset_text
from shared.traces.texts import trace_text

CLEAR_LINE: Final = "\r\x1b[K"
_MARK_TEXTS: Final = {
    LevelMark.NOT_STEADY: "not steady, its latency drifts; more --max-requests or less load",
    LevelMark.LITTLES_LAW: "too short for its load: rate, latency and requests at once do not fit"
    " together (Little's law)",
    LevelMark.CACHE_NOT_RESET: "the engine did not reset its prefix cache",
    LevelMark.CACHE_HITS: "set aside, it was served from the prefix cache",
    LevelMark.CLIENT_LIMITED: "the load generator itself may have made over 5 % of the latency",
    LevelMark.SENT_LATE: "requests were sent late",
    LevelMark.ANSWER_PIECES: "answers came several tokens a piece, of which this tool makes too"
    " small a time per token",
    LevelMark.PREFIX_SHARE: "its prompts shared over 3 points more or less than the trace's",
}
_RESET_TEXTS: Final = {
    CacheReset.VERIFIED: "prefix cache: emptied before each level, and found empty",
    CacheReset.UNSUPPORTED: "prefix cache: the engine shows none that could be emptied, so that"
    " each level had new prompts",
    None: "prefix cache: not emptied, as this tool draws prompts of its own",
}
_BOUND_TEXTS: Final = {
    Bound.PREFILL: "prefill",
    Bound.DECODE: "decode",
    Bound.KV_CACHE: "KV cache",
    Bound.QUEUE: "queue",
    Bound.CLIENT: "client",
    Bound.POWER: "power",
    Bound.THERMAL: "heat",
}


_ITEM_HEADINGS: Final = {f"{modality.traits.items}/s" for modality in Modality}


@contextmanager
def show_progress(stream: TextIO) -> Iterator[ProgressCallback]:
    """Rewrite one line on a terminal; elsewhere a line when a level begins and when it ends."""
    last_progress: Progress | None = None

    def show(progress: Progress) -> None:
        nonlocal last_progress
        if stream.isatty():
            stream.write(f"{CLEAR_LINE}{progress_line(progress)}")
            stream.flush()
        elif last_progress is None or _stage(progress) != _stage(last_progress):
            click.echo(progress_line(progress), file=stream)
        last_progress = progress

    try:
        yield show
    finally:
        if last_progress is not None and stream.isatty():
            with contextlib.suppress(OSError):
                stream.write(CLEAR_LINE)
                stream.flush()


def _stage(progress: Progress) -> tuple[Any, ...]:
    done = progress.completed + progress.failed >= progress.total
    return progress.phase, progress.level_no, done


def progress_line(progress: Progress) -> str:
    """`level 1 of 2, D(100,100) at concurrency 4: measuring, 12 of 100 requests, 1 failed, 3 s`."""
    phase = "measuring" if progress.phase is LoadPhase.MEASURING else "warming up"
    counts = f", {progress.completed} of {progress.total} requests" if progress.completed else ""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return (
        f"level {progress.level_no} of {progress.levels_total}, {progress.scenario} at"
        f" {progress.load_text}: {phase}{counts}{failed}, {progress.elapsed_seconds:.0f} s"
    )


def print_result(document: Mapping[str, Any], *, gpus: int) -> None:
    """The levels, what the GPUs did meanwhile, and remarks on what the figures are worth.

    `gpus` is how many were to be watched.
    """
    result = msgspec.convert(document, BenchmarkResult)
    print_table(level_table(result, gpus=gpus))
    for level in result.levels:
        if level.turns:
            click.echo()
            print_table(turn_table(level))
    for remark in remarks(result):
        click.echo(remark)
    if not gpus:
        return
    if document["gpu_monitoring"] is not None:
        click.echo()
        print_table(gpu_table(document["gpu_monitoring"]))
    if missing := document["gpu_monitoring_missing"]:
        click.echo(f"GPUs not watched: {missing}", err=True)


def level_table(result: BenchmarkResult, *, gpus: int = 0) -> Table:
    """A row for each scenario at each concurrency; latencies are means, p99 where it is said.

    Throughput is also shown per GPU, if there are `gpus`. What no level has is left out, as of
    answers that come whole times and rates of their tokens.
    """
    max_error_rate = result.metrics.max_error_rate or 0.0
    cells = [_cells(level, has_failed(level, max_error_rate), gpus) for level in result.levels]
    optional = {"bound"} if not any(level.bound for level in result.levels) else set()
    if not all(level.modality.has_tokens for level in result.levels):
        optional |= {"ttft ms", "ttft p99 ms", "tpot ms", "output tok/s", "output per GPU"}
    headings = [heading for heading in (cells[0] if cells else ()) if heading not in optional]
    items = [heading for heading in headings if heading in _ITEM_HEADINGS]
    return Table(
        headings,
        [[row[heading] for heading in headings] for row in cells],
        title=f"measured by {result.tool.value} {result.tool_version}",
        numeric=frozenset(headings) - {"scenario", "load", "bound"},
        important=tuple(
            heading
            for heading in (
                *("at once", "load", "requests", "ttft ms", "tpot ms", "e2e s", *items),
                *("output tok/s", "bound", "output per GPU", "errors", "e2e p99 s"),
                *("ttft p99 ms", "requests/s", "total tok/s"),
            )
            if heading in headings
        ),
    )


def _cells(level: LevelResult, failed: bool, gpus: int) -> dict[str, str]:
    stats, items = level.stats, level.modality.traits.items
    output_rate = level.mean_output_throughput_tokens_per_s
    total_rate = level.mean_total_tokens_throughput_tokens_per_s
    total = "input" if items else "total"
    rates = {
        **({f"{items}/s": level.items_per_second} if items else {}),
        "output tok/s": output_rate,
        **({"output per GPU": _divide(output_rate, gpus)} if gpus else {}),
        f"{total} tok/s": total_rate,
        **({f"{total} per GPU": _divide(total_rate, gpus)} if gpus else {}),
    }
    return {
        "scenario": level.scenario,
        "at once": level.arrivals or str(level.num_concurrency),
        "requests": f"{level.num_completed_requests}/{level.num_requests}",
        "errors": f"{level.error_rate:.1%}",
        "load": "failed" if failed else "served",
        "seconds": number(level.run_duration, 1),
        "ttft ms": number(_scale(stats.ttft, "mean", 1000), 1),
        "ttft p99 ms": number(_scale(stats.ttft, "p99", 1000), 1),
        "tpot ms": number(_scale(stats.tpot, "mean", 1000), 2),
        "e2e s": number(_scale(stats.e2e_latency, "mean"), 3),
        "e2e p99 s": number(_scale(stats.e2e_latency, "p99"), 3),
        "requests/s": number(level.requests_per_second, 2),
        **{heading: number(rate, 1) for heading, rate in rates.items()},
        "bound": _BOUND_TEXTS[level.bound.bound] if level.bound is not None else UNKNOWN,
    }


def _divide(rate: float | None, gpus: int) -> float | None:
    return None if rate is None else rate / gpus


def _scale(spread: Distribution | None, name: str, factor: float = 1.0) -> float | None:
    return None if spread is None else getattr(spread, name) * factor


def turn_table(level: LevelResult) -> Table:
    """Return a table of how long each turn of a conversation took."""
    headings = ["turn", "requests", "prompt tokens", "ttft ms", "ttft p99 ms", "tpot ms", "e2e s"]
    rows = [
        [
            str(turn.turn),
            str(turn.num_completed_requests),
            number(turn.mean_input_tokens, 0),
            number(1000 * turn.mean_ttft, 1),
            number(1000 * turn.p99_ttft, 1),
            number(None if turn.mean_tpot is None else 1000 * turn.mean_tpot, 2),
            number(turn.mean_e2e_latency, 3),
        ]
        for turn in level.turns
    ]
    title = f"{load_text(level)}, by turn"
    return Table(headings, rows, title=title, numeric=frozenset(headings))


def _level_remarks(level: LevelResult) -> Iterator[str]:
    if level.error_codes_frequency:
        codes = ", ".join(
            f"{count} x {code}" for code, count in level.error_codes_frequency.items()
        )
        yield f"failed with {codes}"
    yield from (_MARK_TEXTS[mark] for mark in level.marks)
    use = level.prefix_cache
    if use is not None and use.trace_share is not None:
        shares = (round(share or 0.0, 3) for share in (use.asked_share, use.trace_share))
        sent, of_trace = map(percent_text, shares)
        yield f"its prompts shared {sent}, {of_trace} in the trace"
    if use is not None and use.hit_tokens and level.set_aside is None:
        share = percent_text(round(use.hit_share or 0.0, 2))
        asked_share = use.asked_share
        beside = (
            f", {percent_text(round(asked_share, 2))} had been sent before" if asked_share else ""
        )
        yield f"{share} of its prompt tokens from the prefix cache{beside}"
    if level.bound is not None:
        yield f"bound by {_BOUND_TEXTS[level.bound.bound]}: {level.bound.evidence}"


def remarks(result: BenchmarkResult) -> list[str]:
    """Return what a reader has to know about the figures."""
    lines = []
    if result.simulated:
        lines.append("the engine is simulated: these latencies and rates are made up")
    if result.over_tls:
        lines.append("measured over TLS: its cost is in the figures")
    if result.dataset is not None:
        lines.append(dataset_text(result.dataset))
    if result.trace is not None:
        lines.append(trace_text(result.trace))
    lines += dict.fromkeys(filter(None, map(request_text, result.levels)))
    if any(level.tokens_estimated for level in result.levels):
        lines.append("token counts are estimates: the server told none, or the tool read none")
    resets = {level.prefix_cache and level.prefix_cache.reset for level in result.levels}
    lines += [text for reset, text in _RESET_TEXTS.items() if reset in resets]
    for level in result.levels:
        lines += [f"{load_text(level)}: {text}" for text in _level_remarks(level)]
    if failed := result.metrics.failed_levels:
        limit = percent_text(result.metrics.max_error_rate or 0.0)
        lines.append(
            f"failed: {describe_failed_levels(failed)}"
            f" (at most {limit} of the requests may fail: max_error_rate)"
        )
    return lines


def gpu_table(gpu_use: Mapping[str, Any]) -> Table:
    """Return a table of what each GPU did while the benchmark ran."""
    rows = []
    for index, plain in sorted(gpu_use["gpu_stats"].items(), key=lambda item: int(item[0])):
        stats = msgspec.convert(plain, GpuStats)
        rows.append([f"{index} {stats.name}", *gpu_cells(stats)])
    headings = ["GPU", "util %", "memory MB", "temp C", "power W", "samples"]
    title = f"GPUs over {gpu_use['monitoring_duration_seconds']:.0f} s, min/mean/max"
    return Table(headings, rows, title=title, numeric=frozenset(headings) - {"GPU"})
