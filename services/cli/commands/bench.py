"""`bench`: load on any OpenAI-compatible server, with or without a platform."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from schemas.errors import ErrorCode
from schemas.task.benchmark import MAX_ERROR_RATE, BenchmarkTool
from schemas.task.modality import MAX_BATCH
from schemas.task.turns import MAX_TURNS
from services.cli import interruption
from services.cli.display.output import print_json, wide_option
from services.cli.failures import CommandFailed, leave
from services.cli.option_types import SecondsRange
from services.cli.options import data_dir_option

API_KEY_VARIABLE = "GPUSTEWARD_BENCH_API_KEY"


class _Bench(click.Group):
    """`bench URL` is `bench run URL`, since nothing else follows the word but names of commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(
            ctx.command_path, "URL [OPTIONS] | install [OPTIONS] | record-trace [OPTIONS] LOG"
        )


@click.group(cls=_Bench)
def bench() -> None:
    """Benchmark an OpenAI-compatible server, or install a tool for it.

    `gpusteward bench URL` measures the server at URL; no platform needs to run. `gpusteward bench
    run -h` lists its options.
    """


@bench.command("run")
@click.argument("url", metavar="URL")
@click.option("--model", metavar="NAME", help="Name of the model; default: the one it serves.")
@click.option(
    "--tokenizer",
    metavar="PLACE",
    help="Folder, GGUF file or hub name for genai-bench; default: the model's own, if found.",
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    default=("D(100,100)",),
    show_default=True,
    metavar="TEXT",
    help="Traffic, as in D(in,out) or N(mean,stddev)/(mean,stddev), E(in) of embeddings,"
    " R(document,query) of rerank, I(width,height,images); several are measured in turn.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, MAX_BATCH),
    default=1,
    show_default=True,
    metavar="N",
    help="Inputs of a request of E, documents of one of R.",
)
@click.option(
    "--concurrency",
    "concurrencies",
    type=click.IntRange(1, 4096),
    multiple=True,
    default=(1,),
    show_default=True,
    metavar="N",
    help="Requests at once; several are measured in turn.",
)
@click.option(
    "--arrivals",
    multiple=True,
    metavar="TEXT",
    help="Load instead of --concurrency: closed(N), or poisson(RATE), constant(RATE),"
    " burst(RATE,SIZE) in requests per second; not with genai-bench.",
)
@click.option(
    "--dataset",
    metavar="FILE",
    help="File, or URL, of prompts in place of made ones; as they are in the scenario 'dataset'.",
)
@click.option(
    "--trace",
    metavar="FILE",
    help="File, or URL, of a recorded load for the scenario 'trace', or arrivals 'trace' or"
    " 'trace(SPEED)'; not with genai-bench.",
)
@click.option(
    "--prefix-share",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Share of every prompt that all requests have in common; not with genai-bench.",
)
@click.option(
    "--turns",
    type=click.IntRange(1, MAX_TURNS),
    default=1,
    show_default=True,
    metavar="N",
    help="Turns of a conversation, each sent with all before it; loads are then of conversations;"
    " not with genai-bench.",
)
@click.option(
    "--think-seconds",
    type=SecondsRange(0, 3600),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Pause between an answer and the next turn.",
)
@click.option(
    "--max-requests",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="N",
    help="Requests of a level.",
)
@click.option(
    "--max-time",
    type=SecondsRange(0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Time of a level; genai-bench takes whole minutes, rounded up.",
)
@click.option(
    "--max-error-rate",
    type=click.FloatRange(0, 1, max_open=True),
    default=MAX_ERROR_RATE,
    show_default=True,
    metavar="SHARE",
    help="Share of a level's requests that may fail; with more the level has failed.",
)
@click.option(
    "--warmup",
    type=click.IntRange(0, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Requests before measuring.",
)
@click.option(
    "--tool",
    type=click.Choice([tool.value for tool in BenchmarkTool]),
    default=BenchmarkTool.AUTO.value,
    show_default=True,
    help="Load generator; auto takes genai-bench where it is installed and can.",
)
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Field added to every request; VALUE is JSON, else text.",
)
@click.option(
    "--gpu",
    "gpus",
    type=click.IntRange(0),
    multiple=True,
    metavar="INDEX",
    help="Watch this GPU of the node meanwhile, through the running platform; throughput is shown"
    " per such GPU.",
)
@click.option("--node", metavar="ID", help="Node of the GPUs; default: this host, or the only one.")
@click.option(
    "--api-key",
    envvar=API_KEY_VARIABLE,
    show_envvar=True,
    metavar="KEY",
    help="API key for the server; it is never stored.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the tool's own files here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@wide_option
def run(
    url: str,
    model: str | None,
    tokenizer: str | None,
    scenarios: tuple[str, ...],
    batch_size: int,
    concurrencies: tuple[int, ...],
    arrivals: tuple[str, ...],
    dataset: str | None,
    trace: str | None,
    prefix_share: float,
    turns: int,
    think_seconds: float,
    max_requests: int,
    max_time: float,
    max_error_rate: float,
    warmup: int,
    tool: str,
    parameters: tuple[str, ...],
    gpus: tuple[int, ...],
    node: str | None,
    api_key: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure the OpenAI-compatible server at URL, level by level.

    A level is one scenario at one concurrency. The exit code is 0 only if no level failed.
    """
    document = {
        "model_name": model,
        "model_tokenizer": tokenizer,
        "traffic_scenarios": scenarios,
        "batch_size": batch_size,
        "num_concurrency": concurrencies,
        "arrivals": arrivals,
        **({"dataset": _source(dataset)} if dataset is not None else {}),
        **({"trace": _source(trace)} if trace is not None else {}),
        "prefix_share": prefix_share,
        "turns": turns,
        "think_seconds": think_seconds,
        "max_requests_per_level": max_requests,
        "max_time_per_level_seconds": max_time,
        "max_error_rate": max_error_rate,
        "warmup_requests": warmup,
        "tool": tool,
        "additional_params": dict(map(_parameter, parameters)),
    }
    options = {"node_id": node, "monitor": bool(gpus), "api_key": api_key, "directory": output}
    result = interruption.run(_measure(_url(url), document, list(gpus) or None, options))
    if as_json:
        print_json(result)
    else:
        from services.cli.display.bench_results import print_result

        print_result(result, gpus=len(set(gpus)))
    leave(1 if result["metrics"]["failed_levels"] else 0)


@bench.command()
@click.argument(
    "tool", type=click.Choice(["genai-bench", "aiperf", "aiconfigurator"]), default="genai-bench"
)
@click.option("--again", "reinstall", is_flag=True, help="Reinstall.")
@data_dir_option
def install(tool: str, reinstall: bool, data_dir: Path | None) -> None:
    """Install TOOL into an environment of its own, inside the data directory.

    Every platform on that data directory has it; `auto` prefers genai-bench, the default, from then
    on, and takes aiperf never. aiconfigurator measures nothing: it predicts, for the prior of a
    search.
    """
    from shared.benchmarks.aiconfigurator.installation import AICONFIGURATOR
    from shared.benchmarks.aiperf.installation import AIPERF
    from shared.benchmarks.genai_bench.installation import GENAI_BENCH
    from shared.benchmarks.tools import install as tool_install
    from shared.paths import tools_directory

    tools = data_dir.resolve() / "tools" if data_dir is not None else tools_directory()
    try:
        with interruption.keyboard_interrupts():
            chosen_tool = {
                candidate.name: candidate for candidate in (GENAI_BENCH, AIPERF, AICONFIGURATOR)
            }[tool]
            tool_install.install(
                chosen_tool, tools, lambda line: click.echo(line, err=True), reinstall=reinstall
            )
    except tool_install.InstallationFailed as error:
        raise CommandFailed(ErrorCode.UNAVAILABLE, str(error)) from error


@bench.command("record-trace")
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--engine", metavar="NAME", help="Whose log it is; default: the one that it looks like."
)
@click.option(
    "--block-tokens",
    type=click.IntRange(1, 65_536),
    default=512,
    show_default=True,
    metavar="N",
    help="Tokens of a block of hash_ids; as benchmark.trace.block_tokens then.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the trace here; default: to the terminal.",
)
def record_trace(log: Path, engine: str | None, block_tokens: int, output: Path | None) -> None:
    """Make a trace of an engine's LOG of requests: times, lengths, shared beginnings, no text.

    vLLM writes such a log with --enable-log-requests, --enable-log-outputs and
    VLLM_LOGGING_LEVEL=DEBUG, SGLang with --log-requests; it may be gzip.
    """
    from services.cli.trace_recording import record_log

    record_log(log, engine, block_tokens, output)


async def _measure(
    url: str,
    document: Mapping[str, Any],
    gpus: list[int] | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    from services.cli.display.bench_results import show_progress
    from shared.benchmarks.tools.adapter import ModelNotServed, ServerUnreachable
    from shared.client.aio_benchmarks import run_benchmark_job
    from shared.datasets.hosts import HOSTS_SETTING, PRIVATE_HOSTS_SETTING, AllowedHosts

    names = (HOSTS_SETTING, PRIVATE_HOSTS_SETTING)
    hosts = AllowedHosts.of(*(os.environ.get(name, "") for name in names))
    task = asyncio.current_task()
    if task is not None:
        # So that the tool and its files go with us; an interrupt does the same by itself.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        with show_progress(sys.stderr) as show:
            return await run_benchmark_job(
                url, document, gpus, on_progress=show, hosts=hosts, **options
            )
    except ModelNotServed as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"{error}; name one with --model") from error
    except ServerUnreachable as error:
        hint = "look whether it runs, and whether the URL is the one before /v1"
        raise CommandFailed(ErrorCode.UNAVAILABLE, f"{error}; {hint}") from error


def _url(text: str) -> str:
    """Add the scheme to an address such as `localhost:8000`."""
    url = text if "://" in text else f"http://{text}"
    if not url.startswith(("http://", "https://")):
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"expected a URL of a server, got {text!r}")
    return url


def _source(place: str) -> dict[str, str]:
    return {"url" if place.startswith(("http://", "https://")) else "path": place}


def _parameter(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"expected NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
