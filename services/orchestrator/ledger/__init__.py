"""The orchestrator's rows, inside a caller's transaction."""
