"""An experiment's detail: joined from what its owners know."""

from uuid import UUID

from schemas.gpu_request import Reason, ReasonCode
from schemas.scheduler import ReservationState
from schemas.scheduler_views import Explanation
from services.gateway.domain.experiments import experiment_detail
from tests.support.worlds.gateway_views import make_experiment

HELD = Reason(code=ReasonCode.HELD, message="all are held")
ENDED = Reason(code=ReasonCode.ENDED, message="its reservation is over")
EXPLANATION = Explanation(
    reservation_id=UUID(int=1),
    state=ReservationState.QUEUED,
    queue_position=1,
    queue_length=1,
    reasons=(HELD,),
    summary="held x1",
)


def test_why_it_waits_comes_from_the_scheduler_unless_the_orchestrator_knows_better() -> None:
    silent = experiment_detail(make_experiment(), None, EXPLANATION)
    known = experiment_detail(make_experiment(waiting_reasons=(ENDED,)), None, EXPLANATION)

    assert silent.waiting_reasons == (HELD,)
    assert known.waiting_reasons == (ENDED,)
    assert silent.explanation == known.explanation == EXPLANATION
