"""Tasks and experiments as files, out of one platform and into another."""

from pathlib import Path
from uuid import UUID

from schemas.gateway import endpoints
from schemas.gateway.archives import ArchiveKind, ImportedView
from shared.client.connection import GatewayConnection


class ArchiveClient(GatewayConnection):
    """The part of `StewardClient` that is about exports and imports."""

    async def export(self, kind: ArchiveKind, subject_id: UUID) -> bytes:
        """A tar file with a finished task or experiment and all that was measured of it."""
        if kind is ArchiveKind.TASK:
            return await self.call(endpoints.EXPORT_TASK, task_id=subject_id)
        return await self.call(endpoints.EXPORT_EXPERIMENT, experiment_id=subject_id)

    async def import_archive(
        self, tar: bytes | Path, *, namespace: str | None = None
    ) -> ImportedView:
        """Show what another platform exported, its bytes or a file; once more changes nothing."""
        return await self.call(endpoints.IMPORT_ARCHIVE, tar, namespace=namespace)

    async def imports(self) -> tuple[ImportedView, ...]:
        """List imports, newest first."""
        return await self.list_all(endpoints.LIST_IMPORTS, lambda page: page.imported)
