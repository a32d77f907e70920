"""Secrets of namespaces, as typed methods. None returns a value."""

from schemas.gateway import endpoints
from schemas.orchestrator.secrets import SecretValue, SecretView
from shared.client.connection import GatewayConnection


class SecretClient(GatewayConnection):
    """The part of `StewardClient` that is about secrets."""

    async def secrets(self, namespace: str | None = None) -> tuple[SecretView, ...]:
        """A namespace's secrets by name, without their values."""
        return await self.list_all(
            endpoints.LIST_SECRETS, lambda page: page.secrets, namespace=namespace
        )

    async def set_secret(
        self, name: str, value: str, *, namespace: str | None = None
    ) -> SecretView:
        """Keep a value under a name, in place of the one before."""
        body = SecretValue(value=value)
        return await self.call(endpoints.SET_SECRET, body, secret_name=name, namespace=namespace)

    async def remove_secret(self, name: str, *, namespace: str | None = None) -> None:
        """Forget it; tasks that name it start nothing more."""
        await self.call(endpoints.REMOVE_SECRET, secret_name=name, namespace=namespace)

    async def rotate_secret_key(self) -> int:
        """Seal every secret with the newest key; return how many were. For admins."""
        return (await self.call(endpoints.ROTATE_SECRET_KEY)).revision
