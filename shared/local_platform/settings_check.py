"""Settings and fleet file of the services to be started, checked before any server is.

Each service reads its own at its start; here all of them are read at once, in a process that ends.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Final

from shared.paths import python_path
from shared.settings import CommonSettings, SettingsError, load_settings

CHECK_SECONDS: Final = 30.0


def settings_errors(
    environ: Mapping[str, str], environ_by_service: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return what is wrong, a sentence each, in what these services will read.

    `environ_by_service` has for each service the variables that it gets beside those of `environ`.
    """
    environments = {
        name: {**environ, **variables} for name, variables in environ_by_service.items()
    }
    answer = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(environments),
        env={**environ, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        check=False,
        timeout=CHECK_SECONDS,
    )
    if answer.returncode != 0:
        return []  # the services will say it themselves, if they cannot start
    return list(json.loads(answer.stdout))


def _errors_of(service: str, environ: Mapping[str, str]) -> list[str]:
    module = import_module(f"services.{service}.settings")
    (kind,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, CommonSettings)
        and value.__module__ == module.__name__
    )
    try:
        settings = load_settings(kind, service, environ)
        if getattr(settings, "fleet", None) is not None:
            import_module("services.telemetry.sources.selection").read_simulation(settings)
    except SettingsError as error:
        return [str(error)]
    return []


def main() -> None:
    """Read the services from standard input, and write what is wrong to standard output."""
    environments: dict[str, dict[str, str]] = json.load(sys.stdin)
    errors = [e for service, environ in environments.items() for e in _errors_of(service, environ)]
    json.dump(list(dict.fromkeys(errors)), sys.stdout)


if __name__ == "__main__":
    main()
