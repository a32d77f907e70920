"""The engine table: what may run as an engine, as a process and in a container.

Nothing else is ever started. To add an engine, add its row to `ENGINES` and, if it has an image,
to `IMAGES`: executors offer it from then on, and tasks may name it.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from schemas.errors import ErrorCode
from schemas.executor.engine_rules import TaskField
from services.executor.engines.engine import Engine, EngineCommand, command_of
from services.executor.engines.image import EngineImage, in_container
from services.executor.engines.rank_flags import RankFlags, meeting_ranks, vllm_ranks
from services.executor.engines.servers import llamacpp, simulated
from services.executor.engines.task_fields import SGLANG_FIELDS, VLLM_FIELDS
from shared.engine_parameters.launch import LAUNCHES, EngineLaunch
from shared.engine_parameters.llamacpp import LLAMACPP
from shared.engine_parameters.sglang import SGLANG
from shared.engine_parameters.vllm import VLLM
from shared.errors import RefusedError

SWITCHED_OFF: Final = "simulated engines are switched off on this node"
SOURCE_ROOT: Final = Path(__file__).resolve().parents[3]


def _vllm_missing() -> str | None:
    if shutil.which("vllm") is None:
        return "vLLM is not installed: no `vllm` on PATH; run: pip install vllm"
    return None


def _sglang_missing() -> str | None:
    if importlib.util.find_spec("sglang") is None:
        return f"SGLang is not installed for {sys.executable}; run: pip install 'sglang[all]'"
    return None


_OURS: Final = (sys.executable, "-m")
_OUR_ENV: Final = (("PYTHONPATH", str(SOURCE_ROOT)),)
# It asks no server: aiohttp would read the host's certificates, a quarter of its start.
_NO_CERTIFICATES: Final = (("SSL_CERT_FILE", os.devnull),)
_ADDRESS: Final = frozenset({"host", "port", "model", "alias"})
_QUIET: Final = (("DO_NOT_TRACK", "1"),)

ENGINES: Final[Mapping[str, Engine]] = {
    engine.name: engine
    for engine in (
        Engine(
            name="llamacpp",
            program=(*_OURS, llamacpp.__name__),
            name_flag="--alias",
            missing=llamacpp.missing,
            flags=llamacpp.FLAGS,
            owned=_ADDRESS,
            env=_OUR_ENV,
            announces_address=True,
        ),
        Engine(
            name="simulated",
            task_fields={"tp": TaskField(flag="tp-size")},
            program=(*_OURS, simulated.__name__),
            name_flag="--alias",
            missing=lambda: None,
            flags=simulated.FLAGS,
            owned=_ADDRESS,
            env=(*_OUR_ENV, *_NO_CERTIFICATES),
            announces_address=True,
            simulated=True,
            rank_flags=meeting_ranks,
        ),
        Engine(
            name="vllm",
            allow_list=VLLM.name,
            program=LAUNCHES["vllm"].program,
            task_fields=VLLM_FIELDS,
            plain_switches=LAUNCHES["vllm"].plain_switches,
            model_flag=LAUNCHES["vllm"].model_flag,
            missing=_vllm_missing,
            owned=frozenset(
                {
                    *{"host", "port", "model", "served-model-name", "uds", "config", "api-key"},
                    *{"nnodes", "node-rank", "master-addr", "master-port", "headless"},
                }
            ),
            loads_code=frozenset(
                {
                    "middleware",
                    "tool-parser-plugin",
                    "reasoning-parser-plugin",
                    "worker-cls",
                    "worker-extension-cls",
                    "logits-processors",
                    "trust-remote-code",
                }
            ),
            env=(*_QUIET, ("VLLM_NO_USAGE_STATS", "1")),
            rank_flags=vllm_ranks,
        ),
        Engine(
            name="sglang",
            allow_list=SGLANG.name,
            program=(sys.executable, *LAUNCHES["sglang"].program[1:]),
            task_fields=SGLANG_FIELDS,
            model_flag=LAUNCHES["sglang"].model_flag,
            missing=_sglang_missing,
            owned=frozenset(
                {
                    *{"host", "port", "model", "model-path", "served-model-name", "config"},
                    *{"api-key", "nnodes", "node-rank", "dist-init-addr", "nccl-init-addr"},
                }
            ),
            has_negative_switches=LAUNCHES["sglang"].has_negative_switches,
            loads_code=frozenset({"trust-remote-code", "custom-weight-loader"}),
            env=_QUIET,
            rank_flags=meeting_ranks,
        ),
    )
}

_LLAMA_OWNED: Final = ENGINES["llamacpp"].owned | {
    "api-key",
    "api-key-file",
    "hf-file",
    "hf-repo",
    "model-url",
    "path",
    "slot-save-path",
    "ssl-cert-file",
    "ssl-key-file",
}


def _image(engine: Engine, launch: EngineLaunch, **changes: Any) -> EngineImage:
    return EngineImage(
        engine=in_container(engine, program=launch.image_program, **changes),
        entrypoint=launch.entrypoint,
        repository=launch.repository,
        tag=launch.tag,
        port=launch.port,
    )


IMAGES: Final[Mapping[str, EngineImage]] = {
    image.engine.name: image
    for image in (
        _image(ENGINES["vllm"], LAUNCHES["vllm"]),
        _image(ENGINES["sglang"], LAUNCHES["sglang"]),
        # llama-server itself, which knows more flags than the process of ours.
        _image(
            ENGINES["llamacpp"],
            LAUNCHES["llamacpp"],
            hub_flag=LAUNCHES["llamacpp"].hub_flag,
            plain_switches=LAUNCHES["llamacpp"].plain_switches,
            allow_list=LLAMACPP.name,
            owned=_LLAMA_OWNED,
            env=(),
        ),
        EngineImage(
            engine=in_container(
                ENGINES["simulated"],
                program=("python3", "-m", simulated.__name__),
                env=(),
            ),
            repository=None,
            tag="latest",
            port=8000,
        ),
    )
}


def engine_named(name: str, engines: Mapping[str, Engine] = ENGINES) -> Engine:
    """The engine of that name, case ignored. Raises RefusedError naming the known ones."""
    engine = engines.get(name.lower())
    if engine is None:
        known = ", ".join(engines)
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            f"expected an engine of {known}, got {name!r}",
            path="$.base_runtime",
        )
    return engine


def missing(name: str) -> str | None:
    """What to install before this host can run the engine, or None. Raises RefusedError."""
    return engine_named(name).missing()


def rank_flags(name: str) -> RankFlags:
    """The flags that give the engine its rank. Raises RefusedError for one that has none."""
    engine = ENGINES.get(name.lower())
    if engine is None or engine.rank_flags is None:
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            f"{name} serves on one node only: it knows no ranks",
            path="$.base_runtime",
        )
    return engine.rank_flags


def build_command(
    engine_name: str,
    model: str,
    parameters: Mapping[str, Any],
    *,
    port: int,
    host: str = "127.0.0.1",
    served_model_name: str | None = None,
    rank_parameters: Mapping[str, Any] | None = None,
    engines: Mapping[str, Engine] = ENGINES,
) -> EngineCommand:
    """As `command_of`, for an engine of the table as a process of this host."""
    return command_of(
        engine_named(engine_name, engines),
        model,
        parameters,
        host=host,
        port=port,
        served_model_name=served_model_name,
        rank_parameters=rank_parameters,
    )
