"""A server's certificate that is read again when its files change; open connections go on."""

import asyncio
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.logging import log
from shared.tls.contexts import CertificateUnusable, load_pair, make_server_context

LOOK_SECONDS: Final = 2.0

Marks = tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class ReloadingCertificate:
    """`context` is the one that a server is given: what is loaded into it later counts for new
    connections. Raises CertificateUnusable where the files are unusable at first.
    """

    certificate: Path
    key: Path | None = None
    context: ssl.SSLContext = field(init=False)
    _marks: Marks = field(init=False)
    _refused_marks: Marks = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._marks = self._read_marks()
        self.context = make_server_context(self.certificate, self.key)

    async def run(self) -> None:
        """Look at the files for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.reload_if_changed()

    def reload_if_changed(self) -> bool:
        """Load the files if they have changed; what is unusable leaves the former one in place."""
        marks = self._read_marks()
        if marks == self._marks:
            return False
        try:
            # A live context would lose its key to a pair that does not match.
            make_server_context(self.certificate, self.key)
            load_pair(self.context, self.certificate, self.key)
        except CertificateUnusable as error:
            if marks == self._refused_marks:  # else one of both may have been written a moment ago
                log.error("certificate_unusable", error=str(error), hint="the former one is shown")
                self._marks = marks
            self._refused_marks = marks
            return False
        self._marks = marks
        log.info("certificate_loaded", certificate=str(self.certificate))
        return True

    def _read_marks(self) -> Marks:
        paths = [self.certificate, *([self.key] if self.key is not None else [])]
        return tuple(map(_mark, paths))


def load_certificate(certificate: str, key: str | None) -> ReloadingCertificate:
    """Return the certificate of these settings. Raises CertificateUnusable."""
    return ReloadingCertificate(Path(certificate), Path(key) if key is not None else None)


def _mark(path: Path) -> tuple[int, int, int]:
    """Return what changes with a file, also with one that a link leads to."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_mtime_ns, status.st_size
