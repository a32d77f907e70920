"""`python -m services.orchestrator`."""

from services.orchestrator.app import create_service
from shared.service import run_service

if __name__ == "__main__":
    run_service(create_service)
