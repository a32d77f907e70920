"""Engines in containers, as an attempt sees them."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import docker
import psutil
from docker.errors import APIError
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.executor.attempts import (
    EngineSpec,
    FailureKind,
    Runtime,
    RuntimeOffer,
    StartExperiment,
)
from services.executor.domain.preparation import spares_disk
from services.executor.domain.verdict import AttemptFailed
from services.executor.engines.engine_table import SWITCHED_OFF
from services.executor.engines.engines_file import load_images
from services.executor.engines.image import EngineImage, container_command
from services.executor.engines.mounted_model import locate
from services.executor.host.addresses import free_port
from services.executor.runtimes.device_shares import check_shares
from services.executor.runtimes.docker.client import ContainerEngine, text_of
from services.executor.runtimes.docker.container import EngineContainer
from services.executor.runtimes.docker.ending import end_labelled
from services.executor.runtimes.docker.host import engine_info, images_directory, images_room
from services.executor.runtimes.docker.image_cuda import cuda_of_images
from services.executor.runtimes.docker.pull import Images
from services.executor.runtimes.docker.spec import (
    Abilities,
    ContainerParts,
    finding_labels,
    label_filters,
    own_labels,
)
from services.executor.runtimes.docker.starting import Starting
from services.executor.runtimes.engine_process import own_variables
from services.executor.runtimes.runtime import Labels, Launch, RuntimeUnavailable, Workload
from services.executor.settings import ExecutorSettings
from shared.disk import DiskRoom
from shared.engines.launch import ANY_ADDRESS
from shared.errors import RefusedError
from shared.host_header import LOOPBACK
from shared.labels import (
    EPOCH_LABEL,
    EXPERIMENT_LABEL,
    RESERVATION_LABEL,
    parse_epoch,
    parse_id,
)
from shared.paths import make_directory
from shared.waiting import cancel_and_wait

OFFER_SECONDS: Final = 1.5
MIN_CPUS: Final = 0.01  # of Docker itself
WORKLOADS_SECONDS: Final = 5.0
ROOM_SECONDS: Final = 1.0


class DockerRuntime:
    """Containers of one Docker engine, made from the table of images and nothing else.

    Only what carries this installation, this node and the reservation as labels is ever touched.
    An engine that was never used here and is away counts as having nothing of ours.

    Raises EnginesFileError if the file of the operator's engines cannot be used.
    """

    kind = Runtime.DOCKER

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._images = load_images(settings.engines_file)
        self._engine = ContainerEngine(settings.docker_host)
        self._pulled = Images(self._engine, settings.pull_timeout_seconds)
        self._abilities = Abilities()
        self._starting: dict[UUID, set[Starting]] = {}

    async def offer(self) -> RuntimeOffer:
        """Offer every engine with an image; that one cannot be given GPUs is reported and stops
        nothing.

        Whether GPUs can be given shows for certain only when a container asks for one, and
        simulated devices need none.
        """
        offer = RuntimeOffer(
            runtime=Runtime.DOCKER,
            engines=(),
            model_roots=tuple(map(str, self._settings.model_root_paths)),
            engine_rules={name: image.engine.rules for name, image in self._images.items()},
        )
        try:
            host = await self._engine.call(engine_info, seconds=OFFER_SECONDS)
        except (RuntimeUnavailable, APIError) as error:
            return replace(offer, missing={Runtime.DOCKER.value: f"no Docker here: {error}"})
        reasons = {name: self._missing(image) for name, image in self._images.items()}
        engines = tuple(name for name, reason in reasons.items() if reason is None)
        missing = {name: reason for name, reason in reasons.items() if reason is not None}
        if (warning := host.gpu_warning) is not None:
            missing[Runtime.DOCKER.value] = warning
        return replace(
            offer,
            engines=engines,
            missing=missing,
            version=host.version,
            image_cuda=await self._cuda_of_images(engines),
        )

    def check(self, command: StartExperiment) -> None:
        """Check as `EngineRuntime.check`; reads the model's directory."""
        self._made(command, command.benchmark.model_name or command.engine.model)
        _check_room(command)
        check_shares(command, self._settings)

    async def prepare(self, engine: EngineSpec) -> str:
        """Pull its image, unless it is there, while the disk has room to spare."""
        reference = self._image(engine).reference(engine.image_tag)
        try:
            if await self._pulled.is_there(reference):
                return ""
            room = partial(images_room, await self._engine.call(images_directory), self._settings)
        except APIError as error:
            raise RuntimeUnavailable(text_of(error)) from error
        await self._refuse_narrow(room, is_begun=False)
        pull = asyncio.create_task(self._pulled.have(reference, lambda *_: None))
        try:
            while not (await asyncio.wait({pull}, timeout=ROOM_SECONDS))[0]:
                await self._refuse_narrow(room, is_begun=True)
        finally:
            await cancel_and_wait(pull)
        pull.result()
        return f"{reference} was pulled"

    async def fetch(
        self, command: StartExperiment, on_progress: Callable[[float, str], None]
    ) -> None:
        """Have the image there: pulled unless it is, once for all attempts that want it."""
        reference = self._image(command.engine).reference(command.engine.image_tag)
        await self._pulled.have(reference, on_progress)

    async def start(self, launch: Launch) -> EngineContainer:
        """Start as `EngineRuntime.start`; if it is cancelled, a container being created is not
        started.
        """
        starting = Starting(
            engine=self._engine,
            launch=launch,
            made=await asyncio.to_thread(
                self._made, launch.command, launch.served_model_name, launch.rank_parameters
            ),
            abilities=self._abilities,
            settings=self._settings,
        )
        await asyncio.to_thread(self._prepare)
        # Not cancelled half way, when it would be unknown whether there is a container.
        starting.task = asyncio.create_task(starting.run(), name="start_container")
        under_way = self._starting.setdefault(launch.labels.reservation_id, set())
        under_way.add(starting)
        starting.task.add_done_callback(lambda _: self._start_ended(launch.labels, starting))
        try:
            return await asyncio.shield(starting.task)
        except asyncio.CancelledError:
            starting.is_abandoned = True
            raise

    async def workloads(self) -> tuple[Workload, ...]:
        """Return every container of this installation and node, running or not."""
        try:
            return await self._engine.call(self._list_workloads, seconds=WORKLOADS_SECONDS)
        except APIError as error:
            raise RuntimeUnavailable(text_of(error)) from error
        except RuntimeUnavailable:
            if await asyncio.to_thread(self._was_used):
                raise
            return ()

    async def end(self, labels: Labels, *, grace_seconds: float = 0.0) -> None:
        was_used = await asyncio.to_thread(self._was_used)
        # Nothing of another node or installation is ours to end.
        node_labels = replace(
            labels,
            installation_id=self._settings.installation_id,
            node_id=self._settings.node_id,
        )
        while True:
            under_way = tuple(self._starting.get(labels.reservation_id, ()))
            for starting in under_way:
                starting.is_abandoned = True
            await end_labelled(
                self._engine,
                finding_labels(node_labels),
                labels,
                grace_seconds=grace_seconds,
                was_used=was_used,
            )
            if not under_way:
                return
            await asyncio.wait({starting.task for starting in under_way}, timeout=1.0)

    async def _refuse_narrow(self, room_of: Callable[[], DiskRoom], *, is_begun: bool) -> None:
        """Raises AttemptFailed where the disk has no room to spare."""
        room = await asyncio.to_thread(room_of)
        percent = self._settings.prepare_spare_disk_percent
        if not spares_disk(room.free_bytes, room.total_bytes, percent, is_begun=is_begun):
            message = f"the image is pulled when it is needed: {room}"
            raise AttemptFailed.of(FailureKind.DISK_FULL, message)

    def _missing(self, image: EngineImage) -> str | None:
        if image.engine.simulated and not self._settings.allow_simulated_engine:
            return SWITCHED_OFF
        return image.missing()

    async def _cuda_of_images(self, engines: Collection[str]) -> dict[str, str]:
        """Return the CUDA versions of the images that are there; empty if Docker does not answer in
        time.
        """
        repositories = {
            name: (image.repository, image.tag)
            for name, image in self._images.items()
            if name in engines and image.repository is not None
        }
        try:
            return await self._engine.call(
                partial(cuda_of_images, repositories), seconds=OFFER_SECONDS
            )
        except (RuntimeUnavailable, APIError):
            return {}

    def _image(self, engine: EngineSpec) -> EngineImage:
        name = engine.engine.lower()
        image = self._images.get(name)
        if image is None:
            engine_names = ", ".join(self._images)
            message = f"expected an engine of {engine_names}, got {engine.engine!r}"
            raise RefusedError(ErrorCode.UNSUPPORTED, message, path="$.base_runtime")
        if (missing := self._missing(image)) is not None:
            message = f"{name} cannot run in a container here: {missing}"
            raise RefusedError(ErrorCode.UNSUPPORTED, message, path="$.base_runtime")
        return image

    def _made(
        self,
        command: StartExperiment,
        served_model_name: str,
        rank_parameters: Mapping[str, Any] | None = None,
    ) -> ContainerParts:
        """Raises RefusedError."""
        image = self._image(command.engine)
        reference = image.reference(command.engine.image_tag)
        model = locate(command.engine.model, self._settings.model_root_paths)
        # Ranks on several nodes talk to each other at ports that they choose themselves.
        is_rank = bool(rank_parameters)
        port = free_port() if is_rank else image.port
        return ContainerParts(
            image=image,
            reference=reference,
            command=container_command(
                image,
                model.name,
                command.engine.parameters,
                served_model_name=served_model_name,
                rank_parameters=rank_parameters,
                host=LOOPBACK if is_rank else ANY_ADDRESS,
                port=port,
                variables=command.engine.env,
            ),
            mounts=model.mounts,
            listens_on=port,
            on_host_network=is_rank,
            passed=own_variables(self._settings.passed_variables),
        )

    def _start_ended(self, labels: Labels, starting: Starting) -> None:
        under_way = self._starting.get(labels.reservation_id, set())
        under_way.discard(starting)
        if not under_way:
            self._starting.pop(labels.reservation_id, None)
        if not starting.task.cancelled():
            starting.task.exception()  # retrieved, or asyncio complains that it was not

    def _list_workloads(self, api: docker.APIClient) -> tuple[Workload, ...]:
        filter_labels = own_labels(self._settings.installation_id, self._settings.node_id)
        listed = api.containers(all=True, filters=label_filters(filter_labels))
        found_workloads = (self._workload(api, container) for container in listed)
        return tuple(workload for workload in found_workloads if workload is not None)

    def _workload(self, api: docker.APIClient, container: Any) -> Workload | None:
        labels = container.get("Labels") or {}
        reservation_id = parse_id(labels.get(RESERVATION_LABEL))
        if reservation_id is None:
            return None
        return Workload(
            labels=Labels(
                reservation_id=reservation_id,
                installation_id=self._settings.installation_id,
                node_id=self._settings.node_id,
                epoch=parse_epoch(labels.get(EPOCH_LABEL)),
                experiment_id=parse_id(labels.get(EXPERIMENT_LABEL)),
            ),
            pids=_pids(api, container["Id"]) if container["State"] == "running" else (),
            container_ids=(container["Id"],),
            is_running=container["State"] in {"running", "paused", "restarting"},
        )

    @property
    def _use_path(self) -> Path:
        return self._settings.home / "containers_made"

    def _prepare(self) -> None:
        """Before the first container: from then on an engine that is away may have some of ours."""
        if not self._use_path.exists():
            make_directory(self._use_path.parent, 0o700)
            self._use_path.touch(0o600)
        if self._settings.model_cache_dir:
            make_directory(Path(self._settings.model_cache_dir), 0o755)

    def _was_used(self) -> bool:
        return self._use_path.exists()


def _check_room(command: StartExperiment) -> None:
    """Raises RefusedError for more than this host has, which the engine would refuse."""
    cpus = os.cpu_count() or 1
    if command.cpu_count is not None and not MIN_CPUS <= command.cpu_count <= cpus:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected from {MIN_CPUS:g} to {cpus} CPUs, got {command.cpu_count:g}",
            path="$.cpu_count",
        )
    memory_mb = psutil.virtual_memory().total >> 20
    if command.host_memory_mb is not None and command.host_memory_mb > memory_mb:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {memory_mb} MB of memory, got {command.host_memory_mb}",
            path="$.host_memory_mb",
        )


def _pids(api: docker.APIClient, container_id: str) -> tuple[int, ...]:
    try:
        processes = api.top(container_id, ps_args="-eo pid")["Processes"] or ()
    except APIError:
        # It has ended since it was listed.
        return ()
    return tuple(sorted(int(fields[0]) for fields in processes))
