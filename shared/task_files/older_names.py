"""Names of the autotuner's release 0.2.1 in task files, as they are written today."""

from typing import Any, Final

LOCAL: Final = "local"  # where engines run without a container
_DATASET_NAMES: Final = {"dataset_url": "url", "dataset_deduplicate": "deduplicate"}


def with_todays_names(document: dict[str, Any]) -> dict[str, Any]:
    """Return the task file with today's names; a benchmark that has today's too stays as it is, for
    its own error.
    """
    renamed = dict(document)
    if renamed.get("deployment_mode") == LOCAL:
        renamed["deployment_mode"] = "process"
    benchmark = renamed.get("benchmark")
    if not isinstance(benchmark, dict) or "dataset" in benchmark:
        return renamed
    settings = {name: value for name, value in benchmark.items() if name not in _DATASET_NAMES}
    if benchmark.get("dataset_url") is not None:
        settings["dataset"] = {
            today: benchmark[name] for name, today in _DATASET_NAMES.items() if name in benchmark
        }
    return renamed | {"benchmark": settings}
