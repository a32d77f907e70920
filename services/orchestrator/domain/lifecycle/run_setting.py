"""What a run ran on, as far as it decides how fast the same configuration is."""

from collections.abc import Mapping, Sequence

from schemas.gpus.device_grant import DeviceGrant
from schemas.results.measurements import GpuMonitoring
from schemas.task.trust import RunSetting


def run_setting(
    granted: Sequence[DeviceGrant], monitoring: GpuMonitoring, driver_versions: Mapping[str, str]
) -> RunSetting:
    """Return the setting by the devices, those of its pod where a cluster chose them."""
    devices = granted or monitoring.devices
    limits_w = [stats.power_limit_w.mean for stats in monitoring.gpu_stats.values()]
    return RunSetting(
        gpu_models=tuple(sorted({device.name for device in devices})),
        memory_total_mb=tuple(
            sorted({device.memory_total_mb for device in devices if device.memory_total_mb})
        ),
        mig_profiles=tuple(
            sorted({device.mig_profile for device in devices if device.mig_profile})
        ),
        power_limits_w=tuple(sorted({round(limit) for limit in limits_w if limit is not None})),
        driver_versions=tuple(sorted(set(driver_versions.values()))),
    )
