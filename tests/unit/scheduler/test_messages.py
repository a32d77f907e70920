"""Answers stay below the size of a message."""

from uuid import UUID

import msgspec

from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import Explanation
from services.scheduler.domain.placement.reasons import abridge
from shared.messaging.paging import REPLY_BYTES, fitting

MAX_MESSAGE_BYTES = 1 << 20


def test_as_many_items_as_fit_are_taken() -> None:
    items = ["x" * 1_000 for _ in range(2_000)]

    found = fitting(items)

    assert 0 < len(found) < len(items)
    assert len(msgspec.msgpack.encode(found)) <= REPLY_BYTES + 8
    assert fitting(items[:3]) == items[:3]
    assert fitting(["x" * REPLY_BYTES]) == []


def test_explanation_of_large_fleet_is_small() -> None:
    reasons = tuple(
        Reason(
            code=ReasonCode.HELD if number % 7 else ReasonCode.TOO_FEW_DEVICES,
            message=f"GPU {number} on node-{number} is held by reservation {number:036}",
            node_id=f"openb-node-{number:04}",
            device_uuid=f"GPU-{number:036}",
        )
        for number in range(7_425)
    )
    shown = abridge(reasons)

    explanation = Explanation(
        reservation_id=UUID(int=1),
        state=ReservationState.QUEUED,
        queue_position=1,
        queue_length=10_000,
        reasons=shown.reasons,
        reasons_left_out=shown.left_out,
        summary="held",
    )

    assert len(msgspec.msgpack.encode(explanation)) < MAX_MESSAGE_BYTES / 4
    assert len(shown.reasons) + sum(shown.left_out.values()) == len(reasons)
