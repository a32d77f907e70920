"""An address that opens the web page logged in, once."""

from shared.client.discovery import Address
from shared.clock import utcnow


async def login_lines(address: Address) -> list[str]:
    """Return the address, with until when it counts. Raises ApiError, PlatformUnreachable."""
    from shared.client.http import StewardClient

    async with StewardClient(address) as client:
        link = await client.login_link()
    opened = f"{address.url}/#login={link.code}"
    minutes = round((link.ends_at - utcnow()).total_seconds() / 60)
    return [
        f"opens the page logged in, once, within {minutes} minutes: {opened}",
        "`gpusteward login` prints another one",
    ]
