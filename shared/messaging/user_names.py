"""The users of the bus by their names, which state their roles: `scheduler`, `node_<id>`,
`viewer_<name>`, `submitter_<namespace>_<name>`, `admin_<name>`.
"""

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from schemas.base import NODE_PREFIX


class Role(StrEnum):
    SCHEDULER = "scheduler"
    ORCHESTRATOR = "orchestrator"
    RESULTS = "results"
    GATEWAY = "gateway"
    NODE = "node"
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"


SERVICES: Final = (Role.SCHEDULER, Role.ORCHESTRATOR, Role.RESULTS, Role.GATEWAY)
_NAMES: Final = re.compile(
    rf"(?P<service>{'|'.join(SERVICES)})|{NODE_PREFIX}(?P<node>[A-Za-z0-9_-]{{1,128}})"
    r"|submitter_(?P<namespace>[a-z0-9-]{1,63})_(?P<submitter>[A-Za-z0-9_-]{1,64})"
    r"|(?P<person>viewer|admin)_(?P<name>[A-Za-z0-9_-]{1,64})"
)


class BusUser(Struct, frozen=True):
    """Who a user is, by its name. `scope`: a node's id, a submitter's namespace. `person` is what
    the file of one was made for, empty of services and nodes.
    """

    name: str
    role: Role
    scope: str | None = None
    person: str = ""


def bus_user(name: str) -> BusUser:
    """Raises ValueError for a name of no such form."""
    match = _NAMES.fullmatch(name)
    if match is None:
        raise ValueError(f"expected the name of a user of the bus, got {name!r}")
    if node := match["node"]:
        return BusUser(name, Role.NODE, node)
    if namespace := match["namespace"]:
        return BusUser(name, Role.SUBMITTER, namespace, match["submitter"])
    return BusUser(name, Role(match["service"] or match["person"]), person=match["name"] or "")
