"""Choices about a platform to be started: its port, its fleet, its addresses."""

import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import schemas
from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed
from shared.paths import DataDirectory
from shared.settings import SettingsError

if TYPE_CHECKING:
    from shared.local_platform.platform import ClusterOptions

KUBECONFIG_VARIABLE: Final = "GPUSTEWARD_KUBECONFIG"
CONTEXT_VARIABLE: Final = "GPUSTEWARD_KUBE_CONTEXT"
EXAMPLES: Final = Path(schemas.__file__).parent / "examples"
_DEVICES: Final = Path("/dev")


def default_fleet() -> Path:
    """The fleet that is made up where there is none."""
    return EXAMPLES / "fleet.toml"


def has_gpu_devices(devices: Path = _DEVICES) -> bool:
    """Return whether the kernel offers a GPU here, also one whose driver fails."""
    if (devices / "dxg").exists():
        return True
    return any(re.fullmatch(r"nvidia\d+", path.name) for path in devices.glob("nvidia[0-9]*"))


def host_and_port(text: str) -> tuple[str, int]:
    """`10.0.0.1:4222` or `[::1]:4222`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"expected HOST:PORT, found {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def claim_port(preferred: int, host: str = "127.0.0.1") -> tuple[int, socket.socket | None]:
    """The preferred port if it is free and no starting platform has claimed it, else another one.

    The gateway listens seconds later, so the claim, a socket in Linux's abstract namespace, has to
    be kept open as long as the platform runs.
    """
    for port in (preferred, 0, 0, 0):
        if (free_port := _free_port(port, host)) is None:
            continue
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0gpusteward-port-{free_port}")
        except FileNotFoundError:
            claim.close()
            return free_port, None  # no abstract namespace here
        except OSError:
            claim.close()
            continue
        return free_port, claim
    return preferred, None


def check_port(port: int, host: str) -> None:
    """Raises CommandFailed for one that is taken: the gateway would find out when all else runs."""
    if _free_port(port, host) is None:
        raise CommandFailed(
            ErrorCode.CONFLICT,
            f"port {port} of {host} is taken or not yours; `gpusteward doctor` shows whether a"
            " platform runs already, --port chooses another",
        )


def check_pair(certificate: Path | None, key: Path | None) -> None:
    """Raises CommandFailed for a certificate that cannot be shown, or not with this key."""
    from shared.tls.contexts import CertificateUnusable, make_server_context

    if certificate is None and key is not None:
        raise CommandFailed(ErrorCode.BAD_REQUEST, "--tls-key needs --tls-cert beside it")
    try:
        if certificate is not None:
            make_server_context(certificate, key)
    except CertificateUnusable as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"--tls-cert: {error}") from error


def _free_port(port: int, host: str) -> int | None:
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(address[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address[4])
            return int(probe.getsockname()[1])
    except OSError:
        return None


def tokens_file(
    host: str,
    data_dir: Path,
    environ: Mapping[str, str],
    *,
    on_loopback: bool = False,
    anywhere: bool = False,
) -> Path | None:
    """The file of tokens of an API at `host`; None if it needs none.

    `on_loopback`: it asks for one there too, and this user's own is made if need be; with
    `anywhere` at every address. Raises
    CommandFailed where no API could be at this address, or not without tokens, or where one would
    have to be made and another platform runs on the data directory.
    """
    from shared.host_header import is_loopback
    from shared.lifecycle import DataDirectoryBusy, DataDirectoryLock
    from shared.local_platform.tokens import (
        OIDC_ISSUER_VARIABLE,
        TOKENS_FILE_VARIABLE,
        ensure_admin_token,
        read_tokens,
        tokens_path,
    )

    if _free_port(0, host) is None:
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"{host} is no address of this machine")
    directory = DataDirectory(data_dir.resolve())
    path = tokens_path(directory, environ)
    makes_one = (is_loopback(host) or anywhere) and not environ.get(TOKENS_FILE_VARIABLE)
    # A gateway beside an OpenID provider asks everybody, also who runs it.
    has_provider = bool(environ.get(OIDC_ISSUER_VARIABLE))
    if makes_one and not (on_loopback or anywhere or has_provider):
        return None
    if not makes_one and not path.exists():
        where = "" if environ.get(TOKENS_FILE_VARIABLE) else f" --data-dir {data_dir}"
        raise CommandFailed(
            ErrorCode.BAD_REQUEST,
            f"other machines reach {host}, so that the API needs tokens: make one with"
            f" `gpusteward token create{where}`",
        )
    try:
        if makes_one:
            directory.prepare()
            # A running platform does not know what is made now, and all clients would show it.
            with DataDirectoryLock(directory):
                ensure_admin_token(directory, path)
        read_tokens(path)
    except DataDirectoryBusy as error:
        raise CommandFailed(ErrorCode.CONFLICT, str(error)) from error
    except SettingsError as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    except OSError as error:
        message = f"no token of yours can be stored in {directory.root}: {error.strerror}"
        raise CommandFailed(ErrorCode.UNAVAILABLE, message) from error
    return path


def cause_of(log_path: Path | None) -> str:
    """The last thing that a log says, an exception by its last line."""
    from shared.processes.child_process import last_lines

    lines = last_lines(log_path).splitlines() if log_path is not None else []
    if not lines:
        return ""
    try:
        entry = json.loads(lines[-1])
        logged = str(entry.get("exception") or entry.get("event") or "").splitlines()
    except (ValueError, AttributeError):
        logged = lines
    return logged[-1] if logged else ""


def cluster_of(
    wanted_context: str | None, cluster_id: str | None, environ: Mapping[str, str]
) -> "ClusterOptions | None":
    """The Kubernetes cluster of a context, of the current one if it is empty; None without one.

    A kubeconfig named by GPUSTEWARD_KUBECONFIG means one as well. Raises CommandFailed.
    """
    kubeconfig = environ.get(KUBECONFIG_VARIABLE) or None
    if wanted_context is None and kubeconfig is None:
        return None
    from shared.ids import node_token
    from shared.kubernetes.access import ClusterAccess, NoCluster
    from shared.local_platform.platform import ClusterOptions

    context = wanted_context or environ.get(CONTEXT_VARIABLE) or None
    try:
        name = ClusterAccess(kubeconfig=kubeconfig, context=context).context_name()
    except NoCluster as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    return ClusterOptions(
        cluster_id=cluster_id or node_token(name or "cluster"),
        kubeconfig=kubeconfig,
        context=context,
    )
