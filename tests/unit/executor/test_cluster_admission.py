"""A start in a cluster has a place there and no devices; one on a host has no such place."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.cluster.kubernetes import KubernetesSpec
from schemas.executor.attempts import Runtime
from schemas.gpus.device_grant import ClusterPlacement
from services.executor.domain.admission import gpus_of, refuse_misdirected
from services.executor.journal.journal import Journal
from services.executor.runtimes.host import cluster_runtimes
from services.executor.runtimes.kubernetes.cluster import Cluster, namespaces_for
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError
from tests.support.worlds.cluster_executor import cluster_start
from tests.support.worlds.executor import NODE, make_device, make_start

PLACE = ClusterPlacement(cluster_id=NODE, gpus=3)
BOTH = (Runtime.OME, Runtime.KUBERNETES)


@pytest.mark.parametrize(
    ("start", "path"),
    [
        (cluster_start(place=PLACE), None),
        (msgspec.structs.replace(cluster_start(), cluster=None), "$.cluster"),
        (make_start(cluster=PLACE), "$.cluster"),
        (cluster_start(place=ClusterPlacement(cluster_id="x", gpus=1)), "$.cluster.cluster_id"),
        (msgspec.structs.replace(cluster_start(), devices=(make_device(),)), "$.devices"),
        (make_start(), "$.engine.runtime"),
    ],
)
def test_where_a_start_belongs(start: Any, path: str | None) -> None:
    refused = refuse_misdirected(start, NODE, BOTH)

    assert (refused.path if refused is not None else None) == path


def test_gpus_are_those_of_place_or_devices() -> None:
    assert gpus_of(cluster_start(place=PLACE)) == 3
    assert gpus_of(make_start()) == 1


@pytest.mark.parametrize(
    ("named", "ours", "want"),
    [
        ("", "team-a", ("engines",)),
        ("shared, team-a:quotas", "team-a", ("shared", "quotas")),
        ("shared,team-a:quotas", "team-b", ("shared",)),
        ("team-a:quotas", "team-b", ()),
    ],
)
def test_which_namespaces_a_task_may_name(named: str, ours: str, want: tuple[str, ...]) -> None:
    settings = ExecutorSettings(cluster_namespace="engines", cluster_namespaces=named)

    assert namespaces_for(settings, ours) == want


def settings_in(directory: Path, **overrides: Any) -> ExecutorSettings:
    engines = directory / "engines.toml"
    engines.write_text('[engines.simulated]\nimage = "simulated"\n')
    return ExecutorSettings(data_dir=str(directory), engines_file=str(engines), **overrides)


@pytest.mark.parametrize(
    ("kind", "overrides", "path"),
    [
        (Runtime.OME, {}, None),
        (Runtime.OME, {"names": KubernetesSpec(namespace="kube-system")}, "$.model.namespace"),
        (Runtime.OME, {"model": "/etc/shadow"}, "$.model.id_or_path"),
        (Runtime.OME, {"model": "{{.Name}}"}, "$.parameters"),
        (Runtime.OME, {"model": "$(LWS_WORKER_INDEX)"}, "$.parameters"),
        (Runtime.KUBERNETES, {"model": "{{.Name}}"}, None),
        (Runtime.KUBERNETES, {"image_tag": "a b"}, "$.runtime_image_tag"),
    ],
)
def test_unrunnable_cluster_start_names_its_field(
    tmp_path: Path, kind: Runtime, overrides: dict[str, Any], path: str | None
) -> None:
    settings = settings_in(tmp_path, engine_traffic="plaintext")
    journal = Journal(tmp_path / "journal.db")
    runtime = cluster_runtimes(settings, Cluster(settings), journal)[kind]
    start = cluster_start(kind, **overrides)

    if path is None:
        runtime.check(start)
        return
    with pytest.raises(RefusedError) as refused:
        runtime.check(start)
    assert refused.value.path == path
