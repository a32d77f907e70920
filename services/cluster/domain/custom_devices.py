"""Custom devices that ConfigMaps of a cluster define, which count as GPUs do."""

from collections.abc import Iterable
from typing import Any

from schemas.gpus.checks import DeviceConfigCheck, LimitsPolicy, ResourceDefinition
from shared.accelerator_rules.device_config import KIND, answer_device_config
from shared.accelerator_rules.modes import is_memory
from shared.kubernetes.objects.common import ConfigMap


class CustomDevices:
    """Definitions by their ConfigMaps. One with a violation defines nothing."""

    def __init__(self) -> None:
        self._found: dict[str, ConfigMap] = {}
        self.definitions: tuple[ResourceDefinition, ...] = ()
        self.violations: tuple[str, ...] = ()

    @property
    def resources(self) -> frozenset[str]:
        """The resources that count as devices of these.

        Memory of a device is no device, and what takes no limit is nothing that a pod could ask
        for.
        """
        return frozenset(
            definition.key
            for definition in self.definitions
            if definition.enabled
            and definition.limits is not LimitsPolicy.DISABLED
            and not is_memory(definition.key)
        )

    def replace(self, config_maps: Iterable[ConfigMap]) -> None:
        self._found = {config_map.metadata.name: config_map for config_map in config_maps}
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
        config_maps = tuple(_as_given(self._found[name]) for name in names)
        view = answer_device_config(DeviceConfigCheck(config_maps=config_maps))
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
