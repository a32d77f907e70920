"""`python -m services.telemetry`."""

from services.telemetry.app import create_service

if __name__ == "__main__":
    create_service().run()
