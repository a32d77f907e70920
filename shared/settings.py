"""Settings from the environment, typed, read once at start."""

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from shared.host_header import is_loopback
from shared.ids import host_node_id, node_token
from shared.nats_addresses import read_nats_addresses
from shared.near_words import nearest
from shared.paths import default_data_dir
from shared.postgres_address import read_servers, servers_in_plaintext
from shared.tls.nats import NatsSecurity, read_authority

PREFIX = "GPUSTEWARD_"
_COMMON = (
    "nats_url",
    "nats_credentials",
    "nats_ca",
    "nats_cert",
    "nats_key",
    "nats_tls_first",
    "insecure_plaintext",
    "stream_replicas",
    "sample_stream_replicas",
    "postgres_dsn",
    "data_dir",
    "node_id",
    "installation_id",
    "kubeconfig",
    "kube_context",
    "traces_endpoint",
)
_SECRET = frozenset({"nats_url", "postgres_dsn", "dsn", "traces_endpoint"})
_DSNS = frozenset({"postgres_dsn", "dsn"})
INSECURE_VARIABLE: Final = "GPUSTEWARD_INSECURE_PLAINTEXT"


AUTO: Final = "auto"
Replicas = Annotated[str, Meta(pattern=f"^({AUTO}|[1-5])$")]


class CommonSettings(Struct, frozen=True, kw_only=True):
    """What every service reads. URLs may carry a password, so `repr` leaves them out.

    `nats_url` is a server's address, or those of a cluster's servers with commas between them.
    `nats_credentials` is the path of a JSON file with `user` and `password`, and the `ca` of that
    server where it has one of its own. `nats_ca` is a file with the authority by which its
    certificate is verified instead, `nats_cert` and `nats_key` are shown to a server that asks for
    a client's. TLS is spoken where an authority is given or the address begins with tls:// (then by
    the system's authorities), from the first byte unless `nats_tls_first` is false, which a server
    without `handshake_first` needs. Addresses beyond this machine without TLS, of NATS, of Postgres
    and to listen at, are refused unless `insecure_plaintext` is true. `stream_replicas`
    is on how many servers of a NATS cluster events are kept, `sample_stream_replicas` samples:
    a number from 1 to 5, or `auto`, three where the cluster has three servers or more.
    `installation_id` marks everything that this installation starts. `postgres_dsn` may name
    several servers, as in `postgresql://USER:PASSWORD@HOST1:PORT,HOST2:PORT/NAME`: the one that
    takes writes is used. `kubeconfig` leads a process of a Kubernetes cluster to it, by default
    the way kubectl goes: KUBECONFIG, `~/.kube/config`, in a pod its service account;
    `kube_context` is a context of it other than the current one. `traces_endpoint` is an
    OpenTelemetry collector's URL for OTLP over HTTP, such as `http://collector:4318`; without
    it there are no traces.
    """

    nats_url: str = "nats://127.0.0.1:4222"
    nats_credentials: str | None = None
    nats_ca: str | None = None
    nats_cert: str | None = None
    nats_key: str | None = None
    nats_tls_first: bool = True
    insecure_plaintext: bool = False
    stream_replicas: Replicas = AUTO
    sample_stream_replicas: Replicas = AUTO
    postgres_dsn: str | None = None
    data_dir: str = msgspec.field(default_factory=lambda: str(default_data_dir()))
    node_id: str = msgspec.field(default_factory=host_node_id)
    installation_id: str = "standalone"
    kubeconfig: str | None = None
    kube_context: str | None = None
    traces_endpoint: str | None = None

    def __post_init__(self) -> None:
        check_nats_addresses("nats_url", self.nats_url)

    def __repr__(self) -> str:
        fields = {f: "***" if f in _SECRET else getattr(self, f) for f in self.__struct_fields__}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in fields.items())})"


class SettingsError(ValueError):
    """A setting is unknown or has the wrong type; the text names the variable."""


T = TypeVar("T", bound=CommonSettings)


def variable_of(field: str, service: str) -> str:
    """The environment variable of a service's setting; common ones are the same for all."""
    owner = "" if field in _COMMON else f"{service.upper()}_"
    return f"{PREFIX}{owner}{field.upper()}"


def check_nats_addresses(field: str, value: str, service: str = "") -> None:
    """Raise SettingsError for a value that no client of NATS takes."""
    try:
        read_nats_addresses(value)
    except ValueError as error:
        raise SettingsError(f"{variable_of(field, service)}: {error}") from error


def load_settings(cls: type[T], service: str, environ: Mapping[str, str] | None = None) -> T:
    """Settings from the environment, checked.

    Raises SettingsError for a value of the wrong type and for an unknown variable under the
    service's prefix, which is a misspelt one.
    """
    source = os.environ if environ is None else environ
    prefix = f"{PREFIX}{service.upper()}_"
    names = {field: variable_of(field, service) for field in cls.__struct_fields__}
    values = {field: source[name] for field, name in names.items() if source.get(name)}
    if node_id := values.get("node_id"):
        values["node_id"] = node_token(node_id)  # a host or a Kubernetes node has dots in its name
    unknown = sorted(
        name for name in source if name.startswith(prefix) and name not in names.values()
    )
    if unknown:
        own_names = sorted(name for name in names.values() if name.startswith(prefix))
        sentences = []
        for name in unknown:
            # By what follows the prefix, which is alike in all of them.
            suggestion = nearest(
                name.removeprefix(prefix), [n.removeprefix(prefix) for n in own_names]
            )
            names_text = f"known: {', '.join(own_names) or 'none'}"
            hint = names_text if suggestion is None else f"did you mean {prefix}{suggestion}?"
            sentences.append(f"unknown setting {name}; {hint}")
        raise SettingsError("\n".join(sentences))
    check_addresses({names[field]: values[field] for field in _DSNS & values.keys()})
    try:
        settings = msgspec.convert(values, cls, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        for field, name in names.items():
            text = text.replace(f"`$.{field}`", name)
        raise SettingsError(text) from error
    addresses = {names[field]: getattr(settings, field) for field in _DSNS & names.keys()}
    sentences = list(_plaintext_beyond_host(settings, addresses))
    if sentences and not settings.insecure_plaintext:
        raise SettingsError("\n".join(sentences))
    return settings


def check_listener(host: str, cert: str, *, is_encrypted: bool, is_allowed: bool) -> None:
    """Raise SettingsError for an address beyond this machine at which no TLS would be spoken.

    `cert` names the setting that is missing there.
    """
    if is_encrypted or is_allowed or is_loopback(host):
        return
    raise SettingsError(
        f"other machines reach {host}, where nothing would be encrypted: expected a certificate in "
        f"{cert}, its key beside it; {INSECURE_VARIABLE}=true lets everybody on the way read it"
    )


def nats_security(settings: CommonSettings) -> NatsSecurity:
    """Return how a process with these settings speaks with the bus."""
    return NatsSecurity(
        ca=settings.nats_ca,
        ca_text=read_authority(settings.nats_credentials),
        certificate=settings.nats_cert,
        key=settings.nats_key,
        tls_first=settings.nats_tls_first,
    )


def _plaintext_beyond_host(
    settings: CommonSettings, dsns: Mapping[str, str | None]
) -> Iterator[str]:
    way_out = f"{INSECURE_VARIABLE}=true lets everybody on the way read it, passwords too"
    plain = [a.text for a in read_nats_addresses(settings.nats_url) if not a.is_on_loopback]
    if plain and not nats_security(settings).is_encrypted(settings.nats_url):
        yield (
            f"{variable_of('nats_url', '')}: nothing would be encrypted on the way to "
            f"{', '.join(plain)}: expected tls:// there, or the server's authority in "
            f"{variable_of('nats_ca', '')} or the credentials file; {way_out}"
        )
    for name, dsn in dsns.items():
        if dsn is not None and (servers := servers_in_plaintext(dsn, os.environ)):
            yield (
                f"{name}: nothing might be encrypted on the way to "
                f"{', '.join(map(str, servers))}: expected ?sslmode=verify-full&sslrootcert=FILE "
                f"in it, or sslmode=require, which verifies nothing; {way_out}"
            )


def check_addresses(dsns: Mapping[str, str]) -> None:
    """Raise SettingsError for a DSN, by the name of its variable or option, that is none."""
    for name, dsn in dsns.items():
        try:
            read_servers(dsn)
        except ValueError as error:
            raise SettingsError(f"{name}: {error}") from None
