"""An experiment's detail: joined from what its owners know."""

from uuid import UUID

from msgspec.structs import replace

from schemas.gpus.device_grant import DeviceGrant
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import Explanation
from schemas.task.dataset import DatasetFormat, DatasetUse
from services.gateway.domain.experiments import experiment_detail
from shared.gpu.info import gpu_info_of
from tests.support.worlds.gateway import make_summary
from tests.support.worlds.gateway_views import make_attempt, make_experiment, make_monitoring

HELD = Reason(code=ReasonCode.HELD, message="all are held")
ENDED = Reason(code=ReasonCode.ENDED, message="its reservation is over")
EXPLANATION = Explanation(
    reservation_id=UUID(int=1),
    state=ReservationState.QUEUED,
    queue_position=1,
    queue_length=1,
    reasons=(HELD,),
    summary="1 GPU already held",
)


def test_orchestrator_reason_beats_scheduler_reason() -> None:
    silent = experiment_detail(make_experiment(), None, EXPLANATION)
    known = experiment_detail(make_experiment(waiting_reasons=(ENDED,)), None, EXPLANATION)

    assert silent.waiting_reasons == (HELD,)
    assert known.waiting_reasons == (ENDED,)
    assert silent.explanation == known.explanation == EXPLANATION


def test_cluster_experiment_gpus_come_from_results() -> None:
    device = DeviceGrant(node_id="gpu-0", uuid="GPU-7", index=7, name="H200", memory_total_mb=9)
    granted = gpu_info_of([device], count=1, world_size=1)
    unnamed = gpu_info_of([], count=1, world_size=1)
    view = make_experiment(gpu_info=unnamed)
    known = make_summary(view, gpu_monitoring=replace(make_monitoring(), devices=(device,)))
    unknown = make_summary(view, gpu_monitoring=make_monitoring())

    assert experiment_detail(view, known, None).gpu_info == granted
    assert experiment_detail(view, unknown, None).gpu_info == unnamed
    assert (granted.model, granted.device_ids) == ("H200", ("GPU-7",))
    assert granted.details[0].node_id == "gpu-0"


def test_image_comes_from_newest_attempt_with_one() -> None:
    attempts = tuple(
        make_attempt(attempt_number=number, image_digest=digest)
        for number, digest in ((1, "vllm@sha256:aa"), (2, "vllm@sha256:bb"), (3, None))
    )
    failed = make_experiment(attempts=attempts)
    measured = make_summary(failed, image_digest="vllm@sha256:aa")

    assert experiment_detail(failed, None, None).image_digest == "vllm@sha256:bb"
    assert experiment_detail(failed, measured, None).image_digest == "vllm@sha256:aa"
    assert experiment_detail(make_experiment(), None, None).image_digest is None


def test_dataset_is_told_without_the_levels_too() -> None:
    view = make_experiment()
    use = DatasetUse(sha256="ab", format=DatasetFormat.TEXT, rows=2, used=1)
    measured = make_summary(view, dataset=use)

    assert experiment_detail(view, measured, None).dataset == use
    assert experiment_detail(view, None, None).dataset is None
