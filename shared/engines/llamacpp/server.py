"""llama.cpp's own OpenAI-compatible server as a process of ours.

`python -m shared.engines.llamacpp.server --model smollm2-135m --parallel 2`.
It prints one line `listening on http://HOST:PORT` when it is ready. SIGTERM ends it at once.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shared.engines.flags import server_parser
from shared.engines.llamacpp.flags import FLAGS
from shared.engines.llamacpp.profile import PROFILE
from shared.engines.llamacpp.weights import (
    WeightsDamaged,
    WeightsMissing,
    locate_weights,
    verify_weights,
)
from shared.engines.requirements import find_missing
from shared.lifecycle import die_with_parent

EXIT_CANNOT_START: Final = 3
SLOT_CONTEXT_TOKENS: Final = 2048
WARNINGS_AND_ERRORS: Final = 2
NO_DIRECTORY: Final = "/dev/null/"


def default_threads() -> int:
    """Return one core less than this process may use.

    With spinning threads on every core, generation collapses as soon as anything else runs.
    """
    return max(1, len(os.sched_getaffinity(0)) - 1)


def context_tokens(requested_tokens: int | None, slots: int | None) -> int:
    """The context to ask for: the wanted one, else 2048 tokens for each slot."""
    return SLOT_CONTEXT_TOKENS * (slots or 1) if requested_tokens is None else requested_tokens


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal ends the process; returns only if the server could not start."""
    options = _parser().parse_args(argv)
    _end_at_once_on_signals()
    die_with_parent()
    if (reason := find_missing(PROFILE)) is not None:
        return _refuse(reason)
    try:
        if options.verify_weights:
            verify_weights(options.model)
        weights = locate_weights(options.model)
    except (WeightsMissing, WeightsDamaged) as error:
        return _refuse(str(error))
    return _serve(options, weights)


def _parser() -> argparse.ArgumentParser:
    parser = server_parser("llamacpp_server", "llama.cpp's OpenAI-compatible server.", FLAGS)
    parser.add_argument(
        "--model", required=True, help="GGUF file, or a well-known model such as smollm2-135m"
    )
    parser.add_argument(
        "--verify-weights", action="store_true", help="check a well-known model's SHA-256 first"
    )
    return parser


def _end_at_once_on_signals() -> None:
    # A Python handler would not run while the main thread loads the model in C++, and a parent may
    # have left these signals ignored or blocked.
    ending = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in ending:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)


def _serve(options: argparse.Namespace, weights: Path) -> int:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    threads = options.threads or default_threads()
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = options.threads_batch or threads
    for name, value in {**_tunable_options(options), **_constant_options(options)}.items():
        if value is not None:
            setattr(parameters, name, value)
    try:
        server = xllamacpp.Server(parameters)
    except RuntimeError as error:
        return _refuse(f"llama.cpp did not start ({error}); the lines above say why")
    sys.stdout.write(f"listening on {server.listening_address}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def _tunable_options(options: argparse.Namespace) -> dict[str, object]:
    """Return the parameters that a task may tune, under the library's names; None keeps its
    default.
    """
    return {
        "n_parallel": options.parallel,
        "n_ctx": context_tokens(options.ctx_size, options.parallel),
        "n_batch": options.batch_size,
        "n_ubatch": options.ubatch_size,
        "cont_batching": options.cont_batching,
        "cache_prompt": options.cache_prompt,
        "n_gpu_layers": options.gpu_layers,
        "flash_attn_type": _flash_attention(options.flash_attn),
        "cache_type_k": _cache_type(options.cache_type_k),
        "cache_type_v": _cache_type(options.cache_type_v),
        "embedding": True if options.embeddings or options.reranking else None,
        "pooling_type": _pooling("rank" if options.reranking else options.pooling),
    }


def _constant_options(options: argparse.Namespace) -> dict[str, object]:
    return {
        "hostnames": [options.host],
        "port": options.port,
        "model_alias": {options.alias or options.model},
        "endpoint_metrics": True,
        "ui": False,
        "offline": True,
        # A page of another site, open in this host's browser, must not read what the model answers.
        "cors_origins": "http://127.0.0.1",
        "cors_origins_explicit": True,
        "cors_credentials": False,
        # By default up to 8 GiB of finished prompts stay in host memory; no benchmark wants them.
        "cache_ram_mib": 0,
        "cache_idle_slots": False,
        # Slots are erased only where they could be saved; here none can be.
        "slot_save_path": NO_DIRECTORY,
        "verbosity": WARNINGS_AND_ERRORS,
    }


def _flash_attention(choice: str | None) -> object | None:
    import xllamacpp

    names = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
    return choice and getattr(
        xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{names[choice]}"
    )


def _pooling(choice: str | None) -> object | None:
    import xllamacpp

    return choice and getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{choice.upper()}")


def _cache_type(choice: str | None) -> object | None:
    import xllamacpp

    return choice and getattr(xllamacpp.ggml_type, f"GGML_TYPE_{choice.upper()}")


def _refuse(reason: str) -> int:
    sys.stderr.write(f"llamacpp_server: {reason}\n")
    return EXIT_CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
