"""What fits on which GPU, by rule: nothing is reserved, started or stored."""

from typing import Any, get_args

from litestar.openapi.spec import Schema
from litestar.params import JSONBody
from litestar.typing import FieldDefinition
from typing_extensions import override

from schemas.gateway import endpoints
from schemas.gpus.checks import AnyCheck, Check, CheckView
from services.gateway.request_bodies import StrictBody, decode_strictly
from services.gateway.routes.common import TheGateway, route
from shared.accelerator_rules.checks import answer


class _AnyCheck(StrictBody[Check]):
    """One of a union, of which Litestar knows nothing."""

    @classmethod
    @override
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any
    ) -> Schema:
        fields = map(FieldDefinition.from_annotation, get_args(AnyCheck))
        return Schema(one_of=[schema_creator.for_field_definition(field) for field in fields])

    @override
    def decode_bytes(self, value: bytes) -> Any:
        union: Any = AnyCheck
        return decode_strictly(value, union)


@route(endpoints.CHECK, dto=_AnyCheck)
async def check(data: JSONBody[AnyCheck], gateway: TheGateway) -> CheckView:
    """Check whether it would work, by which rule, and what to do; for the given values, else all
    nodes.
    """
    return answer(data, gateway.live.inventories.values())
