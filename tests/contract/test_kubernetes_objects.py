"""An object of Kubernetes is typed once, in `shared/kubernetes/objects`."""

import ast
from collections import Counter
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

OBJECTS: Final = ROOT / "shared/kubernetes/objects"
# Where bodies of the API are decoded, and nothing else has the names of its objects.
READERS: Final = (
    "services/cluster",
    "services/executor/runtimes/kubernetes",
    "services/telemetry/kubernetes",
    "services/cli/commands/gpus/check_cluster.py",
    "services/cli/doctor/cluster_report.py",
    "shared/kubernetes",
)


def class_names(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef)]


def test_an_object_is_typed_once() -> None:
    paths = {path for reader in READERS for path in [ROOT / reader, *(ROOT / reader).rglob("*.py")]}
    names = Counter(
        name for path in sorted(paths) if path.suffix == ".py" for name in class_names(path)
    )
    typed = {name for path in OBJECTS.rglob("*.py") for name in class_names(path)}

    assert typed
    assert {name: names[name] for name in typed if names[name] != 1} == {}
