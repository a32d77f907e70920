"""Labels the node in its cluster with the CUDA that its driver serves."""

import asyncio
import json
from collections.abc import Callable
from typing import Final

from services.telemetry.kubernetes.resource_slices import ClusterApi, call_api
from services.telemetry.sources.source import SourceFailedError
from shared.accelerator_rules.cuda_versions import driver_cuda
from shared.accelerator_rules.node_labels import cuda_labels
from shared.errors import RefusedError
from shared.logging import log

POLL_SECONDS: Final = 60.0


class CudaLabels:
    """Writes them when they are others than it wrote before. What is unknown changes nothing."""

    def __init__(self, api: ClusterApi, node: str, cuda: Callable[[], str | None]) -> None:
        self._api, self._node, self._cuda = api, node, cuda
        self._written: dict[str, str] | None = None

    async def run(self) -> None:
        while True:
            await self.write()
            await asyncio.sleep(POLL_SECONDS)

    async def write(self) -> None:
        """Write the labels once; a refusal is tried again a minute later."""
        cuda = self._cuda()
        if cuda is None:
            return
        try:
            labels = cuda_labels(driver_cuda(cuda))
            if labels == self._written:
                return
            body = json.dumps({"metadata": {"labels": labels}})
            await call_api(self._api, f"/api/v1/nodes/{self._node}", patch=body)
        except (OSError, SourceFailedError, RefusedError) as error:
            log.warning("node_not_labelled", node=self._node, error=str(error))
            return
        self._written = labels
