"""`python -m services.scheduler`."""

from services.scheduler.app import create_service

create_service().run()
