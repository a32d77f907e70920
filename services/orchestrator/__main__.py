"""`python -m services.orchestrator`."""

from services.orchestrator.app import create_service

if __name__ == "__main__":
    create_service().run()
