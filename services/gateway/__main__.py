"""`python -m services.gateway`."""

from services.gateway.app import create_service
from shared.service import run_service

if __name__ == "__main__":
    run_service(create_service)
