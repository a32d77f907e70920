"""An authority of our own: makes the certificates of our servers, and renews them in time.

Of `cryptography`, which the extra `server` brings; whoever only verifies needs none of this.
"""

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.clock import utcnow
from shared.paths import give_to_owner_above, make_directory, write_atomically
from shared.tls.contexts import CertificateUnusable, ServerFiles, files_in

AUTHORITY_LIFE: Final = timedelta(days=3650)
LEAF_LIFE: Final = timedelta(days=397)
RENEW_BEFORE_END: Final = LEAF_LIFE / 3
CLOCK_SKEW: Final = timedelta(hours=1)  # of a host whose clock is behind
ORGANIZATION: Final = "GPU Steward"


class Authority:
    """An authority in a directory: `ca.pem`, `ca.key`, and for each server a directory of its name,
    which may be shown to that server alone: `server.pem`, `server.key`, and `ca.pem` once more.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def certificate_path(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def key_path(self) -> Path:
        return self.directory / "ca.key"

    def files_of(self, name: str) -> ServerFiles:
        return files_in(self.directory / name)

    def create(self, now: datetime | None = None) -> bool:
        """Make the authority where there is none; whether one was made. Raises OSError."""
        make_directory(self.directory, 0o700)
        give_to_owner_above(self.directory)
        if self.certificate_path.exists() and self.key_path.exists():
            return False
        now = now or utcnow()
        key = ec.generate_private_key(ec.SECP256R1())
        # A name of its own, or a host that trusts two installations mixes their authorities up.
        mark = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        subject = _name(f"{ORGANIZATION} CA {mark.digest.hex()[:12]}")
        certificate = (
            _builder(subject, subject, key, now, now + AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        self._write(self.key_path, _pem_of_key(key))
        self._write(self.certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
        return True

    def issue(
        self,
        name: str,
        hosts: Sequence[str],
        *,
        now: datetime | None = None,
        also_client: bool = False,
    ) -> bool:
        """Make the certificate of the server `name`, or renew it: where it is missing, near its
        end, another authority's, or lacks one of the `hosts`, names or addresses.

        Return whether one was made. Raises OSError, CertificateUnusable.
        """
        directory = self.directory / name
        return self.issue_into(directory, name, hosts, now=now, also_client=also_client)

    def issue_into(
        self,
        directory: Path,
        name: str,
        hosts: Sequence[str],
        *,
        now: datetime | None = None,
        also_client: bool = False,
    ) -> bool:
        """Do as `issue` does, for a server whose directory is elsewhere."""
        now = now or utcnow()
        files = files_in(directory)
        authority = self._load_certificate(self.certificate_path)
        if files.key.exists() and _still_serves(files.certificate, authority, hosts, now):
            return False
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        if also_client:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        ends_at = min(now + LEAF_LIFE, authority.not_valid_after_utc)
        certificate = (
            _builder(_name(name), authority.subject, key, now, ends_at)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(_general_names(hosts)), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),  # type: ignore[arg-type]  # ours is of an elliptic curve
                critical=False,
            )
            .sign(self._load_key(), hashes.SHA256())
        )
        make_directory(files.key.parent, 0o700)
        give_to_owner_above(files.key.parent)
        self._write(files.key.parent / "ca.pem", self.certificate_path.read_bytes())
        # The key first: who reads between both finds a pair that does not match, and reads again.
        self._write(files.key, _pem_of_key(key))
        self._write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return True

    def _load_key(self) -> ec.EllipticCurvePrivateKey:
        try:
            key = serialization.load_pem_private_key(self.key_path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise CertificateUnusable(f"the authority's key {self.key_path}: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateUnusable(f"the authority's key {self.key_path} is none of ours")
        return key

    def _load_certificate(self, path: Path) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError) as error:
            raise CertificateUnusable(f"the certificate {path}: {error}") from None

    def _write(self, path: Path, content: bytes) -> None:
        write_atomically(path, content, is_durable=True)
        give_to_owner_above(path)


def make_own_pair(
    name: str, hosts: Sequence[str], life: timedelta, now: datetime | None = None
) -> tuple[bytes, bytes]:
    """Make a key, and a certificate that it signs itself, for one server and a short life: who
    trusts this certificate alone reaches nobody else. Both are PEM, the key first.
    """
    now = now or utcnow()
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject, subject, key, now, now + life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(hosts)), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem_of_key(key), certificate.public_bytes(serialization.Encoding.PEM)


def own_hosts(*further: str) -> list[str]:
    """Return the names and addresses by which this machine is reached, with those given."""
    import psutil

    addresses = {
        address.address.partition("%")[0]
        for interface in psutil.net_if_addrs().values()
        for address in interface
        if address.family in {socket.AF_INET, socket.AF_INET6}
    }
    names = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
    extra_hosts = {host.strip("[]").lower() for host in further if host}
    return sorted({*addresses, *names, *extra_hosts, "127.0.0.1", "::1"} - {"0.0.0.0", "::", ""})  # noqa: S104  # no host has these


def _still_serves(
    path: Path, authority: x509.Certificate, hosts: Iterable[str], now: datetime
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001  # unreadable, or another's: in any case not ours
        return False
    is_lasting = certificate.not_valid_after_utc - now > RENEW_BEFORE_END
    return is_lasting and set(_general_names(hosts)) <= set(names)


def _general_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    return [_general_name(host) for host in hosts]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        # As DNS knows a name beyond ASCII.
        return x509.DNSName(host if host.isascii() else host.encode("idna").decode())


def _name(text: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, text[:64]),
        ]
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    ends_at: datetime,
) -> x509.CertificateBuilder:
    public_key = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(ends_at)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
