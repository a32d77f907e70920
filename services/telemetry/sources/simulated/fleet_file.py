"""The description of a simulated fleet: the mock-accelerator form, and how it behaves."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Final, Literal
from uuid import NAMESPACE_OID, uuid5

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from schemas.base import Count, DeviceUuid, Percent, PositiveSeconds, line
from schemas.telemetry.readings import DeviceFacts, GpuLink, LinkKind
from services.telemetry.sources.simulated.fault_script import ScriptedFault, invalid_reason
from services.telemetry.sources.simulated.recording import ReplayPlan
from shared.gpu.share_units import (
    DEVICE_PLUGIN_LABEL,
    SHARE_QUANTUM_LABEL,
    SHARES_PER_GPU_LABEL,
    SlotFormat,
    format_labels,
    shares_label,
)
from shared.problems import explain_validation_error

MEBIBYTE: Final = 1 << 20
LOWEST_LIMIT_W: Final = 200.0
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?\s*$", re.IGNORECASE)
_FACTOR: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_PROFILE: Final = re.compile(r"[1-7]g\.\d+gb")
UNIT_MEMORY_MB: Final = 2048
LEAST_UNIT_MEMORY_MB: Final = 512
UNIT_PROCESSORS: Final = 8

_NVIDIAS: Final = ("nvidia_driver", "cuda_runtime", "compute_capability")

NotNegative = Annotated[float, Meta(ge=0)]


class FleetError(ValueError):
    """A fleet file says something else than expected; the text names the place."""


class MockDevice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device of the file. `memory_size` is bytes, or a number with K, M, G or T (1024 each).

    `subproc_count` are its multiprocessors. With `is_mig_device` it is a MIG instance of the GPU
    `mother_uuid`, which stands before it; its `mig_profile` may be a part of its name instead.
    A GPU with `mig_enabled` has no instances but those that its agent makes.
    """

    mother_uuid: DeviceUuid
    model_name: str
    memory_size: str | int
    numa_node: int | None = None
    subproc_count: Count | None = None
    is_mig_device: bool = False
    mig_enabled: bool = False
    mig_profile: str | None = None

    @property
    def profile(self) -> str | None:
        """The profile of an instance, such as 1g.10gb; None if nothing names one."""
        match = _PROFILE.search(self.mig_profile or self.model_name)
        return match.group() if match is not None else None


class MockLink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How GPUs are connected, each of them with each; by their indices."""

    devices: Annotated[tuple[Count, ...], Meta(min_length=2)]
    kind: LinkKind
    nvlinks: Count = 0


class LoadShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How devices look idle and held. The same seed gives the same readings, tick by tick.

    `ramp_seconds` is the time in which a held device loads its memory; `thermal_seconds` the time
    constant of temperature. `power_limit_w` is the limit a device starts with; it can be set
    between `power_limit_min_w` (else 200 W, or the limit itself where that is lower) and
    `power_limit_max_w` (else the limit itself).
    """

    seed: int = 0
    idle_memory_mb: NotNegative = 620.0
    held_memory_percent: Percent = 85.0
    held_utilization_percent: Percent = 92.0
    idle_power_w: NotNegative = 76.0
    held_power_w: NotNegative = 610.0
    power_limit_w: NotNegative = 700.0
    power_limit_min_w: NotNegative | None = None
    power_limit_max_w: NotNegative | None = None
    idle_temperature_c: float = 31.0
    held_temperature_c: float = 68.0
    ramp_seconds: PositiveSeconds = 3.0
    thermal_seconds: PositiveSeconds = 20.0
    idle_sm_clock_mhz: NotNegative = 345.0
    held_sm_clock_mhz: NotNegative = 1980.0
    memory_clock_mhz: NotNegative = 3201.0


class MockAttributes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the driver says of all devices."""

    nvidia_driver: str | None = None
    amd_driver: str | None = None
    cuda_runtime: str | None = None
    compute_capability: str | None = None


class _FleetFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`device_mask` are uuids, separated by commas, that are not there. Of a GPU whose parts are
    given (`fractional`) no device has the `reserved_memory`, and `unit_mem` and `unit_proc` are
    what one of the file's shares has of its memory and multiprocessors: all of them where neither
    is said. `quantum_size` is the least step of such shares.
    """

    devices: Annotated[list[MockDevice], Meta(min_length=1, max_length=1024)]
    slot_name: Literal["cuda", "rocm"] = "cuda"
    allocation_mode: Literal["discrete", "fractional"] = "discrete"
    reserved_memory: str | int | None = None
    unit_mem: str | int | None = None
    unit_proc: Annotated[int, Meta(ge=2)] | None = None
    quantum_size: Annotated[float, Meta(gt=0, le=1)] | None = None
    device_plugin_name: Annotated[str, line(min_length=1, max_length=253)] | None = None
    formats: dict[str, SlotFormat] = {}
    device_mask: str = ""
    attributes: MockAttributes = MockAttributes()
    load: LoadShape = LoadShape()
    replay: ReplayPlan | None = None
    fault: list[ScriptedFault] = []
    link: list[MockLink] = []


class Fleet(Struct, frozen=True, kw_only=True):
    """Simulated devices, in the order of their indices. `labels` are what the file says of shares
    and formats, for its node.
    """

    devices: tuple[DeviceFacts, ...]
    load: LoadShape
    replay: ReplayPlan | None = None
    faults: tuple[ScriptedFault, ...] = ()
    links: tuple[GpuLink, ...] = ()
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    labels: dict[str, str] = {}


def parse_fleet(text: str) -> Fleet:
    """Raises FleetError for what is not TOML, an unknown name, a wrong type, a repeated uuid, and
    what the form has and this simulation has not.
    """
    try:
        file = msgspec.convert(tomllib.loads(text), _FleetFile)
    except tomllib.TOMLDecodeError as error:
        raise FleetError(str(error)) from error
    except msgspec.ValidationError as error:
        path, sentence = explain_validation_error(error, _FleetFile)
        raise FleetError(f"{sentence} - at `{path}`") from error
    _refuse_unused(file)
    devices = _devices(file)
    uuids = [facts.uuid for facts in devices if facts.parent_uuid is None]
    for place, fault in enumerate(file.fault):
        if (reason := invalid_reason(fault, uuids)) is not None:
            raise FleetError(f"{reason} - at `$.fault[{place}]`")
    return Fleet(
        devices=devices,
        load=file.load,
        replay=file.replay,
        faults=tuple(file.fault),
        links=tuple(_links(file.link, uuids)),
        driver_version=file.attributes.nvidia_driver or file.attributes.amd_driver,
        cuda_driver_version=file.attributes.cuda_runtime,
        labels=_labels(file),
    )


def memory_mb(size: str | int, place: str) -> int:
    """Return the whole mebibytes of a size in bytes or with a unit. Raises FleetError."""
    match = _SIZE.match(str(size))
    if match is None:
        raise FleetError(f"expected a size such as 141G, found {size!r} - at `{place}`")
    return int(float(match.group(1)) * _FACTOR[(match.group(2) or "").upper()]) // MEBIBYTE


def _devices(file: _FleetFile) -> tuple[DeviceFacts, ...]:
    """Return whole GPUs, then the MIG instances of some of them. Raises FleetError."""
    masked = _read_mask(file.device_mask)
    parent_uuids = [device.mother_uuid for device in file.devices if not device.is_mig_device]
    if unknown := sorted(masked - set(parent_uuids)):
        raise FleetError(f"expected GPUs of this file, found {unknown[0]} - at `$.device_mask`")
    reserved_mb = memory_mb(file.reserved_memory or 0, "$.reserved_memory")
    wholes: dict[str, DeviceFacts] = {}
    instances: list[tuple[int, MockDevice]] = []
    for place, device in enumerate(file.devices):
        uuid = device.mother_uuid
        if uuid in masked:
            continue
        if device.is_mig_device:
            _refuse_instance(device, wholes, f"$.devices[{place}]")
            instances.append((place, device))
            continue
        if uuid in wholes:
            raise FleetError(f"expected unique devices, found {uuid} twice - at `$.devices`")
        wholes[uuid] = _facts(file, device, len(wholes), place, reserved_mb)
    mothers = {device.mother_uuid for _, device in instances}
    devices = [
        replace(facts, mig_enabled=True) if uuid in mothers else facts
        for uuid, facts in wholes.items()
    ]
    numbers: dict[str, int] = {}
    for place, device in instances:
        number = numbers[device.mother_uuid] = numbers.get(device.mother_uuid, -1) + 1
        size_mb = memory_mb(device.memory_size, f"$.devices[{place}].memory_size")
        devices.append(
            instance_of(
                wholes[device.mother_uuid], device.profile or "", number, len(devices), size_mb
            )
        )
    return tuple(devices)


def instance_of(
    facts: DeviceFacts, profile: str, number: int, index: int, size_mb: int
) -> DeviceFacts:
    """The `number`-th MIG instance of a GPU, always under the same uuid."""
    return DeviceFacts(
        uuid=f"MIG-{uuid5(NAMESPACE_OID, f'{facts.uuid}/{profile}/{number}')}",
        index=index,
        name=f"{facts.name} MIG {profile}",
        memory_total_mb=size_mb,
        compute_capability=facts.compute_capability,
        numa_node=facts.numa_node,
        mig_enabled=None,
        parent_uuid=facts.uuid,
        simulated=True,
        mig_profile=profile,
        gpu_instance_id=number,
        compute_instance_id=0,
    )


def _refuse_instance(device: MockDevice, wholes: Mapping[str, DeviceFacts], place: str) -> None:
    """Raises FleetError for one without a GPU, or without a profile."""
    if device.mother_uuid not in wholes:
        raise FleetError(
            f"expected the GPU {device.mother_uuid} before its MIG instance - at"
            f" `{place}.mother_uuid`"
        )
    if device.mig_enabled or wholes[device.mother_uuid].mig_enabled:
        raise FleetError(
            f"expected no instance of {device.mother_uuid}, whose agent makes them (mig_enabled) -"
            f" at `{place}.mother_uuid`"
        )
    if device.profile is None:
        raise FleetError(
            f"expected a profile such as 1g.10gb, also in the name - at `{place}.mig_profile`"
        )


def _facts(
    file: _FleetFile, device: MockDevice, index: int, place: int, reserved_mb: int
) -> DeviceFacts:
    size_mb = memory_mb(device.memory_size, f"$.devices[{place}].memory_size")
    if size_mb <= reserved_mb:
        raise FleetError(
            f"expected less than the {size_mb} MiB of a device, found {reserved_mb} - at"
            " `$.reserved_memory`"
        )
    load = file.load
    lowest = min(LOWEST_LIMIT_W, load.power_limit_w)
    highest = load.power_limit_w if load.power_limit_max_w is None else load.power_limit_max_w
    return DeviceFacts(
        uuid=device.mother_uuid,
        index=index,
        name=device.model_name,
        memory_total_mb=size_mb - reserved_mb,
        compute_capability=file.attributes.compute_capability,
        numa_node=device.numa_node,
        mig_enabled=device.mig_enabled,
        multiprocessor_count=device.subproc_count,
        simulated=True,
        power_limit_default_w=load.power_limit_w,
        power_limit_min_w=lowest if load.power_limit_min_w is None else load.power_limit_min_w,
        power_limit_max_w=highest,
    )


def _links(links: Sequence[MockLink], uuids: Sequence[str]) -> Iterator[GpuLink]:
    linked: set[tuple[int, int]] = set()
    for place, link in enumerate(links):
        if max(link.devices) >= len(uuids):
            raise FleetError(f"expected indices below {len(uuids)} - at `$.link[{place}].devices`")
        pairs = [pair for pair in combinations(sorted(set(link.devices)), 2) if pair not in linked]
        linked.update(pairs)
        for first, second in pairs:
            yield GpuLink(
                first_uuid=uuids[first],
                second_uuid=uuids[second],
                kind=link.kind,
                nvlinks=link.nvlinks,
            )


def _refuse_unused(file: _FleetFile) -> None:
    """Raises FleetError for a key of the form that would change nothing here."""
    for place, device in enumerate(file.devices):
        if device.mig_profile is not None and not device.is_mig_device:
            raise FleetError(
                "expected none: only a MIG instance (is_mig_device) has one - at"
                f" `$.devices[{place}].mig_profile`"
            )
    if file.allocation_mode == "discrete":
        for name in ("reserved_memory", "unit_mem", "unit_proc", "quantum_size"):
            if getattr(file, name) is not None:
                raise FleetError(
                    "expected none: only of parts of devices (allocation_mode 'fractional') it says"
                    f" anything - at `$.{name}`"
                )
    attributes = file.attributes
    unused = ("amd_driver",) if file.slot_name == "cuda" else _NVIDIAS
    for name in unused:
        if getattr(attributes, name) is not None:
            raise FleetError(f"expected none of slot {file.slot_name!r} - at `$.attributes.{name}`")


def _labels(file: _FleetFile) -> dict[str, str]:
    """Return the labels for the file's shares. Raises FleetError."""
    labels = format_labels(file.formats)
    if file.device_plugin_name is not None:
        labels[DEVICE_PLUGIN_LABEL] = file.device_plugin_name
    if file.quantum_size is not None:
        labels[SHARE_QUANTUM_LABEL] = f"{file.quantum_size:g}"
    if file.unit_mem is not None or file.unit_proc is not None:
        amounts = list(_shares_of_gpus(file))
        if any(amount != 1.0 for amount in amounts):
            labels[SHARES_PER_GPU_LABEL] = shares_label(amounts)
    return labels


def _shares_of_gpus(file: _FleetFile) -> Iterator[float]:
    """Yield how many of the file's shares each visible GPU has. Raises FleetError."""
    unit_mb = UNIT_MEMORY_MB if file.unit_mem is None else memory_mb(file.unit_mem, "$.unit_mem")
    if unit_mb < LEAST_UNIT_MEMORY_MB:
        raise FleetError(
            f"expected at least {LEAST_UNIT_MEMORY_MB} MiB, found {unit_mb} - at `$.unit_mem`"
        )
    masked = _read_mask(file.device_mask)
    for place, device in enumerate(file.devices):
        if device.is_mig_device or device.mother_uuid in masked:
            continue
        size_mb = memory_mb(device.memory_size, f"$.devices[{place}].memory_size")
        hundredths = [100 * size_mb // unit_mb]
        if device.subproc_count is not None:
            hundredths.append(100 * device.subproc_count // (file.unit_proc or UNIT_PROCESSORS))
        if min(hundredths) < 1:
            raise FleetError(
                f"expected units of which a device has some, found less than 0.01 of a share - at"
                f" `$.devices[{place}]`"
            )
        yield min(hundredths) / 100


def _read_mask(device_mask: str) -> frozenset[str]:
    """Return the uuids that a mask names."""
    return frozenset(uuid.strip() for uuid in device_mask.split(",") if uuid.strip())
