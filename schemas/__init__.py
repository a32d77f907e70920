"""Messages and public data types of GPU Steward: plain msgspec Structs, no behaviour, no I/O.

One module per owner (`telemetry`, `scheduler`, `orchestrator`, `executor`, `results`, `gateway`),
what they share in `base`, `errors`, `benchmark` and `task`. `catalog` lists every message; `export`
writes JSON Schema, AsyncAPI and TypeScript from it.
"""
