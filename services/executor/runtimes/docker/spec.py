"""What a container is made of: the grant, the engine's command and the node's bounds as settings.

Pure: the same launch always makes the same container. The result is the body of the engine's own
`POST /containers/create` (API 1.41), so a test sees all of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from schemas.executor.attempts import StartExperiment
from schemas.gpus.device_grant import DeviceGrant
from services.executor.engines.compile_cache import CONTAINER_TARGET, cache_variables
from services.executor.engines.engine import EngineCommand
from services.executor.engines.image import EngineImage, HostMount
from services.executor.runtimes.engine_process import (
    ENGINE_USER,
    label_environment,
    past_proxies,
)
from services.executor.runtimes.runtime import Labels, Launch
from services.executor.settings import ExecutorSettings
from shared.engines.table import PROFILES
from shared.gpu.shares import share_environment
from shared.host_header import LOOPBACK
from shared.labels import (
    ATTEMPT_LABEL,
    EPOCH_LABEL,
    EXPERIMENT_LABEL,
    INSTALLATION_LABEL,
    NODE_LABEL,
    RESERVATION_LABEL,
)
from shared.mps import is_by_mps, mps_environment
from shared.visible_devices import is_any_amd

CACHE_TARGET: Final = "/var/cache/models"
_MODEL_FOLDERS: Final = {
    name: folder for p in PROFILES.values() for name, folder in p.model_variables.items()
}
STACK_BYTES: Final = 64 << 20
ULIMITS: Final = [
    {"Name": "memlock", "Soft": -1, "Hard": -1},
    {"Name": "stack", "Soft": STACK_BYTES, "Hard": STACK_BYTES},
]
# The engine's own copy of the log; ours is kept elsewhere.
LOG_CONFIG: Final = {"Type": "json-file", "Config": {"max-size": "16m", "max-file": "2"}}


class Abilities(Struct, kw_only=True):
    """What an engine turns out to lack when it is asked to start a container.

    An init program, as first process; and the right to raise limits of processes, which it has not
    if it runs rootless or in a container itself.
    """

    has_init: bool = True
    raises_limits: bool = True


class ContainerParts(Struct, frozen=True, kw_only=True):
    """What a container is made from, beside its launch.

    `listens_on` is the engine's port inside, published as `host_port`; None: Docker chooses.

    With `on_host_network` the engine listens on the host itself, and nothing is published. `passed`
    are variables of the executor that the operator passes on. `device_files` are of GPUs that come
    as files; `device_groups` are the host's groups that may use them.
    """

    image: EngineImage
    reference: str
    command: EngineCommand
    mounts: tuple[HostMount, ...] = ()
    host_port: int | None = None
    listens_on: int
    on_host_network: bool = False
    passed: dict[str, str] = {}
    compile_cache: Path | None = None
    device_files: tuple[str, ...] = ()
    device_groups: tuple[int, ...] = ()


def container_settings(
    launch: Launch, made: ContainerParts, abilities: Abilities, settings: ExecutorSettings
) -> dict[str, Any]:
    """The whole container. Restarting, removing and privileges are never its own."""
    devices = devices_of(launch)
    port = f"{made.listens_on}/tcp"
    body: dict[str, Any] = {
        "Image": made.reference,
        "Cmd": list(made.command.argv),
        "Env": [f"{name}={value}" for name, value in _environment(launch, made, settings).items()],
        "Labels": container_labels(launch),
        "HostConfig": {
            **_bounds(launch.command, made.image, settings),
            **_network(made, port),
            "DeviceRequests": device_requests(devices, settings.docker_device_ids),
            **_device_files(made),
            "Mounts": [_mount(mount) for mount in _mounts(made, devices, settings)],
            # Clients of MPS and its server share memory.
            "IpcMode": "host" if is_by_mps(devices) else "private",
            "CapDrop": ["ALL"],
            # Models and their cache may belong to any user; what is mounted, and whether it may
            # be written, is ours to say.
            "CapAdd": ["DAC_OVERRIDE"],
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": False,
            "ReadonlyRootfs": False,
            "Init": abilities.has_init,
            "Ulimits": ULIMITS if abilities.raises_limits else [],
            "RestartPolicy": {"Name": "no"},
            "AutoRemove": False,
            "LogConfig": LOG_CONFIG,
        },
    }
    if not made.on_host_network:
        body["ExposedPorts"] = {port: {}}
    if made.image.entrypoint is not None:
        body["Entrypoint"] = list(made.image.entrypoint)
    return body


def devices_of(launch: Launch) -> tuple[DeviceGrant, ...]:
    """Return the granted devices of this node, in the order in which a container sees them."""
    granted = (d for d in launch.command.devices if d.node_id == launch.labels.node_id)
    return tuple(sorted(granted, key=lambda device: device.index))


def device_requests(devices: Sequence[DeviceGrant], ids: str) -> list[dict[str, Any]]:
    """Exactly the granted devices, by uuid, by index or by CDI name; simulated ones are none.

    A MIG instance has an index of its parent only, so it always goes by its uuid.
    """
    real = [device for device in devices if not device.simulated]
    if not real:
        return []
    if is_any_amd(real):
        return []  # which come as device files
    if ids == "cdi":
        names = [f"nvidia.com/gpu={device.uuid}" for device in real]
        return [{"Driver": "cdi", "DeviceIDs": names}]
    by_index = [d for d in real if ids == "index" and d.mig_profile is None]
    return [
        {
            "Driver": "nvidia",
            "DeviceIDs": [str(d.index) if d in by_index else d.uuid for d in real],
            "Capabilities": [["gpu", "compute", "utility"]],
        }
    ]


def container_labels(launch: Launch) -> dict[str, str]:
    labels = launch.labels
    written = {
        **attempt_labels(launch),
        EPOCH_LABEL: labels.epoch,
        EXPERIMENT_LABEL: labels.experiment_id,
    }
    return {name: str(value) for name, value in written.items() if value is not None}


def attempt_labels(launch: Launch) -> dict[str, str]:
    """Return the labels by which the containers of one attempt are found."""
    return {**finding_labels(launch.labels), ATTEMPT_LABEL: str(launch.command.attempt_id)}


def finding_labels(labels: Labels) -> dict[str, str]:
    """Return the labels that show whose a container is; without all three nothing is ever
    touched.
    """
    return {
        **own_labels(labels.installation_id, labels.node_id),
        RESERVATION_LABEL: str(labels.reservation_id),
    }


def own_labels(installation_id: str, node_id: str) -> dict[str, str]:
    """Return the labels that all containers of this installation on this node carry."""
    return {INSTALLATION_LABEL: installation_id, NODE_LABEL: node_id}


def label_filters(labels: Mapping[str, str]) -> dict[str, list[str]]:
    """The filter that finds what carries all of them."""
    return {"label": [f"{name}={value}" for name, value in labels.items()]}


def _device_files(made: ContainerParts) -> dict[str, Any]:
    """Return the part of HostConfig that opens device files; ROCm numbers those that it has."""
    if not made.device_files:
        return {}
    return {
        "Devices": [
            {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rw"}
            for path in made.device_files
        ],
        "GroupAdd": [str(group) for group in made.device_groups],
    }


def _environment(
    launch: Launch, made: ContainerParts, settings: ExecutorSettings
) -> dict[str, str]:
    devices = devices_of(launch)
    variables = {
        **past_proxies(made.passed),
        **launch.secrets,  # one of the same name wins over the operator's
        "USER": ENGINE_USER,  # as for processes: the image may not know the user's id
        "PYTHONUNBUFFERED": "1",
        **made.command.env,
        **share_environment(devices),
        **label_environment(launch.labels),
        "GPUSTEWARD_ATTEMPT": str(launch.command.attempt_id),
        "GPUSTEWARD_DEVICES": ",".join(device.uuid for device in devices),
    }
    if settings.model_cache_dir:
        variables["HF_HOME"] = CACHE_TARGET
        variables |= {name: f"{CACHE_TARGET}/{folder}" for name, folder in _MODEL_FOLDERS.items()}
    if made.compile_cache is not None:
        variables |= cache_variables(CONTAINER_TARGET)
    variables |= mps_environment(devices, settings.mps_pipe_dir)
    if any(not device.simulated for device in devices):
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    else:
        # Images for GPUs ask for all of them, which a default runtime `nvidia` would hand out.
        variables["NVIDIA_VISIBLE_DEVICES"] = "void"
    return variables


def _bounds(
    command: StartExperiment, image: EngineImage, settings: ExecutorSettings
) -> dict[str, Any]:
    memory_bytes = (command.host_memory_mb or settings.engine_memory_mb) << 20
    return {
        # Without swap: with it, a bound on memory is none.
        "Memory": memory_bytes,
        "MemorySwap": memory_bytes,
        "NanoCpus": int((command.cpu_count or settings.engine_cpus) * 1e9),
        "PidsLimit": settings.engine_pids,
        "ShmSize": (image.shm_mb or settings.container_shm_mb) << 20,
    }


def _network(made: ContainerParts, port: str) -> dict[str, Any]:
    if made.on_host_network:
        return {"NetworkMode": "host"}
    host_port = "" if made.host_port is None else str(made.host_port)
    return {"PortBindings": {port: [{"HostIp": LOOPBACK, "HostPort": host_port}]}}


def _mounts(
    made: ContainerParts, devices: Sequence[DeviceGrant], settings: ExecutorSettings
) -> Iterable[dict[str, Any]]:
    for mount in (*made.mounts, *made.image.mounts):
        yield {"Source": str(mount.source), "Target": mount.target, "ReadOnly": mount.read_only}
    if settings.model_cache_dir:
        yield {"Source": settings.model_cache_dir, "Target": CACHE_TARGET, "ReadOnly": False}
    if made.compile_cache is not None:
        yield {
            "Source": str(made.compile_cache),
            "Target": CONTAINER_TARGET,
            "ReadOnly": False,
        }
    for directory in mps_environment(devices, settings.mps_pipe_dir).values():
        yield {"Source": directory, "Target": directory, "ReadOnly": False}


def _mount(mount: dict[str, Any]) -> dict[str, Any]:
    return {"Type": "bind", **mount, "BindOptions": {"Propagation": "rprivate"}}
