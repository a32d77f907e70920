"""Who may use which route, WebSocket and subject: docs/reference/roles.md is made of this, and
tests hold the gateway and the bus to it.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from schemas.base import Event, Live, Sample, tag_of
from schemas.catalog import MESSAGES
from schemas.gateway.endpoints import ENDPOINTS
from schemas.gateway.tokens import Role
from shared.messaging.permissions import owner_of, rule_of
from shared.messaging.user_names import SERVICES
from shared.messaging.user_names import Role as BusRole


class Reach(StrEnum):
    """Of what a route tells or changes something, beside the role that it needs."""

    OPEN = "nobody in particular: no token is asked for"
    FLEET = "the fleet, or what the caller says itself"
    LISTED = "one namespace of the caller's, by its name"
    NAMED = "what it names, of a namespace of the caller's"
    OWN = "something new, or a node, for a namespace of the caller's"
    OWNED = "a namespace that the caller owns"
    MINE = "the caller's own, and what is of namespaces that it owns"
    ALL = "everything"


OPEN, FLEET, LISTED, NAMED, OWN, OWNED, MINE, ALL = Reach
REACH: Final = {
    "POST /login": OPEN,
    "POST /join": OPEN,
    "GET /sign-in": OPEN,
    "POST /sign-in/device": OPEN,
    "POST /sign-in/device/answer": OPEN,
    "GET /me": FLEET,
    "POST /login/links": FLEET,
    "POST /logout": FLEET,
    "POST /sign-out": FLEET,
    "POST /checks": FLEET,
    "POST /estimate": FLEET,
    "GET /availability": FLEET,
    "GET /engines": FLEET,
    "POST /availability": FLEET,
    "POST /tasks/validate": FLEET,
    "GET /select-node": FLEET,
    "POST /select-node": FLEET,
    "GET /gpus": FLEET,
    "GET /nodes": FLEET,
    "GET /nodes/{node_id}": FLEET,
    "GET /nodes/{node_id}/agent": FLEET,
    "GET /nodes/{node_id}/events": FLEET,
    "GET /nodes/{node_id}/available-gpus": FLEET,
    "GET /nodes/{node_id}/gpu-alloc-map": FLEET,
    "GET /nodes/{node_id}/gpus/{index}": FLEET,
    "GET /cluster/gpus": FLEET,
    "GET /cluster/nodes": FLEET,
    "GET /cluster/devices": FLEET,
    "GET /drifts": FLEET,
    "GET /series": FLEET,
    "GET /pods": LISTED,
    "GET /namespaces": FLEET,
    "GET /reports/usage": FLEET,
    "GET /events": FLEET,
    "GET /imports": FLEET,
    "GET /tasks": LISTED,
    "GET /experiments": LISTED,
    "GET /leaders": LISTED,
    "GET /comparison": NAMED,
    "GET /reservations": LISTED,
    "GET /presets": LISTED,
    "GET /presets/{preset_name}": LISTED,
    "POST /presets": LISTED,
    "POST /presets/{preset_name}": LISTED,
    "POST /merged-presets": LISTED,
    "DELETE /presets/{preset_name}": LISTED,
    "POST /datasets": LISTED,
    "GET /datasets": LISTED,
    "GET /datasets/{dataset_name}": LISTED,
    "DELETE /datasets/{dataset_name}": LISTED,
    "GET /secrets": LISTED,
    "POST /secrets/{secret_name}": LISTED,
    "DELETE /secrets/{secret_name}": LISTED,
    "GET /reports/gpu-time": LISTED,
    "GET /reports/waste": LISTED,
    "GET /reports/waits": LISTED,
    "GET /reports/failures": LISTED,
    "GET /reports/idle": LISTED,
    "GET /tasks/{task_id}": NAMED,
    "GET /tasks/{task_id}/experiments": NAMED,
    "GET /tasks/{task_id}/summaries": NAMED,
    "GET /tasks/{task_id}/export": NAMED,
    "POST /tasks/{task_id}/cancel": NAMED,
    "POST /tasks/{task_id}/pause": NAMED,
    "POST /tasks/{task_id}/resume": NAMED,
    "DELETE /tasks/{task_id}": NAMED,
    "GET /experiments/{experiment_id}": NAMED,
    "GET /experiments/{experiment_id}/commands": NAMED,
    "GET /experiments/{experiment_id}/logs": NAMED,
    "GET /experiments/{experiment_id}/export": NAMED,
    "GET /experiments/{experiment_id}/requests": NAMED,
    "GET /experiments/{experiment_id}/engine": NAMED,
    "DELETE /experiments/{experiment_id}": NAMED,
    "GET /reservations/{reservation_id}": NAMED,
    "GET /reservations/{reservation_id}/explain": NAMED,
    "POST /reservations/{reservation_id}/what-if": NAMED,
    "POST /reservations/{reservation_id}/renew": NAMED,
    "DELETE /reservations/{reservation_id}": NAMED,
    "POST /reservations/{reservation_id}/idle-exemption": NAMED,
    "GET /reports/waterfall/{subject_id}": NAMED,
    "GET /reports/tasks/{task_id}": NAMED,
    "GET /reports/tasks/{task_id}/markdown": NAMED,
    "POST /tasks": OWN,
    "POST /reservations": OWN,
    "POST /events": OWN,
    "POST /imports": OWN,
    "POST /nodes/{node_id}/monitoring": OWN,
    "DELETE /nodes/{node_id}/monitoring/{monitoring_id}": OWN,
    "POST /nodes/{node_id}/burst": OWN,
    "POST /nodes/{node_id}/served-models": FLEET,
    "POST /nodes/{node_id}/ask-server": FLEET,
    "POST /nodes/{node_id}/power-limit": OWN,  # an admin's where no reservation is named
    "POST /namespaces/{namespace}": OWNED,
    "GET /namespaces/{namespace}/members": OWNED,
    "POST /namespaces/{namespace}/members": OWNED,
    "DELETE /namespaces/{namespace}/members/{member_id}": OWNED,
    "POST /tokens": MINE,
    "GET /tokens": MINE,
    "DELETE /tokens/{token_id}": MINE,
    "DELETE /nodes/{node_id}": ALL,
    "POST /nodes/{node_id}/cordon": ALL,
    "POST /nodes/{node_id}/uncordon": ALL,
    "POST /nodes/{node_id}/drain": ALL,
    "POST /nodes/{node_id}/admit": ALL,
    "POST /nodes/{node_id}/invite": ALL,
    "POST /nodes/{node_id}/labels": ALL,
    "GET /decisions": ALL,
    "GET /decisions/replay": ALL,
    "GET /decisions/what-if-policy": ALL,
    "GET /audit": ALL,
    "GET /audit/export": ALL,
    "POST /secret-key/rotate": ALL,
}
STREAMS: Final = ("/ws/metrics", "/ws/events", "/ws/logs", "/sse/metrics", "/sse/events")


def least_role(route: str) -> Role | None:
    """The role that a route needs; None where no token is asked for."""
    if REACH[route] is OPEN:
        return None
    method, path = route.split(" ")
    (row,) = [row for row in ENDPOINTS.values() if (row.method, row.path) == (method, path)]
    return row.role


def roles_page() -> Iterator[str]:
    """Yield the lines of docs/reference/roles.md."""
    yield from (*_INTRODUCTION, "")
    yield from ("| route | least role | of what |", "|---|---|---|")
    for route, reach in REACH.items():
        role = least_role(route)
        yield f"| `{route}` | {role.value if role is not None else 'none'} | {reach} |"
    for path in STREAMS:
        yield f"| `{path}` | viewer | {FLEET}; of the rest what is of the caller's namespaces |"
    yield from (*_BUS, "")
    yield from ("| message | sends | receives |", "|---|---|---|")
    for message in sorted(MESSAGES, key=tag_of):
        owner, others = owner_of(message), rule_of(message)
        passes = issubclass(message, Event | Live | Sample)
        senders, receivers = ({owner}, others) if passes else (others, {owner})
        yield f"| `{tag_of(message)}` | {_names(senders)} | {_names(receivers)} |"


def _names(roles: set[BusRole]) -> str:
    return ", ".join(role.value for role in BusRole if role in roles) or "nobody else"


_INTRODUCTION: Final = """\
# Roles

Who may do what over HTTP and on the bus. Each role may do what those above it may.

| role | of what | may |
|---|---|---|
| `viewer` | its namespaces, and the fleet | read |
| `submitter` | its namespaces | run tasks, reserve GPUs, publish events, save presets |
| `owner` | its namespaces | set their limit, their members, and tokens of programs there |
| `admin` | everything | run the fleet, read the audit log, set what a namespace is due |
| `node` | one GPU server, on the bus | report what is there, run what was granted there |

A role comes with a [token](../how-to/operate/manage-tokens.md), or with who signed in at the
[provider](../how-to/operate/sign-in-with-your-provider.md), then for each namespace by itself.
What is of another namespace is answered as if it were not there. Of GPUs that others hold no name
is told, unless the operator sets `GPUSTEWARD_GATEWAY_HOLDERS_VISIBLE_TO=everybody`: then every
token is told who holds them, in the fleet, in reasons and in events of reservations. An owner sees
and changes nothing of a namespace that it does not own. It does not set what
is taken from others (`guaranteed_gpus`, `weight`), and makes no admin. Who signed in at the
provider makes tokens of their own (`personal`), with no more than they have.

## Routes and streams

By enumeration in `tests/real/gateway/test_namespaces.py`.
""".splitlines()
_BUS: Final = f"""
## Messages on the bus

Services ({", ".join(role.value for role in SERVICES)}), nodes and people, by the name of
their user. An owner's file is a submitter's: what an owner may do more is the gateway's. By
enumeration in `tests/unit/shared/messaging/test_bus_permissions.py`, which also has for whom a
speaker may speak.
""".splitlines()
