"""Reservations of GPUs: who may use which devices, until when, and why the others wait.

Consumes its commands and queries, GPU samples as they pass, inventories, health changes and the
executors' reports. Publishes `reservation_*` and `device_*`. Owns the ledger in Postgres: devices,
holdings, leases, epochs. Any number may run; all accept commands, the one that holds the leader row
decides.
"""
