"""Directories of volumes of a cluster that hold what engines compiled and that no engine has.

One that is taken is forgotten until a good engine has left it: an executor that dies meanwhile
never hands it out again.
"""

import sqlite3

from services.executor.domain.pod_cache import CacheVolume, PodCache


def take(
    connection: sqlite3.Connection, volume: CacheVolume, key: str, *, begun_after: float
) -> PodCache | None:
    """The one that was left last; those begun before that are forgotten."""
    connection.execute("DELETE FROM pod_cache WHERE begun_at <= ?", (begun_after,))
    row = connection.execute(
        "DELETE FROM pod_cache WHERE directory = "
        "(SELECT directory FROM pod_cache WHERE key = ? ORDER BY left_at DESC LIMIT 1) "
        "RETURNING key, directory, begun_at, image_digest",
        (key,),
    ).fetchone()
    return PodCache(volume=volume, **row) if row is not None else None


def leave(connection: sqlite3.Connection, cache: PodCache, now: float) -> None:
    """Keep the cache for the next engine."""
    connection.execute(
        "INSERT INTO pod_cache (directory, key, begun_at, image_digest, left_at) "
        "VALUES (?, ?, ?, ?, ?)",
        (cache.directory, cache.key, cache.begun_at, cache.image_digest, now),
    )


def forget_others(connection: sqlite3.Connection, key: str, image_digest: str) -> None:
    """Delete caches of images to which this reference pointed before."""
    connection.execute(
        "DELETE FROM pod_cache WHERE key = ? AND image_digest <> ?", (key, image_digest)
    )
