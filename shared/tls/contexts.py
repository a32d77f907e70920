"""Contexts of TLS, from files and texts that people give; what is unusable is a sentence."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from shared.errors import StewardError


class CertificateUnusable(StewardError, ValueError):
    """A certificate, a key or an authority's file is missing, unreadable, or not the other's.

    The text says which file it is and what was expected there.
    """


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """Where a server's certificate and key are."""

    certificate: Path
    key: Path


def files_in(directory: Path) -> ServerFiles:
    """Return the files of a server whose directory an authority of ours has made."""
    return ServerFiles(directory / "server.pem", directory / "server.key")


def make_client_context(
    ca: str | Path | None = None,
    *,
    ca_text: str | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    trusts_system: bool = False,
) -> ssl.SSLContext:
    """Return a context that verifies a server and its name by the authorities of a file or a text;
    where there is neither, or with `trusts_system`, also by the system's.

    Raises CertificateUnusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        load_authorities(context, Path(ca))
    elif ca_text:
        _load_authorities_text(context, ca_text)
    if trusts_system or (ca is None and not ca_text):
        context.load_default_certs()
    if certificate is not None:
        load_pair(context, Path(certificate), Path(key) if key is not None else None)
    elif key is not None:
        raise CertificateUnusable(f"the key {key} has no certificate: expected both or neither")
    return context


def trusting(certificate: Path | None) -> ssl.SSLContext | bool:
    """Return what an HTTP client of ours is told to trust: one certificate, whatever name or
    address its server is reached by, as nobody else has its key; or True, the system's authorities.

    Raises CertificateUnusable.
    """
    if certificate is None:
        return True
    context = make_client_context(certificate)
    context.check_hostname = False
    return context


def make_server_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """Return a context that shows a certificate. Raises CertificateUnusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, certificate, key)
    return context


def load_authorities(context: ssl.SSLContext, path: Path) -> None:
    """Have the context trust the authorities of a file. Raises CertificateUnusable."""
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise CertificateUnusable(
            f"{path} holds no certificate of an authority: expected one or more in PEM, each from "
            "-----BEGIN CERTIFICATE----- on"
        ) from None
    except OSError as error:
        raise CertificateUnusable(f"the authority's file {path}: {error.strerror}") from None


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Have the context show a certificate, whose key may be in the same file.

    Raises CertificateUnusable.
    """
    for path in (certificate, key):
        if path is not None:
            try:
                path.open("rb").close()
            except OSError as error:
                raise CertificateUnusable(f"{path}: {error.strerror}") from None
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = "the key is another certificate's"
        else:
            why = "expected a certificate and its key in PEM, the key without a password"
        raise CertificateUnusable(f"{certificate} with {key or 'its own key'}: {why}") from None
    except ValueError:
        raise CertificateUnusable(
            f"{key or certificate}: expected a key without a password, found one with one"
        ) from None


def _load_authorities_text(context: ssl.SSLContext, text: str) -> None:
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise CertificateUnusable(
            "the authority in the credentials is no certificate in PEM: have the file made anew"
        ) from None


def _refuse_password() -> bytes:
    raise ValueError("the key has a password")
