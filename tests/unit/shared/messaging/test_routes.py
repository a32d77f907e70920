"""What a table of routes hands to FastStream."""

from schemas.scheduler.views import AllocationMap, GetAllocationMap
from shared.messaging.bus import Bus
from shared.messaging.routes import query_route


class Handlers:
    """Such as a service's, which hold its whole state."""

    def __repr__(self) -> str:
        raise AssertionError("expected no text of a service's state while it starts")

    async def allocation_map(self, query: GetAllocationMap) -> AllocationMap:
        raise NotImplementedError


async def never_called(subject: str, body: bytes, error: str) -> None:
    raise NotImplementedError


def test_handler_object_names_no_subscription() -> None:
    """Each was, once for a route and once more for its subscription: half of a service's start."""
    bus = Bus("test", "nats://127.0.0.1:1")

    bus.include([query_route(Handlers().allocation_map, GetAllocationMap)], never_called)

    assert [subscriber.calls.name for subscriber in bus.broker.subscribers] == ["Handle"]
