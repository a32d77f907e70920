"""What fits on which GPU, by rule: nothing is reserved, started or stored."""

from litestar.params import JSONBody

from schemas.checks import CheckView, CudaCheck
from services.gateway.request_bodies import StrictBody
from services.gateway.routes.common import TheGateway, post
from shared.accelerator_rules.checks import answer_cuda


@post("/checks", status_code=200, dto=StrictBody[CudaCheck])
async def check(data: JSONBody[CudaCheck], gateway: TheGateway) -> CheckView:
    """Whether it would work, by which rule, and what to do: of what is given, else of all nodes."""
    return answer_cuda(data, gateway.live.inventories.values())
