"""Several platform services in one process, which takes less memory than one process of each.

`python -m shared.services_process NAME...`. Each has its own connections and
logins: the variables that it alone is to read come as JSON in GPUSTEWARD_SERVICE_ENVIRONMENTS.
"""

import shared.skip_optional_imports  # noqa: F401, I001  # before what imports the libraries

import importlib
import os
import sys
from collections.abc import Mapping
from functools import partial

import msgspec

from shared import tracing
from shared.lifecycle import ENVIRONMENTS_VARIABLE
from shared.service import Service, run_services


def main() -> None:
    """Run the services that the arguments name until a signal, or until one of them fails."""
    tracing.name_process("services")
    text = os.environ.pop(ENVIRONMENTS_VARIABLE)
    environments = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    run_services([partial(create, name, environments[name]) for name in sys.argv[1:]])


def create(name: str, environment: Mapping[str, str]) -> Service:
    """Create a service, with these variables in the process's environment meanwhile."""
    process_environment = dict(os.environ)
    os.environ.update(environment)
    try:
        service: Service = importlib.import_module(f"services.{name}.app").create_service()
    finally:
        os.environ.clear()
        os.environ.update(process_environment)
    return service


if __name__ == "__main__":
    main()
