"""`python -m services.scheduler`."""

from services.scheduler.app import create_service
from shared.service import run_service

run_service(create_service)
