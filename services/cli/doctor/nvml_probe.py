"""Asks NVML what the driver and its GPUs are, and prints it as JSON. A program of its own, because
a driver that hangs cannot be interrupted.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml


def main() -> int:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _say({"error": str(error)})
    gpus = [_gpu(index) for index in range(_ask_or_none(pynvml.nvmlDeviceGetCount) or 0)]
    return _say(
        {
            "driver": _text(_ask_or_none(pynvml.nvmlSystemGetDriverVersion)),
            "cuda": _ask_or_none(pynvml.nvmlSystemGetCudaDriverVersion_v2),
            "gpus": gpus,
        }
    )


def _gpu(index: int) -> dict[str, Any]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return {"index": index, "error": str(error)}
    memory = _ask_or_none(pynvml.nvmlDeviceGetMemoryInfo, handle)
    mig = _ask_or_none(pynvml.nvmlDeviceGetMigMode, handle)
    return {
        "index": index,
        "name": _text(_ask_or_none(pynvml.nvmlDeviceGetName, handle)),
        "memory_mb": memory.total >> 20 if memory is not None else None,
        "persistence": _ask_or_none(pynvml.nvmlDeviceGetPersistenceMode, handle),
        "mig": mig[0] if mig is not None else None,
    }


def _ask_or_none(ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer; None for what this driver or this GPU does not report."""
    try:
        return ask(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _say(document: dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
