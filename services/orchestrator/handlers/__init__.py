"""Commands and queries of the orchestrator's routes."""
