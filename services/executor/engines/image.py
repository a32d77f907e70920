"""An engine in a container: its image, and how it is started there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from schemas.errors import ErrorCode
from services.executor.engines.engine import Engine, EngineCommand, command_of
from shared.engines.launch import ANY_ADDRESS
from shared.errors import RefusedError

TLS_DIRECTORY: Final = "/run/gpusteward-tls"
TLS_KEY: Final = "tls.key"
TLS_CERTIFICATE: Final = "tls.crt"
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
        """Return what the operator has to do first; None if nothing."""
        if self.repository is not None:
            return None
        name = self.engine.name
        return f"no image is known for it; name one as [engines.{name}] in the engines file"

    def reference(self, tag: str | None) -> str:
        """The image, under a task's tag if it names one.

        Raises RefusedError for a tag that is none, and where no image is known.
        """
        if (missing := self.missing()) is not None:
            raise RefusedError(ErrorCode.UNSUPPORTED, missing, path="$.base_runtime")
        if tag is not None and not is_tag(tag):
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected an image's tag, such as {self.tag!r}, got {tag!r}",
                path="$.runtime_image_tag",
            )
        return f"{self.repository}:{tag or self.tag}"


def is_tag(text: str) -> bool:
    """Return whether the text is a valid tag of an image."""
    return _TAG.fullmatch(text) is not None


def in_container(engine: Engine, **changes: Any) -> Engine:
    """The row of a process as it is in a container, with changes."""
    return replace(
        engine,
        code_refusal=CODE_REFUSAL,
        announces_address=False,
        missing=lambda: None,
        **changes,
    )


def container_command(
    image: EngineImage,
    model: str,
    parameters: Mapping[str, Any],
    *,
    served_model_name: str,
    rank_parameters: Mapping[str, Any] | None = None,
    host: str = ANY_ADDRESS,
    port: int | None = None,
    with_tls: bool = False,
    variables: Mapping[str, str] | None = None,
) -> EngineCommand:
    """The arguments of the container, from `entrypoint` on; `with_tls` it finds its key and its
    certificate in `TLS_DIRECTORY`. Raises RefusedError.
    """
    files = (f"{TLS_DIRECTORY}/{TLS_KEY}", f"{TLS_DIRECTORY}/{TLS_CERTIFICATE}")
    return command_of(
        image.engine,
        model,
        parameters,
        host=host,
        port=image.port if port is None else port,
        served_model_name=served_model_name,
        rank_parameters=rank_parameters,
        tls_files=files if with_tls else None,
        variables=variables,
    )
