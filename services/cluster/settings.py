"""Settings of a cluster's adapter."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import PositiveSeconds
from shared.accelerator_rules.modes import COUNTED
from shared.settings import CommonSettings


class ClusterSettings(CommonSettings, frozen=True, kw_only=True):
    """The cluster's id is the node id. `resources` are the extended resources that are GPUs, by
    their exact names, where `*` stands for any ending, and `drivers` those of dynamic resource
    allocation whose devices are. `heartbeat_seconds` is how often the API is asked whether it
    answers, and how long it may take. A `standby` watches once the cluster's other adapter has not
    been heard for 12 s, and until it is heard again.

    GPUs of nodes without a telemetry agent are read every `readings_seconds`: from pods of
    dcgm-exporter, which have one of `exporter_labels`, on their port named metrics, else on
    `exporter_port`, at the pod's own address (`exporter_route` pod; auto where this runs in the
    cluster) or through the apiserver; where there is none by nvidia-smi in pods of this
    installation, unless `exec_readings` is off.
    """

    resources: str = ",".join(COUNTED)
    drivers: str = "gpu.nvidia.com,gpu.amd.com,gpu.intel.com"
    heartbeat_seconds: PositiveSeconds = 5.0
    readings_seconds: PositiveSeconds = 10.0
    exporter_labels: str = (
        "app=nvidia-dcgm-exporter,app.kubernetes.io/name=dcgm-exporter,app=dcgm-exporter"
    )
    exporter_route: Literal["auto", "pod", "apiserver"] = "auto"
    exporter_port: Annotated[int, Meta(ge=1, le=65_535)] = 9400
    exec_readings: bool = True
    standby: bool = False


def split_list(text: str) -> tuple[str, ...]:
    """Split a list at its commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
