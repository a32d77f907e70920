"""Certificates of our own: for whom they are, how long they last, who reads their keys."""

import ssl
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from shared.clock import utcnow
from shared.tls.authority import AUTHORITY_LIFE, LEAF_LIFE, Authority, own_hosts
from shared.tls.contexts import CertificateUnusable, make_client_context, make_server_context
from shared.tls.ends import read_file_end

HOSTS = ["gpus.example.org", "10.0.0.1"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "tls")
    assert made.create()
    return made


def end_of(authority: Authority, name: str = "nats") -> timedelta:
    return read_file_end(authority.files_of(name).certificate) - utcnow()


def test_keys_are_read_by_their_owner_alone(authority: Authority) -> None:
    authority.issue("nats", HOSTS)

    for path in (authority.key_path, authority.files_of("nats").key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(authority.directory.stat().st_mode) == 0o700


def test_a_second_authority_is_not_made(authority: Authority) -> None:
    before = authority.certificate_path.read_bytes()

    assert not authority.create()
    assert authority.certificate_path.read_bytes() == before


def test_certificate_is_made_once_and_for_its_hosts(authority: Authority) -> None:
    assert authority.issue("nats", HOSTS)
    assert not authority.issue("nats", HOSTS[:1])

    certificate = x509.load_pem_x509_certificate(
        authority.files_of("nats").certificate.read_bytes()
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gpus.example.org"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    assert LEAF_LIFE - timedelta(days=1) < end_of(authority) <= LEAF_LIFE


@pytest.mark.parametrize(("days_left", "is_renewed"), [(131, True), (134, False)])
def test_renewal_comes_months_before_the_end(
    days_left: int, is_renewed: bool, authority: Authority
) -> None:
    authority.issue("nats", HOSTS, now=utcnow() - LEAF_LIFE + timedelta(days=days_left))

    assert authority.issue("nats", HOSTS) is is_renewed


def test_another_host_or_authority_means_a_new_one(authority: Authority, tmp_path: Path) -> None:
    authority.issue("nats", HOSTS)

    assert authority.issue("nats", [*HOSTS, "other.example.org"])
    authority.certificate_path.unlink()
    assert authority.create()
    assert authority.issue("nats", HOSTS)


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    authority.create(now=utcnow() - AUTHORITY_LIFE + timedelta(days=5))

    authority.issue("nats", HOSTS)

    assert end_of(authority) < timedelta(days=5)


def test_wildcards_stand_for_all_of_this_machine() -> None:
    hosts = own_hosts("0.0.0.0", "::", "GPUs.example.org")  # noqa: S104  # not listened on

    assert {"127.0.0.1", "::1", "localhost", "gpus.example.org"} <= set(hosts)
    assert {"0.0.0.0", "::"}.isdisjoint(hosts)  # noqa: S104  # as above


def test_python_verifies_what_was_made(authority: Authority) -> None:
    authority.issue("nats", HOSTS)
    files = authority.files_of("nats")
    client, server = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = make_server_context(files.certificate, files.key).wrap_bio(client, server, True)
    here = make_client_context(authority.certificate_path).wrap_bio(
        server, client, server_hostname="gpus.example.org"
    )
    for _ in range(4):
        for side in (here, there):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue

    assert here.getpeercert()


@pytest.mark.parametrize(
    ("certificate", "key", "sentence"),
    [
        ("nats/server.pem", "other/server.key", "the key is another certificate's"),
        ("nats/server.key", "nats/server.key", "expected a certificate and its key in PEM"),
        ("nats/nothing.pem", "nats/server.key", "nothing.pem: No such file"),
    ],
)
def test_unusable_pair_is_a_sentence(
    certificate: str, key: str, sentence: str, authority: Authority
) -> None:
    for name in ("nats", "other"):
        authority.issue(name, HOSTS)

    with pytest.raises(CertificateUnusable, match=sentence):
        make_server_context(authority.directory / certificate, authority.directory / key)


def test_key_with_a_password_is_a_sentence(authority: Authority) -> None:
    authority.issue("nats", HOSTS)
    files = authority.files_of("nats")
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )

    with pytest.raises(CertificateUnusable, match="a key without a password"):
        make_server_context(files.certificate, files.key)
