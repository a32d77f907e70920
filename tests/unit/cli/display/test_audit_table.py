"""The audit log for people."""

from typing import Any

import pytest

from schemas.gateway.tokens import AuditEntry
from services.cli.display.audit_table import difference_text, object_text
from tests.support.worlds.gateway_views import NOW

CAROLS = {"holder": "exec/carol", "request": {"gpus": 2, "nodes": 2}}


def entry(before: Any, after: Any) -> AuditEntry:
    return AuditEntry(
        audit_id=1,
        at=NOW,
        token_id=None,
        caller="ops",
        address="::1",
        method="POST",
        path="/api/v1/reservations",
        before=before,
        after=after,
    )


@pytest.mark.parametrize(
    ("before", "after", "of", "change"),
    [
        (None, {**CAROLS, "state": "granted"}, "exec/carol, 4 GPUs", "made, granted"),
        (
            {**CAROLS, "state": "active", "epoch": 7},
            {**CAROLS, "state": "released", "epoch": None},
            "exec/carol, 4 GPUs",
            "state: active to released, epoch: 7 to none",
        ),
        (
            {"task_name": "sweep", "state": "completed"},
            None,
            "sweep",
            "gone, completed",
        ),
        ({"gpu_limit": 4}, {"gpu_limit": 8}, "-", "gpu_limit: 4 to 8"),
        ({"cordon": None}, {"cordon": "x" * 50}, "-", "cordon: none to " + "x" * 39 + "…"),
        (None, None, "-", "-"),
        (
            {"holder": "ann", "request": {"shares": 0.25}},
            None,
            "ann, 0.25 of a GPU",
            "gone",
        ),
    ],
)
def test_audit_entry_shows_owner_and_change(before: Any, after: Any, of: str, change: str) -> None:
    found = entry(before, after)

    assert (object_text(found), difference_text(found)) == (of, change)
