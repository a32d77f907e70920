"""llama.cpp's own OpenAI-compatible server as a process of ours.

`python -m services.executor.engines.servers.llamacpp --model smollm2-135m --parallel 2`.
It prints one line `listening on http://HOST:PORT` when it is ready. SIGTERM ends it at once.
"""

import argparse
import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from services.executor.engines.servers.flags import Flag, FlagKind, server_parser
from services.executor.engines.servers.weights import (
    WeightsDamaged,
    WeightsMissing,
    locate_weights,
    verify_weights,
)
from shared.lifecycle import die_with_parent

REQUIREMENT: Final = "xllamacpp"
CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
EXIT_CANNOT_START: Final = 3
SLOT_CONTEXT_TOKENS: Final = 2048
WARNINGS_AND_ERRORS: Final = 2

FLAGS: Final = (
    Flag("threads", FlagKind.INTEGER, "threads that generate", minimum=1, maximum=1024),
    Flag("threads-batch", FlagKind.INTEGER, "threads that read prompts", minimum=1, maximum=1024),
    Flag("parallel", FlagKind.INTEGER, "requests served at once (slots)", minimum=1, maximum=256),
    Flag(
        "ctx-size",
        FlagKind.INTEGER,
        "context in tokens, shared out among the slots; 0 gives each the model's own",
        minimum=0,
    ),
    Flag("batch-size", FlagKind.INTEGER, "tokens per logical batch", minimum=1),
    Flag("ubatch-size", FlagKind.INTEGER, "tokens per physical batch", minimum=1),
    Flag("cont-batching", FlagKind.SWITCH, "let requests join a running batch"),
    Flag("cache-prompt", FlagKind.SWITCH, "reuse what prompts have in common"),
    Flag("flash-attn", FlagKind.CHOICE, "flash attention", choices=("on", "off", "auto")),
    Flag("cache-type-k", FlagKind.CHOICE, "type of the cached keys", choices=CACHE_TYPES),
    Flag(
        "cache-type-v",
        FlagKind.CHOICE,
        "type of the cached values; a quantized one needs flash attention",
        choices=CACHE_TYPES,
    ),
    Flag("gpu-layers", FlagKind.INTEGER, "layers kept on the GPU; -1 all", minimum=-1),
)


def missing() -> str | None:
    """What to install before this engine can run here; None if nothing."""
    if importlib.util.find_spec("xllamacpp") is None:
        return f"llama.cpp is not installed; run: pip install {REQUIREMENT}"
    return None


def default_threads() -> int:
    """One core less than this process may use.

    With spinning threads on every core, generation collapses as soon as anything else runs.
    """
    return max(1, len(os.sched_getaffinity(0)) - 1)


def context_tokens(wanted: int | None, slots: int | None) -> int:
    """The context to ask for: the wanted one, else 2048 tokens for each slot."""
    return SLOT_CONTEXT_TOKENS * (slots or 1) if wanted is None else wanted


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal ends the process; returns only if the server could not start."""
    options = _parser().parse_args(argv)
    _end_at_once_on_signals()
    die_with_parent()
    reason = missing()
    if reason is not None:
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
    for name, value in {**_tuned(options), **_fixed(options)}.items():
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


def _tuned(options: argparse.Namespace) -> dict[str, object]:
    """What a task may tune, under the library's names; None keeps the library's default."""
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
    }


def _fixed(options: argparse.Namespace) -> dict[str, object]:
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
        "verbosity": WARNINGS_AND_ERRORS,
    }


def _flash_attention(choice: str | None) -> object | None:
    import xllamacpp

    names = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
    return choice and getattr(
        xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{names[choice]}"
    )


def _cache_type(choice: str | None) -> object | None:
    import xllamacpp

    return choice and getattr(xllamacpp.ggml_type, f"GGML_TYPE_{choice.upper()}")


def _refuse(reason: str) -> int:
    sys.stderr.write(f"llamacpp_server: {reason}\n")
    return EXIT_CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
