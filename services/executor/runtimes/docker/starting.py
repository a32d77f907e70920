"""Making and starting one container, so that nothing is left of one that could not be started."""

import asyncio
from copy import copy
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import APIError
from msgspec.structs import replace

from schemas.executor.attempts import FailureKind
from services.executor.domain.verdict import AttemptFailed, engine_refusal, is_port_taken
from services.executor.host.engine_user import device_groups
from services.executor.host.processes import ProcessMark, mark_of
from services.executor.runtimes.docker.client import (
    SLOW_SECONDS,
    ContainerEngine,
    ask_or_none,
    text_of,
)
from services.executor.runtimes.docker.container import EngineContainer
from services.executor.runtimes.docker.ending import end_labelled
from services.executor.runtimes.docker.spec import (
    Abilities,
    ContainerParts,
    attempt_labels,
    container_settings,
    devices_of,
)
from services.executor.runtimes.runtime import Launch, RuntimeUnavailable
from services.executor.settings import ExecutorSettings
from shared.errors import StewardError
from shared.visible_devices import GpuNotUsable, amd_device_files

TRIES: Final = 5
NAME_TRIES: Final = 20
NAME_DIGITS: Final = 12
BAD_REQUEST: Final = 400


class StartAbandoned(StewardError):
    """The attempt that wanted the container is over."""


@dataclass(slots=True, kw_only=True, eq=False)
class Starting:
    """One start under way. `is_abandoned` may be set at any time: then nothing is started."""

    engine: ContainerEngine
    launch: Launch
    made: ContainerParts
    abilities: Abilities
    settings: ExecutorSettings
    is_abandoned: bool = False
    task: "asyncio.Task[EngineContainer]" = field(init=False)

    async def run(self) -> EngineContainer:
        """Make and start it. Raises AttemptFailed; then nothing is left."""
        for _ in range(TRIES):
            tried_abilities = copy(self.abilities)
            try:
                return await self._create_and_start(tried_abilities)
            except APIError as error:
                await self._remove()
                if not self._can_go_on(text_of(error), tried_abilities):
                    is_ours = error.status_code == BAD_REQUEST
                    kind = FailureKind.BAD_PARAMETER if is_ours else FailureKind.RUNTIME_UNAVAILABLE
                    raise engine_refusal(text_of(error), self._title, otherwise=kind) from error
            except GpuNotUsable as error:
                raise AttemptFailed.of(FailureKind.GPU_UNAVAILABLE, str(error)) from error
            except RuntimeUnavailable as error:
                # It may have done what was asked without saying so.
                await self._remove()
                raise AttemptFailed.of(
                    FailureKind.RUNTIME_UNAVAILABLE, f"{self._title}: {error}"
                ) from error
            except StartAbandoned as error:
                await self._remove()
                raise AttemptFailed.of(
                    FailureKind.CANCELLED, "stopped before the engine was started"
                ) from error
        message = f"{self._title}: Docker found a free port taken {TRIES} times"
        raise AttemptFailed.of(FailureKind.PORT_TAKEN, message)

    @property
    def _title(self) -> str:
        return f"{self.made.command.engine} could not be started from {self.made.reference}"

    def _can_go_on(self, text: str, tried_abilities: Abilities) -> bool:
        """Return whether to try again, without what the engine has turned out to lack.

        What this try was made with counts: others may have found out the same meanwhile.
        """
        if tried_abilities.has_init and "docker-init" in text:
            self.abilities.has_init = False
            return True
        if tried_abilities.raises_limits and "setting rlimit" in text:
            self.abilities.raises_limits = False
            return True
        return is_port_taken(text)

    async def _create_and_start(self, abilities: Abilities) -> EngineContainer:
        files = await asyncio.to_thread(amd_device_files, devices_of(self.launch))
        made = replace(
            self.made,
            compile_cache=await self._compile_cache(),
            device_files=files,
            device_groups=tuple(sorted(device_groups())) if files else (),
        )
        body = container_settings(self.launch, made, abilities, self.settings)
        container_id = await self.engine.call(
            lambda api: _create(api, body, self._name), seconds=SLOW_SECONDS
        )
        if self.is_abandoned:
            raise StartAbandoned
        await self.engine.call(lambda api: api.start(container_id), seconds=SLOW_SECONDS)
        container = await self.engine.call(lambda api: dict(api.inspect_container(container_id)))
        await self.launch.image_known(await self.engine.call(lambda api: _image(api, container)))
        mark = self._mark(int(container["State"].get("Pid") or 0))
        if mark is not None:
            await self.launch.remember(mark)
        return EngineContainer(
            engine=self.engine,
            container_id=container_id,
            label=self.launch.labels,
            command=self.made.command,
            log=self.launch.log,
            port=self._port(container),
            has_own_network=not self.made.on_host_network,
            ends_when=self.launch.ends_when,
            marks=() if mark is None else (mark,),
        )

    async def _compile_cache(self) -> Path | None:
        """Only where the operator says that the container engine finds it under the same path."""
        if not self.settings.compile_cache_dir:
            return None
        inspect: Any = self.engine.call
        image = await inspect(lambda api: api.inspect_image(self.made.reference))
        directory = await asyncio.to_thread(self.launch.take_cache, str(image["Id"]))
        if directory is not None:
            # Images choose their user; its parents keep everybody else out.
            directory.chmod(0o777)
        return directory

    @property
    def _name(self) -> str:
        return f"gpusteward-{self.launch.command.attempt_id.hex[-NAME_DIGITS:]}"

    def _mark(self, pid: int) -> ProcessMark | None:
        """Return the mark of its first process, if that is one of this host that carries our
        labels.

        Where the engine is on another host, or we are in a container, the number means another.
        """
        return mark_of(pid) if pid and self.launch.labels.is_on(pid) else None

    def _port(self, container: dict[str, Any]) -> int:
        if self.made.on_host_network:
            return self.made.listens_on
        published = container["NetworkSettings"]["Ports"].get(f"{self.made.listens_on}/tcp")
        # A container that has ended already has none; nothing will ever answer there.
        return int(published[0]["HostPort"]) if published else 0

    async def _remove(self) -> None:
        await end_labelled(self.engine, attempt_labels(self.launch), self.launch.labels)


def _image(api: docker.APIClient, container: dict[str, Any]) -> str:
    inspect: Any = api.inspect_image
    return digest_of(container, ask_or_none(lambda: inspect(container["Image"])) or {})


def digest_of(container: dict[str, Any], image: dict[str, Any]) -> str:
    """The image's digest in the registry that it came from; of one that came from none its id."""
    repository = str(container["Config"]["Image"]).partition("@")[0]
    if ":" in repository.rpartition("/")[2]:
        repository = repository.rpartition(":")[0]
    digests = image.get("RepoDigests") or ()
    own_digests = [digest for digest in digests if digest.startswith(f"{repository}@")]
    return str(next(iter((*own_digests, *digests)), container["Image"]))


def _create(api: docker.APIClient, body: dict[str, Any], name: str) -> str:
    """The container's id. Its name is for people; one that is taken is counted up."""
    create: Any = api.create_container_from_config
    for number in range(1, NAME_TRIES + 1):
        try:
            return str(create(body, f"{name}-{number}")["Id"])
        except APIError as error:
            if error.status_code != HTTPStatus.CONFLICT or number == NAME_TRIES:
                raise
    raise AssertionError("unreachable")
