"""GPUs as a table, and who holds them."""

from collections.abc import Sequence

from schemas.gateway.views import GpuView
from schemas.scheduler.devices import CordonCause
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.views import DeviceHolder
from schemas.telemetry.readings import HealthState
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import number
from services.cli.display.tables import cordon_text, holder_text, source_text


def gpu_table(gpus: Sequence[GpuView]) -> Table:
    """GPUs with their last readings; `-` is unknown."""
    rows = [
        [
            gpu.node_id,
            str(gpu.index),
            gpu.name,
            gpu.state.value if gpu.state is not None else UNKNOWN,
            gpu.health.value,
            number(gpu.utilization_percent),
            f"{number(gpu.memory_used_mb)}/{number(gpu.memory_total_mb)}",
            number(gpu.temperature_c),
            f"{number(gpu.power_draw_w)}/{number(gpu.power_limit_w)}",
            number(gpu.availability_score, 2),
            gpu_holder(gpu),
            source_text(gpu.simulated, gpu.fresh),
            gpu_reason(gpu) or UNKNOWN,
        ]
        for gpu in gpus
    ]
    headings = [
        *("node", "gpu", "name", "state", "health", "util %", "memory MB", "temp C", "power W"),
        *("score", "holder", "source", "reason"),
    ]
    return Table(
        headings,
        rows,
        numeric=frozenset({"gpu", "util %", "memory MB", "temp C", "power W", "score"}),
        important=(
            *("gpu", "state", "util %", "memory MB", "source", "holder", "reason"),
            *("temp C", "power W", "name", "score", "health"),
        ),
        shortened=frozenset({"name", "holder", "reason"}),
        noted="reason",
        notes=[f"{gpu.node_id}/{gpu.index}: {why}" for gpu in gpus if (why := gpu_reason(gpu))],
    )


def gpu_reason(gpu: GpuView) -> str:
    """Say why nothing is granted on a GPU, apart from who holds it; empty if nothing keeps it."""
    if gpu.state is None and gpu.health is not HealthState.OK:  # not known to the scheduler
        return f"{gpu.health.value}: {gpu.health_detail}" if gpu.health_detail else gpu.health.value
    shown_codes = {ReasonCode.CORDONED}
    if gpu.cordon is not None and gpu.cordon.cause is CordonCause.NODE_LOST:
        shown_codes.add(ReasonCode.NODE_LOST)
    other_messages = [reason.message for reason in gpu.reasons if reason.code not in shown_codes]
    cordoned = [cordon_text(gpu.cordon)] if gpu.cordon is not None else []
    return "; ".join([*cordoned, *other_messages])


def gpu_holder(gpu: GpuView) -> str:
    """The reservation's holder, with their shares those of several, else the pods that Kubernetes
    gave it to.
    """
    if any(holder.shares < 1 for holder in gpu.holders):
        return holders_text(gpu.holders)
    if gpu.holder is None and gpu.pods:
        return ", ".join(dict.fromkeys(f"pod {pod.namespace}/{pod.pod}" for pod in gpu.pods))
    return holder_text(gpu.holder)


def holders_text(holders: Sequence[DeviceHolder]) -> str:
    """List each holder with its share."""
    return ", ".join(
        f"{holder_text(holder.holder or str(holder.reservation_id))} {holder.shares:.2f}"
        for holder in holders
    )
