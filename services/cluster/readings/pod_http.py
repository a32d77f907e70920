"""Pages of pods by their own addresses, from within the cluster."""

from typing import TYPE_CHECKING, Final

from services.cluster.pod_index import Exporter
from shared.kubernetes.errors import KubernetesError, KubernetesUnavailable

if TYPE_CHECKING:
    import aiohttp

OK: Final = 200


class PodPages:
    """One HTTP client for all of them. Raises KubernetesError where there is no page."""

    def __init__(self, *, timeout_seconds: float, largest_bytes: int) -> None:
        self._timeout_seconds = timeout_seconds
        self._largest_bytes = largest_bytes
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, exporter: Exporter) -> str:
        import aiohttp

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
            self._session = aiohttp.ClientSession(timeout=timeout)
        host = f"[{exporter.ip}]" if ":" in exporter.ip else exporter.ip
        url = f"http://{host}:{exporter.port}/metrics"
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status != OK:
                    raise KubernetesError(answer.status, answer.reason or "", f"{url} has no page")
                page = bytearray()
                async for piece in answer.content.iter_any():
                    page += piece
                    if len(page) > self._largest_bytes:
                        raise KubernetesError(0, "TooLarge", f"{url} has no page of this kind")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise KubernetesUnavailable(0, "Unreachable", f"{url}: {error}") from error
        return page.decode(errors="replace")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
