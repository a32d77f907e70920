"""Uploaded datasets and traces, as typed methods."""

from pathlib import Path

from schemas.gateway import endpoints
from schemas.gateway.datasets import DatasetView
from shared.client.connection import GatewayConnection


class DatasetClient(GatewayConnection):
    """The part of `StewardClient` that is about uploaded files."""

    async def add_dataset(
        self, path: Path, name: str | None = None, *, namespace: str | None = None
    ) -> DatasetView:
        """Upload a file under a name, by default its own; the answer says what it holds."""
        return await self.call(
            endpoints.ADD_DATASET,
            path,
            name=name or path.name,
            file_name=path.name,
            namespace=namespace,
        )

    async def datasets(self, namespace: str | None = None) -> tuple[DatasetView, ...]:
        """List a namespace's uploaded files by name."""
        return await self.list_all(
            endpoints.LIST_DATASETS, lambda page: page.datasets, namespace=namespace
        )

    async def dataset(self, name: str, *, namespace: str | None = None) -> DatasetView:
        """Return what a file holds, and which unfinished tasks use it."""
        return await self.call(endpoints.GET_DATASET, dataset_name=name, namespace=namespace)

    async def remove_dataset(
        self, name: str, *, namespace: str | None = None, force: bool = False
    ) -> None:
        """Forget a file; one that unfinished tasks use only with `force`."""
        await self.call(
            endpoints.REMOVE_DATASET,
            dataset_name=name,
            namespace=namespace,
            force=force or None,
        )
