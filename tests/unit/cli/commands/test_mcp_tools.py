"""Agents' tools: which role each asks for, that changes are tried dry first, and budgets."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from schemas.gateway.tokens import Role
from schemas.gpus.gpu_request import GpuRequest
from schemas.task.task_file import OptimizationSpec
from services.cli.mcp_server.budget import (
    Budget,
    gpu_seconds_until,
    longest_gpu_seconds,
)
from services.cli.mcp_server.changing_tools import Reserve, make_request
from services.cli.mcp_server.tools import TOOLS
from shared.errors import RefusedError
from shared.gpu.held_gpus import gpus_of
from tests.support.tables import for_each
from tests.support.worlds.gateway_views import NOW, make_reservation

READING = {
    "list_gpus",
    "list_nodes",
    "show_allocation_map",
    "list_namespaces",
    "check_availability",
    "explain_wait",
    "what_if",
    "list_reservations",
    "show_reservation",
    "list_tasks",
    "show_task",
    "compare_experiments",
    "show_experiment",
    "read_engine_log",
    "validate_task",
    "estimate_requirements",
    "check_compatibility",
    "list_drifts",
    "report_usage",
    "report_waste",
    "report_waits",
    "report_failures",
    "show_waterfall",
}
CHANGING = {
    "reserve_gpus",
    "renew_reservation",
    "release_reservation",
    "submit_task",
    "cancel_task",
}
A, B = UUID(int=1), UUID(int=2)


def test_every_tool_has_a_rule_here() -> None:
    """A new tool is decided upon here too, or this fails."""
    rules = {name: tool.role for name, tool in TOOLS.items()}

    assert rules == {
        **dict.fromkeys(READING, Role.VIEWER),
        **dict.fromkeys((*CHANGING, "show_budget"), Role.SUBMITTER),
    }
    assert {name for name, tool in TOOLS.items() if tool.is_change} == CHANGING


@for_each("name", sorted(TOOLS))
@pytest.mark.parametrize("role", list(Role))
def test_viewer_or_budgetless_agent_changes_nothing(name: str, role: Role) -> None:
    # Takes a second to import, in every process that collects tests.
    from services.cli.mcp_server.server import may_call

    tool = TOOLS[name]

    assert may_call(tool, role, None) == (name in READING)
    assert may_call(tool, role, Budget(1.0)) == (name in READING or role is not Role.VIEWER)


@for_each("name", sorted(TOOLS))
def test_tool_schemas_are_described_objects(name: str) -> None:
    tool = TOOLS[name]
    taken: dict[str, Any] = tool.input_schema()

    assert taken["type"] == tool.output_schema()["type"] == "object"
    assert taken["additionalProperties"] is False
    assert tool.description.strip()
    assert taken["properties"].get("dry_run", {}).get("default") is (
        True if tool.is_change else None
    )


def test_budget_is_never_exceeded() -> None:
    budget = Budget(gpu_hours=2.0)

    budget.commit(A, 3600.0)
    budget.commit(A, 5400.0)  # renewed: in place of what it was
    with pytest.raises(RefusedError, match=r"at most 0\.5 GPU-hours.* may use 1"):
        budget.commit(B, 3600.0)
    budget.reduce(A, 1800.0)
    budget.reduce(A, 9000.0)
    budget.commit(B, 3600.0)

    view = budget.view()
    assert (view.committed, view.left) == (1.5, 0.5)


def test_a_reservation_counts_from_its_grant() -> None:
    view = make_reservation(request=GpuRequest(gpus=4, nodes=2), granted_at=NOW)

    assert gpu_seconds_until(view, NOW + timedelta(seconds=10)) == 80.0
    assert gpu_seconds_until(make_reservation(), NOW) == 0.0
    assert gpus_of(GpuRequest(shares=0.25)) == 0.25


def test_task_counts_all_its_attempts() -> None:
    optimization = OptimizationSpec(timeout_per_iteration=60.0, max_attempts=3)

    assert longest_gpu_seconds((GpuRequest(gpus=2), GpuRequest()), optimization) == 540.0


@for_each("arguments", ["{}", '{"request": {"gpus": 2}}'])
def test_agent_lease_defaults_to_ten_minutes(arguments: str) -> None:
    assert make_request(msgspec.json.decode(arguments, type=Reserve)).lease_ttl_seconds == 600.0


def test_agent_request_keeps_its_own_lease() -> None:
    own = msgspec.json.decode('{"request": {"lease_ttl_seconds": 45}}', type=Reserve)
    said = msgspec.json.decode(
        '{"request": {"lease_ttl_seconds": 45}, "lease_seconds": 90}', type=Reserve
    )

    assert make_request(own).lease_ttl_seconds == 45.0
    assert make_request(said).lease_ttl_seconds == 90.0


def test_each_token_has_a_budget_of_its_own() -> None:
    from services.cli.mcp_server.server import Budgets

    budgets = Budgets(1.0)

    assert budgets.of("one") is budgets.of("one")
    assert budgets.of("one") is not budgets.of("other")
    assert Budgets(None).of("one") is None
