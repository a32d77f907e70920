"""Which thing a shortened id names."""

from uuid import UUID

import pytest

from schemas.errors import ErrorCode
from services.cli.display.tables import short
from services.cli.failures import CommandFailed
from services.cli.lookup import Named, Sort, choose

TASK = Named(Sort.TASK, UUID("01920000-0000-7000-8000-aaaaaaaaaaaa"))
EXPERIMENT = Named(Sort.EXPERIMENT, UUID("01920000-0000-7000-8000-bbbbbbbbbbbb"))
RESERVATION = Named(Sort.RESERVATION, UUID("01930000-0000-7000-8000-bbbbbbbbbbcc"))
KNOWN = [TASK, EXPERIMENT, RESERVATION]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("0193", RESERVATION, id="a unique beginning"),
        pytest.param("aaaa", TASK, id="a unique end"),
        pytest.param("BBBBBBBBBBBB", EXPERIMENT, id="in capitals"),
        pytest.param(short(TASK.identifier), TASK, id="as tables print it"),
    ],
)
def test_an_id_may_be_shortened_as_long_as_it_is_unique(text: str, want: Named) -> None:
    assert choose(text, KNOWN) == want


def test_an_ambiguous_id_is_refused_with_what_it_could_mean() -> None:
    with pytest.raises(
        CommandFailed, match=r"names 2 things.*task a{12}, experiment b{12}"
    ) as seen:
        choose("0192", KNOWN)

    assert seen.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize("text", ["ffff", ""])
def test_an_unknown_id_is_not_found(text: str) -> None:
    with pytest.raises(CommandFailed) as seen:
        choose(text, KNOWN)

    assert seen.value.code is ErrorCode.NOT_FOUND
