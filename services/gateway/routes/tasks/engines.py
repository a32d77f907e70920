"""The engines that a task can name."""

from schemas.gateway import endpoints
from schemas.gateway.engines import EngineList
from services.gateway.domain.engine_choices import engine_choice
from services.gateway.routes.common import route
from shared.engines.table import PROFILES


@route(endpoints.LIST_ENGINES)
async def list_engines() -> EngineList:
    """The engines of this release, each with its flags and the parameters to begin with.

    An engine that an operator declared is not among them.
    """
    return EngineList(engines=tuple(engine_choice(profile) for profile in PROFILES.values()))
