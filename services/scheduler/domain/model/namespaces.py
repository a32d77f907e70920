"""What namespaces may hold, by an administrator's word."""

from typing import Final

from msgspec import Struct


class Quota(Struct, frozen=True, kw_only=True):
    """The most that a namespace may hold at once, in hundredths of GPUs; None is no limit."""

    namespace: str
    limit: int | None = None


NO_QUOTA: Final = Quota(namespace="")
