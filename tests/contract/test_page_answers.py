"""Whether the answers that the page's tests draw are still what the gateway answers."""

import json

from schemas.formats.json_schema import json_schema
from tests.contract.test_exported import misfit
from tests.support.web.page_answers import ANSWERS, FILE, type_of

RECORD = "python -m tests.support.web.page_answers"


def test_recorded_answers_of_the_page_fit_their_messages() -> None:
    answers, defs = json.loads(FILE.read_text()), json_schema()["$defs"]

    misfits = {name: misfit(answers[name], defs[type_of(name).__name__], defs) for name in ANSWERS}

    assert answers.keys() == ANSWERS.keys()
    assert {name: place for name, place in misfits.items() if place} == {}, f"record them: {RECORD}"
