"""Custom devices that ConfigMaps of a cluster define, which count as GPUs do."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from schemas.gpus.checks import DeviceConfigCheck, LimitsPolicy, ResourceDefinition
from services.cluster.domain.objects import Metadata
from shared.accelerator_rules.device_config import KIND, answer_device_config
from shared.accelerator_rules.modes import is_memory


class ConfigMap(Struct, frozen=True):
    """As far as custom devices go."""

    metadata: Metadata
    data: dict[str, str] = {}


class CustomDevices:
    """Definitions by their ConfigMaps. One with a violation defines nothing."""

    def __init__(self) -> None:
        self._found: dict[str, ConfigMap] = {}
        self.definitions: tuple[ResourceDefinition, ...] = ()
        self.violations: tuple[str, ...] = ()

    @property
    def resources(self) -> frozenset[str]:
        """What is counted for them: memory of a device is no device, and what takes no limit is
        nothing that a pod could ask for.
        """
        return frozenset(
            each.key
            for each in self.definitions
            if each.enabled and each.limits is not LimitsPolicy.DISABLED and not is_memory(each.key)
        )

    def replace(self, config_maps: Iterable[ConfigMap]) -> None:
        self._found = {each.metadata.name: each for each in config_maps}
        self._read()

    def apply(self, config_map: ConfigMap) -> None:
        self._found[config_map.metadata.name] = config_map
        self._read()

    def remove(self, name: str) -> None:
        self._found.pop(name, None)
        self._read()

    def _read(self) -> None:
        names = sorted(self._found)
        if not names:
            self.definitions, self.violations = (), ()
            return
        given = tuple(_as_given(self._found[name]) for name in names)
        view = answer_device_config(DeviceConfigCheck(config_maps=given))
        self.definitions = view.resources
        self.violations = tuple(
            f"ConfigMap {names[int(number)]}: {finding.message}"
            for finding in view.findings
            for number in [finding.subject.removeprefix("$.config_maps[").partition("]")[0]]
        )


def _as_given(config_map: ConfigMap) -> dict[str, Any]:
    metadata = config_map.metadata
    return {
        **KIND,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": metadata.labels,
        },
        "data": config_map.data,
    }
