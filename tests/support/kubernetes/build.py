"""Builds the programs of a control plane and helm once, into a cache outside the repository.

`python -m tests.support.kubernetes.build`. The first build takes minutes and about 2 GB of Go's
caches; one that has been done takes none. Modules come from the Go module proxy and are held to
the committed go.sum files; the Go toolchain is the one of this host.
"""

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from shared.lifecycle import dying_with_parent
from tests.support.kubernetes.binaries import (
    ETCD_VERSION,
    GIVEN,
    HELM,
    HELM_VERSION,
    KUBERNETES_VERSION,
    KWOK_VERSION,
    MODULES,
    PROGRAMS,
    directory,
    helm_directory,
    missing,
    missing_helm,
)

GO_NEEDED: Final = (1, 24)
GO_OF_HELM: Final = (1, 26)
BUILD_SECONDS: Final = 2400.0
CHECK_SECONDS: Final = 60.0
# In the order in which they share what is compiled.
SOURCES: Final = {
    "etcd": ("etcd", "."),
    "kube-apiserver": ("control_plane", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-scheduler": ("control_plane", "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kube-controller-manager": ("control_plane", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kwok": ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    HELM: (HELM, "helm.sh/helm/v4/cmd/helm"),
}
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.split(".")
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"
LINKED: Final = (
    f"-s -w -X {_VERSION_PACKAGE}.gitVersion=v{KUBERNETES_VERSION}"
    f" -X {_VERSION_PACKAGE}.gitMajor={_MAJOR} -X {_VERSION_PACKAGE}.gitMinor={_MINOR}"
    f" -X helm.sh/helm/v4/internal/version.version=v{HELM_VERSION}"
)
VERSIONS: Final = {"etcd": ETCD_VERSION, "kwok": KWOK_VERSION, HELM: HELM_VERSION}


class CannotBuild(Exception):
    """The text says what to do."""


def build(*, nice: int = 0, within_seconds: float = BUILD_SECONDS) -> None:
    """Put every program into `directory()`, or nothing. Raises CannotBuild."""
    _build_into(directory(), PROGRAMS, missing, _go(GO_NEEDED), nice, within_seconds)


def build_helm(*, nice: int = 0, within_seconds: float = BUILD_SECONDS) -> None:
    """Put helm into `helm_directory()`. Raises CannotBuild."""
    _build_into(helm_directory(), [HELM], missing_helm, _go(GO_OF_HELM), nice, within_seconds)


def _build_into(
    target: Path,
    programs: Sequence[str],
    find_missing: Callable[[], str | None],
    go: str,
    nice: int,
    within_seconds: float,
) -> None:
    deadline = time.monotonic() + within_seconds
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build runs, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if find_missing() is None:
            return
        for left in target.parent.glob(f"{target.name}.*"):
            shutil.rmtree(left, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
        try:
            for name in (name for name in SOURCES if name in programs):
                _build_program(go, name, made / name, nice=nice, deadline=deadline)
                _check_version(name, made / name)
            made.chmod(0o755)
            shutil.rmtree(target, ignore_errors=True)
            made.rename(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _go(needed: tuple[int, int]) -> str:
    go = shutil.which("go")
    wanted = ".".join(map(str, needed))
    other = f"or name a directory with {', '.join(PROGRAMS)} in {GIVEN}"
    if go is None:
        raise CannotBuild(
            f"a control plane is built by Go {wanted} or newer, which is not on PATH: "
            f"install it, {other}"
        )
    told = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True)
    found = re.match(r"go(\d+)\.(\d+)", told.stdout)
    if found is None or (int(found[1]), int(found[2])) < needed:
        raise CannotBuild(
            f"expected Go {wanted} or newer, found {told.stdout.strip()} at {go}: "
            f"install a newer one, {other}"
        )
    return go


def _build_program(go: str, name: str, path: Path, *, nice: int, deadline: float) -> None:
    module, package = SOURCES[name]
    began = time.monotonic()
    _say(f"building {name} from {package if package != '.' else module}")
    command: list[str | Path] = [
        go,
        "build",
        "-mod=readonly",
        "-trimpath",
        f"-ldflags={LINKED}",
        "-o",
        path,
        package,
    ]
    environ = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    tie = dying_with_parent()

    def behave() -> None:
        os.nice(nice)
        tie()

    try:
        subprocess.run(
            command,
            cwd=MODULES / module,
            env=environ,
            stdin=subprocess.DEVNULL,
            preexec_fn=behave,
            timeout=max(0.0, deadline - began),
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise CannotBuild(
            f"{name} was not built in time; the next try goes on where this one ended"
        ) from None
    except subprocess.CalledProcessError as error:
        raise CannotBuild(
            f"`go build` of {name} failed with {error.returncode}: its lines above say why"
        ) from None
    size = path.stat().st_size / 2**20
    _say(f"built {name}: {size:.0f} MiB in {time.monotonic() - began:.0f} s")


def _check_version(name: str, path: Path) -> None:
    wanted = VERSIONS.get(name, KUBERNETES_VERSION)
    question = "version" if name == HELM else "--version"
    told = subprocess.run(
        [path, question], capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
    )
    if wanted not in told.stdout:
        raise CannotBuild(
            f"expected {name} to be version {wanted}, "
            f"it says {(told.stdout + told.stderr).strip()!r}"
        )


def _say(line: str) -> None:
    print(f"control plane: {line}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is missing; 0 once a control plane is there. Only the chart's tests need helm."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.kubernetes.build", description=__doc__
    )
    parser.add_argument("--nice", type=int, default=0, help="give way to other processes, up to 19")
    options = parser.parse_args(arguments)
    reason = missing()
    if reason is not None and os.environ.get(GIVEN):
        print(reason, file=sys.stderr)
        return 1
    try:
        if reason is not None:
            build(nice=options.nice)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    _say(f"is in {directory()}")
    try:
        if missing_helm() is not None:
            build_helm(nice=options.nice)
    except CannotBuild as error:
        print(error, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
