"""The programs of a control plane, and helm: which versions, and where they lie once built.

`python -m tests.support.kubernetes.build` builds them. `KUBEBUILDER_ASSETS` names a directory that
has those of a control plane already.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

KUBERNETES_VERSION: Final = "1.34.4"
ETCD_VERSION: Final = "3.6.7"
KWOK_VERSION: Final = "0.7.0"
HELM_VERSION: Final = "4.3.1"
MODULES: Final = Path(__file__).parent / "go"
PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)
PLANE_MODULES: Final = ("control_plane", "etcd", "kwok")
HELM: Final = "helm"
BUILD_COMMAND: Final = "python -m tests.support.kubernetes.build"
GIVEN: Final = "KUBEBUILDER_ASSETS"


def directory() -> Path:
    """Where the programs are looked for."""
    if given := os.environ.get(GIVEN):
        return Path(given)
    versions = f"{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}-kwok-{KWOK_VERSION}"
    return _cache() / f"{versions}-{_pinned(*PLANE_MODULES)}"


def helm_directory() -> Path:
    """Where helm is looked for."""
    return _cache() / f"{HELM}-{HELM_VERSION}-{_pinned(HELM)}"


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


def missing_helm() -> str | None:
    """Why the chart cannot be rendered here; None if it can."""
    if os.access(helm_directory() / HELM, os.X_OK):
        return None
    return f"no {HELM} in {helm_directory()}: build it once by `{BUILD_COMMAND}` (Go)"


def _cache() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gpusteward-test-kubernetes"


def _pinned(*modules: str) -> str:
    """Changes with every module that a program is made of."""
    read = hashlib.sha256()
    for path in sorted(path for name in modules for path in (MODULES / name).rglob("*")):
        if path.is_file():
            read.update(f"{path.relative_to(MODULES)}\0".encode() + path.read_bytes())
    return read.hexdigest()[:12]
