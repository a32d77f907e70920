"""The whole platform on one machine: its processes, its NATS and its Postgres."""
