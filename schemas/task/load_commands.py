"""Commands by which people repeat what an experiment did, on a machine of their own."""

from uuid import UUID

from msgspec import Struct

from schemas.base import PositiveInt, View
from schemas.task.report import Deployments


class LoadCommand(Struct, frozen=True, kw_only=True):
    """A tool's command for one level's load. None: the tool cannot send it, for `reason`."""

    tool: str
    command: str | None = None
    reason: str = ""


class LevelCommands(Struct, frozen=True, kw_only=True):
    """A level, as results name it, with each tool's command for its load."""

    scenario: str
    num_concurrency: PositiveInt
    arrivals: str | None = None
    commands: tuple[LoadCommand, ...] = ()


class ExperimentCommands(View, frozen=True, kw_only=True, tag="gateway.experiment_commands"):
    """How to start an experiment's engine, and how to send it the load of each of its levels.

    `base_url` is where the started engine listens on this host; None: nobody knows its port, and
    commands have an example in its place. Without a stored benchmark `levels` are those of the
    task; a load search has none then.
    """

    experiment_id: UUID
    base_url: str | None
    deployments: Deployments
    levels: tuple[LevelCommands, ...] = ()
