"""Tasks and experiments as files, out of one platform and into another."""

from pathlib import Path
from uuid import UUID

from schemas.gateway.archives import ArchiveKind, ImportedList, ImportedView
from shared.client.connection import GatewayConnection

ARCHIVE_SECONDS = 600.0


class ArchiveClient(GatewayConnection):
    """The part of `StewardClient` that is about exports and imports."""

    async def export(self, kind: ArchiveKind, subject_id: UUID) -> bytes:
        """A tar file with a finished task or experiment and all that was measured of it."""
        path = f"/{kind.value}s/{subject_id}/export"
        return await self.send("GET", path, timeout_seconds=ARCHIVE_SECONDS)

    async def import_archive(
        self, tar: bytes | Path, *, namespace: str | None = None
    ) -> ImportedView:
        """Show what another platform exported, its bytes or a file; once more changes nothing."""
        body = await self.send(
            "POST", "/imports", tar, {"namespace": namespace}, timeout_seconds=ARCHIVE_SECONDS
        )
        return self.decoded(body, ImportedView)

    async def imports(self) -> tuple[ImportedView, ...]:
        """What was imported, newest first."""
        return await self.listed("/imports", ImportedList, lambda page: page.imported, {})
