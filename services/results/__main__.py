"""`python -m services.results`."""

from services.results.app import create_service
from shared.service import run_service

if __name__ == "__main__":
    run_service(create_service)
