"""A nats-server and a Postgres of our own, run from packages as child processes."""

from shared.embedded.nats_server import EmbeddedNats
from shared.embedded.postgres_server import EmbeddedPostgres

__all__ = ["EmbeddedNats", "EmbeddedPostgres"]
