"""`python -m services.cluster`."""

import shared.skip_optional_imports  # noqa: F401  # before what imports the libraries
from services.cluster.app import create_service
from shared.service import run_service

if __name__ == "__main__":
    run_service(create_service)
