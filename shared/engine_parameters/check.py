"""Which parameters an engine would be given, as its rules say."""

import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.executor.engine_rules import EngineRules
from shared.engine_parameters.allow_list import AllowList, fitting
from shared.engine_parameters.llamacpp import LLAMACPP
from shared.engine_parameters.sglang import SGLANG
from shared.engine_parameters.values import bad_parameter, fitting_value
from shared.engine_parameters.vllm import VLLM
from shared.errors import Mistakes
from shared.near_words import did_you_mean

PARAMETER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ALLOW_LISTS: Final[Mapping[str, AllowList]] = {each.name: each for each in (VLLM, SGLANG, LLAMACPP)}
# In place of names: whatever the engine knows.
EVERYTHING: Final = "*"


def check_parameters(engine: str, rules: EngineRules, parameters: Mapping[str, Any]) -> None:
    """Raises RefusedError with every parameter that the engine would not be given, by path."""
    given: set[str] = set()
    mistakes = Mistakes()
    for spelling, value in parameters.items():
        with mistakes.collected():
            flag = flag_named(rules, spelling)
            if flag in given:
                raise bad_parameter(spelling, f"{spelling!r} is given twice, in two spellings")
            given.add(flag)
            checked_value(engine, rules, spelling, flag, value)
    mistakes.refuse()


def takes(rules: EngineRules, flag: str) -> bool:
    """Whether the engine is known to have this flag."""
    listed = ALLOW_LISTS.get(rules.allow_list or "")
    is_listed = listed is not None and listed.form_of(flag) is not None
    return is_listed or any(each.name == flag for each in rules.parameters)


def flag_named(rules: EngineRules, spelling: str) -> str:
    """The hyphenated name; underscores and hyphens are the same.

    Raises RefusedError for what is no name, and for what is not a task's to set.
    """
    if not PARAMETER_NAME.fullmatch(spelling):
        raise bad_parameter(spelling, f"expected a parameter name, got {spelling!r}")
    flag = spelling.replace("_", "-")
    for reason, names in rules.refused.items():
        # Parsers take a unique beginning for the whole flag, so a beginning counts as the flag.
        if any(name.startswith(flag) for name in names):
            raise bad_parameter(spelling, f"{spelling!r} {reason}")
    return flag


def checked_value(engine: str, rules: EngineRules, spelling: str, flag: str, value: Any) -> Any:
    """The value as the engine gets it.

    Raises RefusedError for a parameter that a task may not give it, and for a value that does not
    fit.
    """
    found = next((each for each in rules.parameters if each.name == flag), None)
    if found is not None:
        return value if value is None else fitting_value(found, spelling, value)
    if flag in rules.allowed or EVERYTHING in rules.allowed:
        return value
    if rules.is_closed:
        known = [each.name for each in rules.parameters]
        meant = did_you_mean(flag, known) or f"; known: {', '.join(known)}"
        raise bad_parameter(spelling, f"{engine} has no parameter {spelling!r}{meant}")
    if rules.allow_list is None:
        return value
    # An executor of another release may name a list that is not known here; it checks by itself.
    listed = ALLOW_LISTS.get(rules.allow_list)
    if listed is None and rules.allow_list:
        return value
    form = listed.form_of(flag) if listed is not None else None
    if form is None:
        raise bad_parameter(spelling, _not_listed(engine, listed, spelling, flag))
    return value if value is None else fitting(form, spelling, value)


def _not_listed(engine: str, listed: AllowList | None, spelling: str, flag: str) -> str:
    whose = engine if listed is None else f"{engine} {listed.version}"
    meant = did_you_mean(flag, listed.forms) if listed is not None else ""
    return (
        f"{spelling!r} is not on the list of what a task may give {whose}{meant}; the operator of "
        f'a node allows it with allow = ["{flag}"] under [engines.{engine}] of its engines file'
    )
