"""Saved parameters that tasks take by name, as typed methods."""

from collections.abc import Sequence

from schemas.gateway import endpoints
from schemas.orchestrator.presets import (
    ExistingPreset,
    MergedPresets,
    MergeRequest,
    PresetFile,
    PresetView,
)
from schemas.task.task_file import PresetMerge
from shared.client.connection import GatewayConnection


class PresetClient(GatewayConnection):
    """The part of `StewardClient` that is about presets."""

    async def presets(self, namespace: str | None = None) -> tuple[PresetView, ...]:
        """A namespace's own by name, after them those of the release."""
        return await self.list_all(
            endpoints.LIST_PRESETS, lambda page: page.presets, namespace=namespace
        )

    async def preset(self, name: str, *, namespace: str | None = None) -> PresetView:
        return await self.call(endpoints.GET_PRESET, preset_name=name, namespace=namespace)

    async def save_presets(
        self,
        file: PresetFile | bytes,
        *,
        existing: ExistingPreset = ExistingPreset.REFUSE,
        namespace: str | None = None,
    ) -> None:
        """Save all of them, or none."""
        await self.call(endpoints.SAVE_PRESETS, file, existing=existing, namespace=namespace)

    async def merge_presets(
        self,
        presets: Sequence[str],
        how: PresetMerge = PresetMerge.LAST_WINS,
        *,
        namespace: str | None = None,
    ) -> MergedPresets:
        """Return the presets merged; nothing is stored."""
        request = MergeRequest(presets=tuple(presets), how=how)
        return await self.call(endpoints.MERGE_PRESETS, request, namespace=namespace)

    async def delete_preset(self, name: str, *, namespace: str | None = None) -> None:
        """Delete one; tasks that took it still have its parameters."""
        await self.call(endpoints.DELETE_PRESET, preset_name=name, namespace=namespace)
