"""`python -m services.gateway`."""

from services.gateway.app import create_service

if __name__ == "__main__":
    create_service().run()
