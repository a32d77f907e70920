"""Directories for what engines in pods compile: whose they are, and which are used again."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from services.executor.domain.pod_cache import CacheNode, CacheUse, CacheVolume, PodCache
from services.executor.journal import pod_caches
from services.executor.journal.journal import Journal
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.kubernetes.compile_cache import PodCaches
from services.executor.settings import ExecutorSettings
from shared.settings import SettingsError, load_settings

HOST_PATH = CacheVolume("hostPath", "/var/lib/compiled")
CLAIM = CacheVolume("persistentVolumeClaim", "compiled")
TELLS = {
    "nvidia.com/gpu.product": "H100",
    "nvidia.com/cuda.driver-version.full": "570.1",
    "kubernetes.io/hostname": "n1",
}
NODE = CacheNode(name="n1", labels=TELLS, boot_id="boot-1")
USE = CacheUse(
    volume=HOST_PATH,
    node=NODE,
    namespace="team-a",
    pod_namespace="engines",
    engine="vllm",
    reference="vllm:v1",
    resource="nvidia.com/gpu",
)


def on(volume: CacheVolume = HOST_PATH, **node: Any) -> CacheUse:
    return replace(USE, volume=volume, node=replace(NODE, **node))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(USE, namespace="team-b"), id="our namespace"),
        pytest.param(replace(USE, pod_namespace="others"), id="the cluster's namespace"),
        pytest.param(replace(USE, engine="sglang"), id="engine"),
        pytest.param(replace(USE, reference="vllm:v2"), id="image"),
        pytest.param(replace(USE, resource="nvidia.com/mig-1g.10gb"), id="part of a GPU"),
        pytest.param(replace(USE, volume=CLAIM), id="volume"),
        pytest.param(on(name="n2"), id="node"),
        pytest.param(on(labels=TELLS | {"nvidia.com/gpu.product": "A100"}), id="GPU model"),
        pytest.param(
            on(labels=TELLS | {"nvidia.com/cuda.driver-version.full": "571.0"}), id="driver"
        ),
    ],
)
def test_nothing_is_shared_where_the_key_differs(other: CacheUse) -> None:
    assert other.key != USE.key
    assert other.new_directory("a1") != USE.new_directory("a1")


def test_namespace_directories_never_nest() -> None:
    assert USE.new_directory("a1") == f"team-a/engines/{USE.key}/a1"


def test_claim_serves_nodes_of_same_gpu_and_driver() -> None:
    assert on(CLAIM).key == on(CLAIM, name="n2", boot_id="boot-2").key
    assert on(boot_id="boot-2").key == USE.key


@pytest.mark.parametrize("volume", [HOST_PATH, CLAIM])
@pytest.mark.parametrize(
    "missing", ["nvidia.com/gpu.product", "nvidia.com/cuda.driver-version.full"]
)
def test_unlabelled_node_has_own_cache_per_boot(volume: CacheVolume, missing: str) -> None:
    labels = {name: value for name, value in TELLS.items() if name != missing}
    key = on(volume, labels=labels).key

    assert on(volume, labels=labels).key == key
    assert on(volume, labels=labels, name="n2").key != key
    assert on(volume, labels=labels, boot_id="boot-2").key != key


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = await Journal(tmp_path / "journal.db").open()
    yield opened
    opened.close_nowait()


def left(directory: str = "d", *, key: str = "k", image: str = "i@1", at: float = 10.0) -> PodCache:
    return PodCache(volume=HOST_PATH, key=key, directory=directory, begun_at=at, image_digest=image)


async def leave(journal: Journal, *caches: PodCache) -> None:
    for at, cache in enumerate(caches):
        await journal.transact(lambda c, cache=cache, at=at: pod_caches.leave(c, cache, at))  # type: ignore[misc]  # bound at once


async def take(journal: Journal, key: str = "k", *, begun_after: float = 0.0) -> PodCache | None:
    return await journal.transact(
        lambda c: pod_caches.take(c, HOST_PATH, key, begun_after=begun_after)
    )


async def test_newest_cache_is_taken_by_one_engine(journal: Journal) -> None:
    await leave(journal, left("d1"), left("d2"), left("of-another", key="other"))

    assert [await take(journal) for _ in range(3)] == [left("d2"), left("d1"), None]


async def test_unreturned_cache_is_never_reused(tmp_path: Path) -> None:
    """As by an engine that did not become ready, or an executor that died."""
    first = await Journal(tmp_path / "journal.db").open()
    await leave(first, left())
    assert await take(first) == left()
    first.close_nowait()

    second = await Journal(tmp_path / "journal.db").open()
    assert await take(second) is None
    second.close_nowait()


async def test_expired_cache_is_not_reused(journal: Journal) -> None:
    await leave(journal, left("old", at=10.0), left("new", at=20.0))

    assert [await take(journal, begun_after=10.0) for _ in range(2)] == [left("new", at=20.0), None]


async def test_caches_of_moved_tag_are_forgotten(journal: Journal) -> None:
    await leave(journal, left("d1", image="i@1"), left("d2", image="i@2"), left("d3", key="other"))

    await journal.transact(lambda c: pod_caches.forget_others(c, "k", "i@2"))

    assert [await take(journal) for _ in range(2)] == [left("d2", image="i@2"), None]
    assert await take(journal, "other") is not None


@pytest.mark.parametrize(
    ("before", "found", "leaves"),
    [("", "i@1", "i@1"), ("i@1", "i@1", "i@1"), ("i@1", "i@2", None), ("i@1", "", None)],
)
def test_a_directory_is_of_one_image(before: str, found: str, leaves: str | None) -> None:
    after = left(image=before).keep_for(found)

    assert (after.image_digest if after is not None else None) == leaves


@pytest.mark.parametrize(
    "refused", ["/var/lib/compiled", "hostPath:relative", "persistentVolumeClaim:", "emptyDir:x"]
)
def test_invalid_volume_is_refused_by_variable(refused: str) -> None:
    with pytest.raises(SettingsError, match="GPUSTEWARD_EXECUTOR_CLUSTER_COMPILE_CACHE"):
        load_settings(
            ExecutorSettings, "executor", {"GPUSTEWARD_EXECUTOR_CLUSTER_COMPILE_CACHE": refused}
        )


@pytest.mark.parametrize(
    ("setting", "volume"),
    [
        ("", None),
        ("hostPath:/var/lib/compiled", HOST_PATH),
        ("persistentVolumeClaim:compiled", CLAIM),
    ],
)
def test_a_volume_is_named_by_its_kind(setting: str, volume: CacheVolume | None) -> None:
    settings = load_settings(
        ExecutorSettings, "executor", {"GPUSTEWARD_EXECUTOR_CLUSTER_COMPILE_CACHE": setting}
    )

    assert CacheVolume.of(settings.cluster_compile_cache) == volume


async def test_moved_tag_leaves_no_cache_of_either_image(journal: Journal, tmp_path: Path) -> None:
    settings = ExecutorSettings(data_dir=str(tmp_path))
    caches = PodCaches(settings, Cluster(settings), journal)
    await leave(journal, left("taken"), left("beside"))
    taken = await take(journal)
    assert taken is not None

    await caches.release(taken, "i@2", is_good=True)
    assert await take(journal) is None

    await caches.release(left("new", image=""), "i@2", is_good=True)
    assert await take(journal) == left("new", image="i@2")


@pytest.mark.parametrize(("image", "is_good"), [("i@1", False), ("", True)])
async def test_unready_or_unknown_engine_leaves_no_cache(
    journal: Journal, tmp_path: Path, image: str, is_good: bool
) -> None:
    settings = ExecutorSettings(data_dir=str(tmp_path))
    caches = PodCaches(settings, Cluster(settings), journal)

    await caches.release(left(image=""), image, is_good=is_good)

    assert await take(journal) is None
