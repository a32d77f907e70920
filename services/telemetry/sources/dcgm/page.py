"""A page of a dcgm-exporter as devices and readings.

Names and units: DCGM's field identifiers (dcgm_fields.h) and the exporter's list of counters.
Framebuffer sizes are MiB, energy millijoules, `DCGM_FI_PROF_*` shares from 0 to 1.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.domain.throttle import throttle_reasons
from services.telemetry.domain.tool_values import count
from shared.gpu.dcgm_values import is_blank, memory_mb, utilization_percent
from shared.prometheus_text import Sample

PREFIX: Final = "DCGM_FI_"
XID_GAUGE: Final = "DCGM_FI_DEV_XID_ERRORS"
XID_COUNT: Final = "DCGM_EXP_XID_ERRORS_COUNT"

# Of one device. In MIG mode the exporter repeats the board's values on each instance; they are
# stored for the whole GPU alone, or power would count several times.
_BOARD: Final[Mapping[str, tuple[str, type]]] = {
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", float),
    "DCGM_FI_DEV_POWER_USAGE": ("power_draw_w", float),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power_limit_w", float),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": ("power_limit_w", float),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_mj", int),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", int),
    "DCGM_FI_DEV_MEM_CLOCK": ("memory_clock_mhz", int),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc_corrected", int),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc_uncorrected", int),
    "DCGM_FI_DEV_PSTATE": ("performance_state", int),
    "DCGM_FI_DEV_FAN_SPEED": ("fan_percent", float),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_utilization_percent", float),
    "DCGM_FI_DEV_ENC_UTIL": ("encoder_percent", float),
    "DCGM_FI_DEV_DEC_UTIL": ("decoder_percent", float),
    "DCGM_FI_DEV_PCIE_LINK_GEN": ("pcie_generation", int),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": ("pcie_width", int),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("remapped_rows_corrected", int),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("remapped_rows_uncorrected", int),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("remap_pending", bool),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("remap_failed", bool),
}
_THROTTLE: Final = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
_FACTS: Final[Mapping[str, tuple[str, type]]] = {
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": ("power_limit_default_w", float),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN": ("power_limit_min_w", float),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX": ("power_limit_max_w", float),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": ("pcie_generation_max", int),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": ("pcie_width_max", int),
}


class DcgmPage(Struct, frozen=True):
    """Devices and readings in the same order, by index; XIDs by the uuid of a whole GPU.

    `xid_gauges` has the last XID that DCGM saw, for as long as it runs; `xid_counts` how many of
    each number there were within the exporter's window.
    """

    devices: tuple[DeviceFacts, ...]
    readings: tuple[GpuReading, ...]
    driver_version: str | None
    xid_gauges: dict[str, int]
    xid_counts: dict[tuple[str, int], int]


class _Entity(Struct):
    """A GPU, or an instance where `instance` says which."""

    uuid: str
    number: int
    instance: int | None
    labels: dict[str, str]
    values: dict[str, float]


def parse_page(samples: Iterable[Sample]) -> DcgmPage:
    """Parse every GPU that the page names.

    Of two values for one field, as pods that share a GPU give, the first counts.
    """
    entities: dict[tuple[str, int | None], _Entity] = {}
    counts: dict[tuple[str, int], int] = {}
    for sample in samples:
        uuid, number = (
            sample.labels.get("UUID") or sample.labels.get("uuid", ""),
            count(sample.labels.get("gpu", "")),
        )
        if number is None or not 0 < len(uuid) <= 100:
            continue
        if sample.name == XID_COUNT:
            xid = count(sample.labels.get("xid", ""))
            if xid:
                counts[uuid, xid] = int(sample.value)
        elif sample.name.startswith(PREFIX):
            _store(entities, uuid, number, sample)
    ordered = sorted(entities.values(), key=_order)
    first_instance = 1 + max((entity.number for entity in ordered), default=-1)
    indices = _indices(ordered, first_instance)
    cut = {entity.uuid for entity in ordered if entity.instance is not None}
    return DcgmPage(
        devices=tuple(_facts(entity, indices[place], cut) for place, entity in enumerate(ordered)),
        readings=tuple(_reading(entity, indices[place]) for place, entity in enumerate(ordered)),
        driver_version=next(
            (
                entity.labels[key]
                for entity in ordered
                if (key := "DCGM_FI_DRIVER_VERSION") in entity.labels
            ),
            None,
        ),
        xid_gauges={
            entity.uuid: int(entity.values[XID_GAUGE])
            for entity in ordered
            if entity.instance is None and XID_GAUGE in entity.values
        },
        xid_counts=counts,
    )


def _store(
    entities: dict[tuple[str, int | None], _Entity], uuid: str, number: int, sample: Sample
) -> None:
    """Store a value with its instance, or with the whole GPU where it is the GPU's."""
    instance = count(sample.labels.get("GPU_I_ID", ""))
    gpu = entities.get((uuid, None))
    if gpu is None:
        gpu = entities[uuid, None] = _Entity(uuid, number, None, sample.labels, {})
    if instance is None:
        entity = gpu
    else:
        if (uuid, instance) not in entities:
            entities[uuid, instance] = _Entity(uuid, number, instance, sample.labels, {})
        entity = gpu if _is_board(sample.name) else entities[uuid, instance]
    if not is_blank(sample.value):
        entity.values.setdefault(sample.name, sample.value)


def _is_board(name: str) -> bool:
    return name in _BOARD or name in _FACTS or name in _THROTTLE or name == XID_GAUGE


def _order(entity: _Entity) -> tuple[bool, int, int]:
    return entity.instance is not None, entity.number, entity.instance or 0


def _indices(ordered: list[_Entity], first_instance: int) -> list[int]:
    wholes = sum(1 for entity in ordered if entity.instance is None)
    return [
        entity.number if entity.instance is None else first_instance + place - wholes
        for place, entity in enumerate(ordered)
    ]


def _uuid(entity: _Entity) -> str:
    """An instance's older name, as CUDA takes it too, with the first of its compute instances.

    The exporter does not print the newer one.
    """
    return entity.uuid if entity.instance is None else f"MIG-{entity.uuid}/{entity.instance}/0"


def _name(entity: _Entity) -> str | None:
    model, profile = entity.labels.get("modelName") or None, entity.labels.get("GPU_I_PROFILE")
    return f"{model} MIG {profile}" if model and profile and entity.instance is not None else model


def _map(entity: _Entity, names: Mapping[str, tuple[str, type]]) -> dict[str, Any]:
    if entity.instance is not None:
        return {}
    return {
        field: convert(entity.values[name])
        for name, (field, convert) in names.items()
        if name in entity.values
    }


def _reading(entity: _Entity, index: int) -> GpuReading:
    total, used, free = memory_mb(entity.values)
    throttle = next((entity.values[name] for name in _THROTTLE if name in entity.values), None)
    single = entity.values.get("DCGM_FI_DEV_RETIRED_SBE")
    double = entity.values.get("DCGM_FI_DEV_RETIRED_DBE")
    pending = entity.values.get("DCGM_FI_DEV_RETIRED_PENDING")
    return GpuReading(
        uuid=_uuid(entity),
        index=index,
        name=_name(entity),
        utilization_percent=utilization_percent(
            entity.values, is_instance=entity.instance is not None
        ),
        memory_total_mb=total,
        memory_used_mb=used,
        memory_free_mb=free,
        throttle_reasons=None if throttle is None else throttle_reasons(int(throttle)),
        retired_pages=None if single is None or double is None else int(single + double),
        retired_pages_pending=None if pending is None else pending > 0,
        **_map(entity, _BOARD),
    )


def _facts(entity: _Entity, index: int, cut: Collection[str]) -> DeviceFacts:
    """Return the facts; for a GPU without instances it is unknown whether it is in MIG mode."""
    is_instance = entity.instance is not None
    capability = entity.values.get("DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY")
    return DeviceFacts(
        uuid=_uuid(entity),
        index=index,
        name=_name(entity) or "unknown",
        memory_total_mb=memory_mb(entity.values)[0],
        pci_bus_id=entity.labels.get("pci_bus_id") or None,
        compute_capability=None
        if capability is None
        else f"{int(capability) >> 16}.{int(capability) & 0xFFFF}",
        parent_uuid=entity.uuid if is_instance else None,
        mig_profile=entity.labels.get("GPU_I_PROFILE") if is_instance else None,
        gpu_instance_id=entity.instance,
        mig_enabled=True if entity.uuid in cut and not is_instance else None,
        **_map(entity, _FACTS),
    )
