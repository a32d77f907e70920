"""The engine table of containers: which image each engine is in, and how it is started there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from schemas.errors import ErrorCode
from services.executor.engines import simulated_server
from services.executor.engines.table import (
    ENGINES,
    Engine,
    EngineCommand,
    EngineRefused,
    command_of,
)

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  # of the container alone; what is published is loopback
CODE_REFUSAL: Final = "which the operator of this node has not allowed for it"
# As the container engine itself has it: nothing here can lead to another repository or a digest.
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMount:
    """A directory or file of this host, under a path in the container."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineImage:
    """One row: an engine in a container.

    The engine's `program` comes after `entrypoint`, or after the image's own where that is None.
    `repository` None means that no image is known until an operator names one. `tag` is what a task
    gets that names none. `shm_mb` None leaves it to the node.
    """

    engine: Engine
    repository: str | None
    tag: str
    port: int
    entrypoint: tuple[str, ...] | None = None
    mounts: tuple[HostMount, ...] = ()
    shm_mb: int | None = None

    def missing(self) -> str | None:
        """What the operator has to do first; None if nothing."""
        if self.repository is not None:
            return None
        name = self.engine.name
        return f"no image is known for it; name one as [engines.{name}] in the engines file"

    def reference(self, tag: str | None) -> str:
        """The image, under a task's tag if it names one.

        Raises EngineRefused for a tag that is none, and where no image is known.
        """
        if (missing := self.missing()) is not None:
            raise EngineRefused(ErrorCode.UNSUPPORTED, missing, "$.base_runtime")
        if tag is not None and not is_tag(tag):
            raise EngineRefused(
                ErrorCode.BAD_REQUEST,
                f"expected an image's tag, such as {self.tag!r}, got {tag!r}",
                "$.runtime_image_tag",
            )
        return f"{self.repository}:{tag or self.tag}"


def is_tag(text: str) -> bool:
    """Whether an image can be tagged so."""
    return _TAG.fullmatch(text) is not None


def _contained(engine: Engine, **changes: Any) -> Engine:
    """The row of a process as it is in a container, with changes."""
    always: dict[str, Any] = {
        "code_refusal": CODE_REFUSAL,
        "announces_address": False,
        "missing": lambda: None,
    }
    return replace(engine, **{**always, **changes})


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

IMAGES: Final[Mapping[str, EngineImage]] = {
    image.engine.name: image
    for image in (
        EngineImage(
            # The entrypoint of its own has changed between versions, this has not.
            engine=_contained(ENGINES["vllm"], program=()),
            entrypoint=("vllm", "serve"),
            repository="vllm/vllm-openai",
            tag="v0.18.0",
            port=8000,
        ),
        EngineImage(
            engine=_contained(ENGINES["sglang"], program=("python3", "-m", "sglang.launch_server")),
            repository="lmsysorg/sglang",
            tag="v0.5.19-cu129",
            port=30000,
        ),
        EngineImage(
            # llama-server itself, which knows more flags than the process of ours.
            engine=_contained(
                ENGINES["llamacpp"],
                program=(),
                hub_flag="--hf-repo",
                takes_others=True,
                owned=_LLAMA_OWNED,
                env=(),
            ),
            repository="ghcr.io/ggml-org/llama.cpp",
            tag="server-cuda-b9628",
            port=8080,
        ),
        EngineImage(
            engine=_contained(
                ENGINES["simulated"],
                program=("python3", "-m", simulated_server.__name__),
                env=(),
            ),
            repository=None,
            tag="latest",
            port=8000,
        ),
    )
}


def container_command(
    image: EngineImage,
    model: str,
    parameters: Mapping[str, Any],
    *,
    served_model_name: str,
    rank_parameters: Mapping[str, Any] | None = None,
    host: str = ANY_ADDRESS,
    port: int | None = None,
) -> EngineCommand:
    """The arguments of the container, from `entrypoint` on. Raises EngineRefused."""
    return command_of(
        image.engine,
        model,
        parameters,
        host=host,
        port=image.port if port is None else port,
        served_model_name=served_model_name,
        rank_parameters=rank_parameters,
    )
