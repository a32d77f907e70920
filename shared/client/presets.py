"""Saved parameters that tasks take by name, as typed methods."""

from collections.abc import Sequence
from urllib.parse import quote

from schemas.orchestrator.presets import (
    ExistingPreset,
    MergedPresets,
    MergeRequest,
    PresetFile,
    PresetList,
    PresetView,
)
from schemas.task.task_file import PresetMerge
from shared.client.connection import GatewayConnection


class PresetClient(GatewayConnection):
    """The part of `StewardClient` that is about presets."""

    async def presets(self, namespace: str | None = None) -> tuple[PresetView, ...]:
        """A namespace's own by name, after them those of the release."""
        wanted = {"namespace": namespace}
        return await self.listed("/presets", PresetList, lambda page: page.presets, wanted)

    async def preset(self, name: str, *, namespace: str | None = None) -> PresetView:
        return await self.get(f"/presets/{quote(name)}", PresetView, {"namespace": namespace})

    async def save_presets(
        self,
        file: PresetFile | bytes,
        *,
        existing: ExistingPreset = ExistingPreset.REFUSE,
        namespace: str | None = None,
    ) -> None:
        """Save all of them, or none."""
        wanted = {"existing": existing.value, "namespace": namespace}
        await self.send("POST", "/presets", file, wanted)

    async def merge_presets(
        self,
        presets: Sequence[str],
        how: PresetMerge = PresetMerge.LAST_WINS,
        *,
        namespace: str | None = None,
    ) -> MergedPresets:
        """What they would be together; nothing is stored."""
        request = MergeRequest(presets=tuple(presets), how=how)
        wanted = {"namespace": namespace}
        return self.decoded(
            await self.send("POST", "/merged-presets", request, wanted), MergedPresets
        )

    async def delete_preset(self, name: str, *, namespace: str | None = None) -> None:
        """Delete one; tasks that took it still have its parameters."""
        await self.send("DELETE", f"/presets/{quote(name)}", None, {"namespace": namespace})
