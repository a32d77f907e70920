"""Run by AIConfigurator's own Python: answers the questions of its argument as JSON.

It imports nothing of the platform. Questions are the keyword arguments of `cli_estimate`. Once a
system and backend are known, their version is named: finding it takes seconds each time.
"""

import json
import os
import resource
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

MAX_MEMORY_BYTES = 8 << 30  # it takes some hundreds of MB
MAX_PROCESSOR_SECONDS = 600

_ENDING = "_config.json"


def list_models() -> set[str]:
    """Return the models whose form comes with the tool; it would ask a hub for any other."""
    folder = files("aiconfigurator_core") / "model_configs"
    names = (path.name for path in folder.iterdir())
    return {
        name.removesuffix(_ENDING).replace("--", "/") for name in names if name.endswith(_ENDING)
    }


def main() -> None:
    """Answer, with everything else that is printed on stderr."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_PROCESSOR_SECONDS, MAX_PROCESSOR_SECONDS))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from aiconfigurator.cli.api import cli_estimate  # type: ignore[import-not-found]

    models = list_models()
    versions: dict[tuple[str, str], str] = {}
    results: list[dict[str, Any]] = []
    for question in json.loads(sys.argv[1]):
        model = question["model_path"]
        if model not in models and not Path(model).is_dir():
            results.append({"problem": f"it does not know the model {model}"})
            continue
        key = (question["system_name"], question["backend_name"])
        try:
            result = cli_estimate(**question, backend_version=versions.get(key))
        except Exception as error:  # noqa: BLE001  # whatever the tool raises is its answer
            results.append({"problem": " ".join(f"{error}".split())[:300] or repr(error)})
            continue
        versions[key] = result.backend_version
        results.append(
            {
                "ttft_ms": float(result.ttft),
                "tpot_ms": float(result.tpot),
                "backend_version": result.backend_version,
            }
        )
    json.dump(results, answers)
    answers.flush()


if __name__ == "__main__":
    main()
