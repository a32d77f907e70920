"""`python -m services.results`."""

from services.results.app import create_service

if __name__ == "__main__":
    create_service().run()
