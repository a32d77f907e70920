"""Uploaded files, piece by piece from the gateway over the bus: no disk is shared with it."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas.gateway.datasets import PIECE_BYTES, DatasetPiece, GetDatasetPiece
from shared.datasets.bounds import DatasetRefused
from shared.errors import RefusedError, UnavailableError

if TYPE_CHECKING:
    from shared.messaging.bus import Bus  # the base is installed without a client of the bus

ASK_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
# Without an answer: a gateway that was killed is started again by then.
GIVE_UP_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class UploadedFiles:
    """What gateways have; any of them gives each piece."""

    bus: "Bus"

    async def read(self, sha256: str) -> AsyncIterator[bytes]:
        """Yield the file's pieces. Raises DatasetRefused."""
        number = 0
        while True:
            piece = await self._ask(GetDatasetPiece(sha256=sha256, number=number))
            yield piece.content
            number += 1
            if number * PIECE_BYTES >= piece.size_bytes:
                return

    async def _ask(self, query: GetDatasetPiece) -> DatasetPiece:
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                return await self.bus.query(query, DatasetPiece, timeout_seconds=ASK_SECONDS)
            except RefusedError as error:
                raise DatasetRefused(error.message, "upload") from error
            except UnavailableError as error:
                if time.monotonic() > give_up_at:
                    message = f"the uploaded file did not come: {error}"
                    raise DatasetRefused(message, "upload") from error
            await asyncio.sleep(RETRY_SECONDS)
