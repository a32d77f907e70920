"""genai-bench's command line and environment for one traffic scenario at several concurrencies."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from schemas.task.benchmark import BenchmarkSpec
from schemas.task.modality import Modality, modality_of
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.traffic import request_parameters
from shared.engines.profile import DEFAULT_BACKEND
from shared.engines.table import PROFILES

KEY_VARIABLE: Final = "MODEL_API_KEY"
# What a process needs to run and to reach a hub. Nothing else is handed on: genai-bench takes
# credentials of clouds out of the environment and writes them into its files.
KEPT: Final = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "XDG_CACHE_HOME"),
        *("HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    }
)
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy")
_UNIFORM_FROM_ONE: Final = re.compile(r"U\((\d+)\)/\((\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Levels of one scenario that one process measures; `first` counts levels from 1. Requests of
    embeddings and rerank have `batch_size` items.
    """

    scenario: str
    concurrencies: tuple[int, ...]
    first: int
    batch_size: int = 1

    def after(self, measured: int) -> "Batch":
        """Return the batch without the first levels, which have been measured."""
        return replace(
            self, concurrencies=self.concurrencies[measured:], first=self.first + measured
        )

    def variable(self, place: int) -> tuple[str, int]:
        """Return what the tool varies, and its value at a level."""
        if modality_of(self.scenario).has_tokens:
            return "num_concurrency", self.concurrencies[place]
        return "batch_size", self.batch_size


def batches(spec: BenchmarkSpec) -> list[Batch]:
    """Return every scenario at every concurrency, in order.

    A concurrency that comes twice begins a new batch: its files would have the names of the first.
    """
    made: list[Batch] = []
    first = 1
    for scenario in spec.traffic_scenarios:
        together: list[int] = []
        for concurrency in (*spec.num_concurrency, None):
            if concurrency is None or concurrency in together:
                made.append(
                    Batch(
                        scenario=scenario,
                        concurrencies=tuple(together),
                        first=first,
                        batch_size=spec.batch_size,
                    )
                )
                first += len(together)
                together = []
            if concurrency is not None:
                together.append(concurrency)
    return made


def tool_scenario(scenario: str) -> str:
    """The scenario as genai-bench writes it: its U(max_in,max_out) is our U(max_in)/(max_out)."""
    return _UNIFORM_FROM_ONE.sub(r"U(\1,\2)", scenario)


def minutes_per_level(spec: BenchmarkSpec) -> int:
    """The level's time limit as genai-bench takes it, in whole minutes, rounded up."""
    return max(1, math.ceil(spec.max_time_per_level_seconds / 60))


def arguments(
    program: Sequence[str],
    spec: BenchmarkSpec,
    target: Target,
    batch: Batch,
    *,
    tokenizer: str,
    owned_by: str | None,
    directory: Path,
    log_directory: Path,
    dataset: Path | None = None,
    images: Path | None = None,
    answer_tokens: int | None = None,
) -> list[str]:
    """The command. It writes into `directory`, which has to be new, and into `log_directory`.

    `dataset` is a JSON file of texts, `images` one that says where images are. As genai-bench sends
    both as they are it asks for answers of any length: of `answer_tokens`, if that is given.
    """
    options, parameters = load_options(
        spec, target, batch.scenario, tokenizer=tokenizer, owned_by=owned_by
    )
    options |= {
        "experiment-base-dir": str(directory.parent),
        "experiment-folder-name": directory.name,
        "log-dir": str(log_directory),
        "metrics-refresh-interval": "1.0",
    }
    if dataset is not None:
        options["dataset-path"] = str(dataset)
    if images is not None:
        options["dataset-config"] = str(images)
    if answer_tokens is not None:
        parameters["max_tokens"] = answer_tokens
    if parameters:
        options["additional-request-params"] = json.dumps(parameters)
    return [
        *program,
        "benchmark",
        *(f"--{name}={value}" for name, value in options.items()),
        *(f"--num-concurrency={concurrency}" for concurrency in batch.concurrencies),
    ]


def load_options(
    spec: BenchmarkSpec, target: Target, scenario: str, *, tokenizer: str, owned_by: str | None
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the options that say what is sent, and the parameters to give to each request."""
    modality = modality_of(scenario)
    parameters = request_parameters(spec.additional_params, modality)
    # genai-bench sets this one itself, by backend, and asks on the terminal when it is given.
    keeps_ignore_eos = bool(parameters.pop("ignore_eos", True))
    options = {
        # The order is genai-bench's: its options look at those before them.
        "api-backend": _backend(owned_by) if keeps_ignore_eos else "openai",
        "api-base": target.base_url.rstrip("/"),
        # Written into its files; a real one goes by the environment and is masked there.
        "api-key": "none",
        "api-model-name": target.model_name,
        "model-tokenizer": tokenizer,
        "task": modality.traits.task,
        "max-time-per-run": str(minutes_per_level(spec)),
        "max-requests-per-run": str(spec.max_requests_per_level),
        "traffic-scenario": tool_scenario(scenario),
    }
    if not modality.has_tokens:
        options["batch-size"] = str(spec.batch_size)
    if modality is Modality.IMAGES and keeps_ignore_eos:
        parameters["ignore_eos"] = True  # not set by itself here
    return options, parameters


def _backend(owned_by: str | None) -> str:
    """Return a backend that keeps `ignore_eos`, so that an answer has the wanted length."""
    profile = PROFILES.get(owned_by or "")
    return DEFAULT_BACKEND if profile is None else profile.backend


def environment(
    environ: Mapping[str, str], target: Target, *, is_tokenizer_local: bool
) -> dict[str, str]:
    """Return the environment of the process. Requests to the server never go through a proxy."""
    env = {name: environ[name] for name in KEPT if name in environ}
    env |= {
        "ENABLE_UI": "false",
        "GENAI_BENCH_LOGGING_LEVEL": "INFO",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "MPLBACKEND": "Agg",
        "PYTHONUNBUFFERED": "1",
    }
    if target.hub_token:
        env["HF_TOKEN"] = target.hub_token
    if is_tokenizer_local:
        env["HF_HUB_OFFLINE"] = "1"
    else:
        env |= {name: environ[name] for name in PROXIES if name in environ}
        host = urlsplit(target.base_url).hostname or ""
        env["NO_PROXY"] = env["no_proxy"] = ",".join(
            part for part in (environ.get("NO_PROXY", ""), host) if part
        )
    if target.certificate is not None:
        # It asks the server by `requests`, and a hub by httpx, which does not read this one.
        env["REQUESTS_CA_BUNDLE"] = str(target.certificate)
    if target.api_key:
        env[KEY_VARIABLE] = target.api_key
    return env
