"""`python -m services.executor`: the executor of this node."""

from services.executor.app import create_service

if __name__ == "__main__":
    create_service().run()
