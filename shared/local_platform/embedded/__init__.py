"""A nats-server and a Postgres of our own, run from packages as child processes."""

from shared.local_platform.embedded.nats_server import EmbeddedNats
from shared.local_platform.embedded.postgres_server import EmbeddedPostgres

__all__ = ["EmbeddedNats", "EmbeddedPostgres"]
