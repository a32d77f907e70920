"""The closed set of reasons is documented, every code of it."""

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reason_counts import counts_text
from schemas.scheduler.reasons import REASON_MEANINGS, ReasonCode
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import Node
from services.scheduler.domain.placement.eligibility import reason_for
from tests.support.tables import for_each
from tests.unit.scheduler.builders import make_device


def test_exactly_all_reason_codes_are_documented() -> None:
    assert set(REASON_MEANINGS) == set(ReasonCode)


@for_each("code", ReasonCode)
def test_a_meaning_is_one_sentence(code: ReasonCode) -> None:
    meaning = REASON_MEANINGS[code]

    assert meaning[0].isupper()
    assert meaning.endswith(".")
    assert ". " not in meaning
    assert len(set(REASON_MEANINGS.values())) == len(ReasonCode)


@for_each("code", ReasonCode)
def test_a_count_of_a_code_is_words(code: ReasonCode) -> None:
    one, several = counts_text({code: 1}), counts_text({code: 3})

    assert one.startswith("1 ")
    assert several.startswith("3 ")
    assert "_" not in several
    assert sum(several == counts_text({other: 3}) for other in ReasonCode) == 1


@for_each("code", ReasonCode)
def test_no_reason_says_that_a_device_is_ok(code: ReasonCode) -> None:
    device = make_device(health=HealthState.LOST)

    reason = reason_for(code, device, GpuRequest(), Node(node_id="alpha"))

    assert "is ok" not in reason.message
    assert len(reason.message) > len(device.uuid)
