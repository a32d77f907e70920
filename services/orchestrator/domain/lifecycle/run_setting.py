"""What a run ran on, as far as it decides how fast the same configuration is."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from schemas.gpus.device_grant import DeviceGrant
from schemas.results.measurements import GpuMonitoring
from schemas.task.benchmark import BenchmarkResult
from schemas.task.fingerprint import EngineFacts, LoadHost
from schemas.task.trust import RunSetting


def with_benchmark(setting: RunSetting, benchmark: BenchmarkResult) -> RunSetting:
    """Return the setting with the host that sent the load, and the engine's version."""
    host, engine = benchmark.load_host or LoadHost(), benchmark.engine or EngineFacts()
    return replace(
        setting,
        cpu_model=host.cpu_model,
        cpu_governor=host.cpu_governor,
        engine_version=engine.version,
    )


def with_devices(
    setting: RunSetting,
    granted: Sequence[DeviceGrant],
    monitoring: GpuMonitoring,
    driver_versions: Mapping[str, str],
) -> RunSetting:
    """Return the setting with its devices, those of its pod where a cluster chose them."""
    devices = granted or monitoring.devices
    limits_w = [stats.power_limit_w.mean for stats in monitoring.gpu_stats.values()]
    return replace(
        setting,
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
