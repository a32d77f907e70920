"""What looks at /proc say of when an engine ran."""

from uuid import UUID

FIRST, SECOND = (UUID(int=1), 7, "GPU-rho-1"), (UUID(int=2), 8, "GPU-rho-1")
