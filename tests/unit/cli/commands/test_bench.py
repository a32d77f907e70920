"""What `bench` shows: units, unknown values, remarks, and its one line of progress."""

import io
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from schemas.task.benchmark import (
    BenchmarkResult,
    BenchmarkTool,
    LevelMark,
    LevelResult,
)
from schemas.task.level_bound import Bound, LevelBound
from schemas.task.prefix_cache import CacheReset, PrefixCacheUse
from services.cli.display.bench_results import level_table, progress_line, remarks, show_progress
from shared.benchmarks.experiment_metrics import aggregate
from shared.benchmarks.metrics import RequestSample, level_result
from shared.benchmarks.tools.adapter import LoadPhase, Progress

NOT_EMPTIED = "prefix cache: not emptied, as this tool draws prompts of its own"


def make_level(*, completed: int = 2, **errors: int) -> LevelResult:
    sample = RequestSample(ttft=0.5, e2e_latency=2.5, num_input_tokens=100, num_output_tokens=21)
    return level_result(
        scenario="D(100,21)",
        num_concurrency=2,
        started_at=datetime(2026, 1, 2, tzinfo=UTC),
        run_duration=4.0,
        samples=[sample] * completed,
        error_codes=errors,
    )


def make_result(*levels: LevelResult, simulated: bool = False) -> BenchmarkResult:
    return BenchmarkResult(
        tool=BenchmarkTool.GENAI_BENCH,
        tool_version="0.0.5",
        simulated=simulated,
        levels=levels,
        metrics=aggregate(levels),
        elapsed_seconds=9.0,
    )


def make_progress(**overrides: object) -> Progress:
    given: dict[str, object] = {
        "phase": LoadPhase.MEASURING,
        "level_no": 1,
        "levels_total": 2,
        "scenario": "D(8,4)",
        "num_concurrency": 4,
        "completed": 0,
        "failed": 0,
        "total": 10,
        "elapsed_seconds": 3.4,
    }
    return Progress(**given | overrides)  # type: ignore[arg-type]  # any field


def test_level_is_shown_in_heading_units() -> None:
    table = level_table(make_result(make_level()))

    shown = dict(zip(table.headings, table.rows[0], strict=True))
    assert shown == {
        "scenario": "D(100,21)",
        "at once": "2",
        "requests": "2/2",
        "errors": "0.0%",
        "load": "served",
        "seconds": "4.0",
        "ttft ms": "500.0",
        "ttft p99 ms": "500.0",
        "tpot ms": "100.00",
        "e2e s": "2.500",
        "e2e p99 s": "2.500",
        "requests/s": "0.50",
        "output tok/s": "10.5",
        "total tok/s": "60.5",
    }
    assert table.title == "measured by genai-bench 0.0.5"


def test_throughput_per_gpu_needs_named_gpus() -> None:
    table = level_table(make_result(make_level()), gpus=2)

    shown = dict(zip(table.headings, table.rows[0], strict=True))
    assert (shown["output per GPU"], shown["total per GPU"]) == ("5.2", "30.2")


def test_failed_level_has_no_latency() -> None:
    table = level_table(make_result(make_level(completed=0, unanswered=3)))

    shown = dict(zip(table.headings, table.rows[0], strict=True))
    assert (shown["load"], shown["requests"], shown["errors"]) == ("failed", "0/3", "100.0%")
    assert {shown[name] for name in ("ttft ms", "tpot ms", "e2e s", "e2e p99 s")} == {"-"}


def test_what_the_figures_are_worth_is_said() -> None:
    estimated = replace(make_level(**{"503": 2, "timeout": 1}), tokens_estimated=True)

    said = remarks(make_result(estimated, simulated=True))

    assert len(said) == 5
    assert "made up" in said[0]
    assert "estimates" in said[1]
    assert said[2] == NOT_EMPTIED
    assert said[3] == "D(100,21) at concurrency 2: failed with 2 x 503, 1 x timeout"
    assert said[4] == (
        "failed: D(100,21) at concurrency 2 served 2 of 5 (at most 1 % of the requests may fail: "
        "max_error_rate)"
    )
    assert remarks(make_result(make_level())) == [NOT_EMPTIED]


def test_what_became_of_the_prefix_cache_is_said() -> None:
    def with_cache(reset: CacheReset, hits: int = 0) -> LevelResult:
        use = PrefixCacheUse(reset=reset, queried_tokens=200, hit_tokens=hits, hit_share=hits / 200)
        return replace(make_level(), prefix_cache=use)

    verified, warm = with_cache(CacheReset.VERIFIED), with_cache(CacheReset.VERIFIED, 97)
    unsupported = with_cache(CacheReset.UNSUPPORTED)

    assert remarks(make_result(verified, verified)) == [
        "prefix cache: emptied before each level, and found empty"
    ]
    assert remarks(make_result(verified, warm))[1] == (
        "D(100,21) at concurrency 2: 48 % of its prompt tokens from the prefix cache"
    )
    assert "each level had new prompts" in remarks(make_result(unsupported))[0]
    failed = replace(with_cache(CacheReset.FAILED), marks=(LevelMark.CACHE_NOT_RESET,))
    assert remarks(make_result(failed)) == [
        "D(100,21) at concurrency 2: the engine did not reset its prefix cache"
    ]


def test_level_bound_is_shown_with_evidence() -> None:
    bound = LevelBound(bound=Bound.KV_CACHE, evidence="KV cache 97 % full, 14 preemptions, 6 wait")
    result = make_result(replace(make_level(), bound=bound), make_level())

    table = level_table(result)

    assert [row[table.headings.index("bound")] for row in table.rows] == ["KV cache", "-"]
    assert remarks(result) == [
        NOT_EMPTIED,
        "D(100,21) at concurrency 2: bound by KV cache: KV cache 97 % full, 14 preemptions, 6 wait",
    ]


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (make_progress(), "level 1 of 2, D(8,4) at concurrency 4: measuring, 3 s"),
        (
            make_progress(completed=7, failed=1),
            "level 1 of 2, D(8,4) at concurrency 4: measuring, 7 of 10 requests, 1 failed, 3 s",
        ),
        (
            make_progress(phase=LoadPhase.WARMING_UP),
            "level 1 of 2, D(8,4) at concurrency 4: warming up, 3 s",
        ),
    ],
)
def test_progress_is_one_line(progress: Progress, line: str) -> None:
    assert progress_line(progress) == line


def test_without_terminal_only_level_ends_are_printed() -> None:
    stream = io.StringIO()
    with show_progress(stream) as show:
        show(make_progress(phase=LoadPhase.WARMING_UP))
        for completed in (0, 4, 9):
            show(make_progress(completed=completed))
        show(make_progress(completed=10))
        show(make_progress(level_no=2))

    assert len(stream.getvalue().splitlines()) == 4


def test_embeddings_have_a_column_of_inputs_and_none_of_tokens() -> None:
    sample = RequestSample(e2e_latency=0.5, num_input_tokens=512)
    level = level_result(
        scenario="E(64)",
        num_concurrency=2,
        started_at=datetime(2026, 1, 2, tzinfo=UTC),
        run_duration=4.0,
        samples=[sample] * 8,
        error_codes={},
        batch_size=8,
    )

    table = level_table(make_result(level), gpus=2)
    [row] = table.rows
    shown = dict(zip(table.headings, row, strict=True))
    assert (shown["inputs/s"], shown["requests/s"]) == ("16.0", "2.00")
    assert (shown["input tok/s"], shown["input per GPU"]) == ("1024.0", "512.0")
    assert not [heading for heading in shown if "ttft" in heading or "output" in heading]
    assert "each request had 8 inputs" in remarks(make_result(level))
