"""The certificates that a platform makes for what it listens with beyond its own machine."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import StewardError
from shared.logging import log
from shared.tls.contexts import ServerFiles, files_in

RENEWAL_CHECK_SECONDS: Final = 3600.0
NATS_SERVER: Final = "nats"
HTTP_SERVER: Final = "gateway"


@dataclass(frozen=True, slots=True)
class OwnCertificates:
    """The certificates of the servers `names`, by an authority in `directory`: for this machine's
    own hosts and those of `hosts`.
    """

    directory: Path
    names: Sequence[str]
    hosts: Sequence[str]

    @property
    def authority_path(self) -> Path:
        return self.directory / "ca.pem"

    def files_of(self, name: str) -> ServerFiles:
        return files_in(self.directory / name)

    def renew(self) -> list[str]:
        """Make what is missing or near its end; return the names of the servers that have a new
        certificate. Raises OSError, CertificateUnusable.
        """
        if not self.names:
            return []
        from shared.tls.authority import Authority, own_hosts  # an agent has no `cryptography`

        authority = Authority(self.directory)
        authority.create()
        hosts = own_hosts(*self.hosts)
        return [name for name in self.names if authority.issue(name, hosts)]

    async def keep(self, on_renewed: Callable[[str], object]) -> None:
        """Renew for ever, in time; `on_renewed` is told each name that has a new certificate."""
        while True:
            await asyncio.sleep(RENEWAL_CHECK_SECONDS)
            try:
                for name in await asyncio.to_thread(self.renew):
                    log.info("certificate_renewed", name=name)
                    on_renewed(name)
            except (OSError, StewardError) as error:
                log.error("certificate_not_renewed", error=str(error))
