"""The commands by which other tools send the load of one level."""

import json
import random
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from schemas.task.load_commands import LoadCommand
from schemas.task.modality import Modality, modality_of
from shared.benchmarks.arrivals import Load, is_trace
from shared.benchmarks.genai_bench import command as genai_bench
from shared.benchmarks.request_body import PATHS
from shared.benchmarks.tools.abilities import list_unserved
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.traffic import DATASET, parse_scenario, request_parameters

VLLM: Final = "vllm bench serve"
_TWO: Final = r"\((\d+),(\d+)\)"
_FIXED: Final = re.compile(rf"D{_TWO}")
_NORMAL: Final = re.compile(rf"N{_TWO}/{_TWO}")
_UNIFORM_FROM_ONE: Final = re.compile(r"U\((\d+)\)/\((\d+)\)")
_UNIFORM: Final = re.compile(rf"U{_TWO}/{_TWO}")
_RATED: Final = re.compile(r"(poisson|constant)\(([\d.]+)\)")


@dataclass(frozen=True, slots=True)
class _Level:
    spec: BenchmarkSpec
    scenario: str
    load: Load
    target: Target


class _CannotSay(Exception):  # no fault of the reader's
    """The tool has no option for it; its text says for what."""


def make_load_commands(
    spec: BenchmarkSpec, scenario: str, load: Load, target: Target
) -> tuple[LoadCommand, ...]:
    """Return each tool's command for the level, or why it has none.

    They send requests of the same lengths in the same rhythm; the texts of prompts are each
    tool's own. `--api-key` is left out of all.
    """
    of_level = replace(
        spec, load_search=None, arrivals=(load.arrivals,) if load.arrivals is not None else ()
    )
    tools: dict[str, Callable[[_Level], list[str]]] = {
        BenchmarkTool.BUILTIN.value: _build_own,
        BenchmarkTool.GENAI_BENCH.value: _build_genai_bench,
        BenchmarkTool.AIPERF.value: _build_aiperf,
        VLLM: _build_vllm,
    }
    if spec.adapters:
        reason = "its requests would all be to one model, and not to the task's adapters"
        return tuple(LoadCommand(tool=tool, reason=reason) for tool in tools)
    if spec.dataset is not None or spec.trace is not None:
        kind = "trace" if spec.dataset is None else "dataset"
        reason = f"its prompts would not be those of the task's {kind}"
        return tuple(LoadCommand(tool=tool, reason=reason) for tool in tools)
    commands = []
    for tool, make in tools.items():
        try:
            parts = make(_Level(of_level, scenario, load, target))
            commands.append(LoadCommand(tool=tool, command=" ".join(map(shlex.quote, parts))))
        except _CannotSay as error:
            commands.append(LoadCommand(tool=tool, reason=str(error)))
    return tuple(commands)


def _build_own(level: _Level) -> list[str]:
    spec, scenario, load, target = level.spec, level.scenario, level.load, level.target
    if scenario == DATASET:
        raise _CannotSay("it makes its prompts and reads no dataset")
    if is_trace(load.arrivals):
        raise _CannotSay("its command line takes no times of arrivals; a task file does")
    parts = ["gpusteward", "bench", "run", target.base_url, "--tool", "builtin"]
    parts += _write_options(
        {
            "model": target.model_name,
            "scenario": scenario,
            **({"batch-size": spec.batch_size} if spec.batch_size > 1 else {}),
            "max-requests": spec.max_requests_per_level,
            "max-time": spec.max_time_per_level_seconds,
            "max-error-rate": spec.max_error_rate,
            "warmup": spec.warmup_requests,
            **({"arrivals": load.arrivals} if load.arrivals else {"concurrency": load.concurrency}),
            **({"prefix-share": spec.prefix_share} if spec.prefix_share else {}),
            **({"turns": spec.turns} if spec.turns > 1 else {}),
            **({"think-seconds": spec.think_seconds} if spec.think_seconds else {}),
        }
    )
    for name, value in spec.additional_params.items():
        text = value if isinstance(value, str) else json.dumps(value)
        parts += ["--param", f"{name}={text}"]
    return parts


def _build_genai_bench(level: _Level) -> list[str]:
    spec, scenario, load, target = level.spec, level.scenario, level.load, level.target
    missing = list_unserved(
        replace(spec, num_concurrency=(load.concurrency,)), BenchmarkTool.GENAI_BENCH
    )
    if "num_concurrency" in missing:
        raise _CannotSay(f"it sends requests of {spec.modality.value} one after the other")
    if missing:
        raise _CannotSay(f"it has no option for {', '.join(missing)}")
    if spec.modality is Modality.IMAGES:
        raise _CannotSay("it reads images from a folder, of which the task has none")
    if scenario == DATASET:
        raise _CannotSay("the path of the dataset is not part of the task")
    tokenizer = spec.model_tokenizer or target.model_name
    options, parameters = genai_bench.load_options(
        spec, target, scenario, tokenizer=tokenizer, owned_by=None
    )
    if spec.modality.has_tokens:
        options["num-concurrency"] = str(load.concurrency)
    if parameters:
        options["additional-request-params"] = json.dumps(parameters)
    return ["genai-bench", "benchmark", *_write_options(options)]


def _build_aiperf(level: _Level) -> list[str]:
    spec, load, target = level.spec, level.load, level.target
    sizes = _read_sizes(level.scenario, spec.batch_size)
    if sizes.spread:
        raise _CannotSay(f"its lengths are normal or fixed, not {level.scenario}")
    options: dict[str, Any] = {
        "model": target.model_name,
        "tokenizer": spec.model_tokenizer or target.model_name,
        "url": target.base_url,
        **_size_aiperf(spec.modality, sizes),
        "request-count": spec.max_requests_per_level,
        "warmup-request-count": spec.warmup_requests,
        "benchmark-duration": spec.max_time_per_level_seconds,
    }
    if spec.prefix_share:
        options["num-prefix-prompts"] = 1
        options["prefix-prompt-length"] = _count_shared_tokens(level, sizes)
        options["isl"] = sizes.input_tokens - options["prefix-prompt-length"]
    if spec.turns > 1:
        options["conversation-turn-mean"] = spec.turns
        options["conversation-turn-stddev"] = 0
        options["conversation-turn-delay-mean"] = 1000 * spec.think_seconds
        options["conversation-num"] = -(-spec.max_requests_per_level // spec.turns)
        del options["request-count"]
    if load.arrivals is None:
        options["concurrency"] = load.concurrency
    else:
        kind, rate_per_s = _read_rate(load.arrivals)
        options |= {"request-rate": rate_per_s, "arrival-pattern": kind}
    extra = [
        f"--extra-inputs={name}:{json.dumps(value)}"
        for name, value in request_parameters(spec.additional_params, spec.modality).items()
    ]
    streaming = ["--streaming"] if spec.modality.has_tokens else []
    return ["aiperf", "profile", *streaming, *_write_options(options), *extra]


def _size_aiperf(modality: Modality, sizes: "_Sizes") -> dict[str, Any]:
    """Return AIPerf's options of what a request is."""
    if modality is Modality.EMBEDDINGS:
        items = {"isl": sizes.item_tokens, "isl-stddev": 0, "batch-size-text": sizes.num_items}
        return {"endpoint-type": "embeddings", **items}
    if modality is Modality.RERANK:
        return {
            "endpoint-type": "cohere-rankings",
            "custom-endpoint": PATHS[modality],
            "rankings-passages-mean": sizes.num_items,
            "rankings-passages-prompt-token-mean": sizes.item_tokens,
            "rankings-query-prompt-token-mean": sizes.query_tokens,
        }
    width, height = sizes.image_size
    images = {
        "image-batch-size": sizes.num_items,
        "image-width-mean": width,
        "image-height-mean": height,
    }
    return {
        "endpoint-type": "chat",
        "isl": sizes.input_tokens,
        "isl-stddev": sizes.input_stddev,
        "osl": sizes.output_tokens,
        "osl-stddev": sizes.output_stddev,
        **(images if modality is Modality.IMAGES else {}),
    }


def _build_vllm(level: _Level) -> list[str]:
    spec, load, target = level.spec, level.load, level.target
    sizes = _read_sizes(level.scenario, spec.batch_size)
    if sizes.input_stddev or sizes.output_stddev:
        raise _CannotSay(f"its lengths are uniform or fixed, not {level.scenario}")
    if spec.modality is Modality.RERANK:
        raise _CannotSay("its documents are as long as its query, which is the same in all")
    if spec.turns > 1:
        raise _CannotSay("it sends no conversations")
    options: dict[str, Any] = {
        "base-url": target.base_url,
        "endpoint": PATHS[spec.modality],
        "model": target.model_name,
        "tokenizer": spec.model_tokenizer or target.model_name,
        **_size_vllm(spec, sizes),
        "num-warmups": spec.warmup_requests,
    }
    if sizes.spread:
        options["random-range-ratio"] = sizes.compute_range_ratio()
    if spec.prefix_share:
        options["random-prefix-len"] = _count_shared_tokens(level, sizes)
        options["random-input-len"] = sizes.input_tokens - options["random-prefix-len"]
    if load.arrivals is None:
        options["max-concurrency"] = load.concurrency
    else:
        kind, rate_per_s = _read_rate(load.arrivals)
        if kind != "poisson":
            raise _CannotSay("its requests come at random times, not evenly")
        options["request-rate"] = rate_per_s
    parameters = request_parameters(spec.additional_params, spec.modality)
    flags = ["--ignore-eos"] if parameters.pop("ignore_eos", False) else []
    if parameters:
        options["extra-body"] = json.dumps(parameters)
    return [*VLLM.split(), *_write_options(options), *flags]


def _size_vllm(spec: BenchmarkSpec, sizes: "_Sizes") -> dict[str, Any]:
    """Return its options of what a request is, and of how many there are: it counts inputs."""
    if spec.modality is Modality.EMBEDDINGS:
        return {
            "backend": "openai-embeddings",
            "dataset-name": "random",
            "random-input-len": sizes.item_tokens,
            "random-batch-size": sizes.num_items,
            "num-prompts": spec.max_requests_per_level * sizes.num_items,
            "percentile-metrics": "e2el",
        }
    options: dict[str, Any] = {
        "backend": "openai-chat",
        "dataset-name": "random",
        "random-input-len": sizes.input_tokens,
        "random-output-len": sizes.output_tokens,
        "num-prompts": spec.max_requests_per_level,
        "percentile-metrics": "ttft,tpot,itl,e2el",
    }
    if spec.modality is Modality.IMAGES:
        width, height = sizes.image_size
        options |= {
            "dataset-name": "random-mm",
            "random-mm-base-items-per-request": sizes.num_items,
            "random-mm-num-mm-items-range-ratio": 0,
            "random-mm-limit-mm-per-prompt": json.dumps({"image": sizes.num_items, "video": 0}),
            "random-mm-bucket-config": f"{{({height}, {width}, 1): 1.0}}",
        }
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Means of a scenario's lengths; `spread` is the half width of input and output of U. The rest
    as in `RequestSize`.
    """

    input_tokens: float
    output_tokens: float
    num_items: int = 1
    item_tokens: int = 0
    query_tokens: int = 0
    image_size: tuple[int, int] = (0, 0)
    input_stddev: int = 0
    output_stddev: int = 0
    spread: tuple[float, float] | None = None

    def compute_range_ratio(self) -> str:
        """Return vLLM's share of the mean by which lengths vary: one, or one of each kind."""
        assert self.spread is not None  # noqa: S101  # for the type checker
        ratios = (self.spread[0] / self.input_tokens, self.spread[1] / self.output_tokens)
        if ratios[0] == ratios[1]:
            return f"{ratios[0]:g}"
        return json.dumps({"input": round(ratios[0], 6), "output": round(ratios[1], 6)})


def _read_sizes(scenario: str, batch_size: int) -> _Sizes:
    if modality_of(scenario) is not Modality.TEXT:
        size = parse_scenario(scenario, batch_size)(random.Random(0))  # noqa: S311  # always the same
        return _Sizes(
            input_tokens=size.num_input_tokens,
            output_tokens=size.num_output_tokens,
            num_items=size.num_items,
            item_tokens=size.item_tokens,
            query_tokens=size.query_tokens,
            image_size=size.image_size,
        )
    if match := _FIXED.fullmatch(scenario):
        return _Sizes(input_tokens=int(match[1]), output_tokens=int(match[2]))
    if match := _NORMAL.fullmatch(scenario):
        means_and_spreads = map(int, match.groups())
        input_tokens, input_stddev, output_tokens, output_stddev = means_and_spreads
        return _Sizes(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            input_stddev=input_stddev,
            output_stddev=output_stddev,
        )
    if match := _UNIFORM_FROM_ONE.fullmatch(scenario):
        return _make_uniform(1, int(match[1]), 1, int(match[2]))
    if match := _UNIFORM.fullmatch(scenario):
        return _make_uniform(*map(int, match.groups()))
    raise _CannotSay(f"it has no option for {scenario}")


def _make_uniform(low_in: int, high_in: int, low_out: int, high_out: int) -> _Sizes:
    return _Sizes(
        input_tokens=(low_in + high_in) / 2,
        output_tokens=(low_out + high_out) / 2,
        spread=((high_in - low_in) / 2, (high_out - low_out) / 2),
    )


def _count_shared_tokens(level: _Level, sizes: _Sizes) -> int:
    if sizes.spread or sizes.input_stddev:
        raise _CannotSay("its shared prefix has one length, whatever that of the prompt")
    return round(level.spec.prefix_share * sizes.input_tokens)


def _read_rate(arrivals: str) -> tuple[str, float]:
    match = _RATED.fullmatch(arrivals)
    if match is None:
        raise _CannotSay(f"it has no option for arrivals like {arrivals}")
    return match[1], float(match[2])


def _write_options(options: Mapping[str, Any]) -> list[str]:
    texts = {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in options.items()
    }
    return [part for name, text in texts.items() for part in (f"--{name}", text)]
