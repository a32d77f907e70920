"""The programs of a control plane: which versions, and where they lie once they are built.

`python -m tests.support.kubernetes.build` builds them. `KUBEBUILDER_ASSETS` names a directory that
has them all already.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

KUBERNETES_VERSION: Final = "1.34.4"
ETCD_VERSION: Final = "3.6.7"
KWOK_VERSION: Final = "0.7.0"
MODULES: Final = Path(__file__).parent / "go"
PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)
BUILD_COMMAND: Final = "python -m tests.support.kubernetes.build"
GIVEN: Final = "KUBEBUILDER_ASSETS"


def directory() -> Path:
    """Where the programs are looked for."""
    if given := os.environ.get(GIVEN):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    versions = f"{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}-kwok-{KWOK_VERSION}"
    return Path(cache) / "gpusteward-test-kubernetes" / f"{versions}-{_pinned()}"


def program(name: str) -> Path:
    return directory() / name


def missing() -> str | None:
    """Why no control plane can be started here; None if one can."""
    absent = [name for name in PROGRAMS if not os.access(program(name), os.X_OK)]
    if not absent:
        return None
    if os.environ.get(GIVEN):
        return f"{GIVEN} leads to {directory()}, which lacks {', '.join(absent)}"
    return f"no {', '.join(absent)} in {directory()}: build them once by `{BUILD_COMMAND}` (Go)"


def _pinned() -> str:
    """Changes with every module that a program is made of."""
    read = hashlib.sha256()
    for path in sorted(MODULES.rglob("*")):
        if path.is_file():
            read.update(f"{path.relative_to(MODULES)}\0".encode() + path.read_bytes())
    return read.hexdigest()[:12]
