"""Settings of a telemetry agent."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import PositiveSeconds
from shared.mps import DEFAULT_PIPE_DIR
from shared.paths import DEFAULT_METRICS_PORT
from shared.settings import CommonSettings, check_listener

SourceName = Literal["auto", "nvml", "nvidia-smi", "amd", "dcgm", "simulated", "none"]


class TelemetrySettings(CommonSettings, frozen=True, kw_only=True):
    """`fleet` is the TOML file of a simulated fleet; `simulate` allows a built-in one.

    `interval_seconds` is the time between samples; the scheduler stops granting on readings older
    than three of them. Under `auto` `fleet` and `simulate` only come into play where no driver is
    found. `probe_deadline_seconds` is how long NVML, or a dcgm-exporter, may take for one reading,
    `open_deadline_seconds` for the driver's initialisation, which takes seconds on hosts without
    persistence mode; `smi_deadline_seconds` is for one run of nvidia-smi or amd-smi, and grows by
    itself on hosts where a run always takes longer. `dcgm_url` is the page of a dcgm-exporter, read
    only where one is named. `labels` of the node, as `zone=a,disk=nvme`, are what selectors of
    labels match, unless an operator has set others. `metrics` serves Prometheus on `metrics_host`
    and `metrics_port` (0: any free one), to whom asks for it by that address, by this host's name,
    by a loopback name or one of `metrics_allowed_hosts`; on every address by any name. With the
    certificate `metrics_cert` and its key `metrics_key`, read again when they change, it is https,
    which an address beyond this machine needs.
    Where kubelet's `pod_resources_socket` is, GPUs are joined to pods; devices of claims need the
    name of the `kubernetes_node` as well, and a service account that lists ResourceSlices.
    With `kubernetes_cuda_labels` that node is labelled `cuda-major-version` and
    `cuda-minor-version`, for which the service account has to be allowed to patch nodes.
    A node is labelled `gpusteward.io/mps` while an MPS daemon listens in `mps_pipe_dir`. With
    `mps_daemons` the agent runs one for each GPU, by `mps_control_path`, in a directory of
    `mps_pipe_dir` of its own, and labels the node once all of them listen. With
    `mig_instances` the scheduler may have it make MIG instances on GPUs in MIG mode, and remove
    those again.
    """

    source: SourceName = "auto"
    fleet: str | None = None
    simulate: bool = False
    interval_seconds: PositiveSeconds = 1.0
    inventory_seconds: PositiveSeconds = 30.0
    probe_deadline_seconds: PositiveSeconds = 2.0
    open_deadline_seconds: PositiveSeconds = 15.0
    smi_deadline_seconds: PositiveSeconds = 2.5
    smi_path: str = "nvidia-smi"
    amd_smi_path: str = "amd-smi"
    rocm_smi_path: str = "rocm-smi"
    dcgm_url: Annotated[str, Meta(pattern=r"^https?://[^/\s]+")] | None = None
    labels: str = ""
    metrics: bool = True
    metrics_host: str = "127.0.0.1"
    metrics_cert: str | None = None
    metrics_key: str | None = None
    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = DEFAULT_METRICS_PORT
    metrics_allowed_hosts: str = ""
    pod_resources_socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    kubernetes_node: str = ""
    kubernetes_cuda_labels: bool = False
    mps_pipe_dir: str = DEFAULT_PIPE_DIR
    mps_daemons: bool = False
    mps_control_path: str = "nvidia-cuda-mps-control"
    mig_instances: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metrics:
            check_listener(
                self.metrics_host,
                "GPUSTEWARD_TELEMETRY_METRICS_CERT",
                is_encrypted=self.metrics_cert is not None,
                is_allowed=self.insecure_plaintext,
            )
