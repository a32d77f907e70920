"""Which parameters an engine would be given, as its rules say."""

import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.executor.engine_rules import EngineRules
from shared.engines.allow_list import AllowList, fitting
from shared.engines.conflicts import Conflict
from shared.engines.table import ALLOW_LISTS, PROFILES
from shared.engines.values import bad_parameter, fitting_value
from shared.errors import Mistakes
from shared.near_words import did_you_mean

PARAMETER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# In place of names: whatever the engine knows.
EVERYTHING: Final = "*"


def check_parameters(engine: str, rules: EngineRules, parameters: Mapping[str, Any]) -> None:
    """Raises RefusedError with every parameter that the engine would not be given, by path."""
    flags: set[str] = set()
    mistakes = Mistakes()
    for spelling, value in parameters.items():
        with mistakes.collect():
            flag = flag_named(rules, spelling)
            if flag in flags:
                raise bad_parameter(spelling, f"{spelling!r} is given twice, in two spellings")
            flags.add(flag)
            check_value(engine, rules, spelling, flag, value)
    mistakes.refuse()


def find_conflicts(
    engine: str, rules: EngineRules, parameters: Mapping[str, Any]
) -> list[Conflict]:
    """Return which parameters do not go together, as far as that is known of the engine; what an
    operator allows by name is that operator's word.
    """
    profile = PROFILES.get(engine.casefold())
    if profile is None or profile.find_conflicts is None or EVERYTHING in rules.allowed:
        return []
    flags = {
        name.replace("_", "-"): value for name, value in parameters.items() if value is not None
    }
    return [
        conflict for conflict in profile.find_conflicts(flags) if conflict.flag not in rules.allowed
    ]


def takes(rules: EngineRules, flag: str) -> bool:
    """True if the engine is known to have this flag."""
    listed = ALLOW_LISTS.get(rules.allow_list or "")
    is_listed = listed is not None and listed.form_of(flag) is not None
    return is_listed or any(parameter.name == flag for parameter in rules.parameters)


def flag_named(rules: EngineRules, spelling: str) -> str:
    """The hyphenate name; underscores and hyphens are the same.

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


def check_value(engine: str, rules: EngineRules, spelling: str, flag: str, value: Any) -> Any:
    """The value as the engine gets it.

    Raises RefusedError for a parameter that a task may not give it, and for a value that does not
    fit.
    """
    parameter = next((candidate for candidate in rules.parameters if candidate.name == flag), None)
    if parameter is not None:
        return value if value is None else fitting_value(parameter, spelling, value)
    if flag in rules.allowed or EVERYTHING in rules.allowed:
        return value
    if rules.is_closed:
        names = [listed_parameter.name for listed_parameter in rules.parameters]
        suggestion = did_you_mean(flag, names) or f"; known: {', '.join(names)}"
        raise bad_parameter(spelling, f"{engine} has no parameter {spelling!r}{suggestion}")
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
    suggestion = did_you_mean(flag, listed.forms) if listed is not None else ""
    return (
        f"{spelling!r} is not on the list of what a task may give {whose}{suggestion}; "
        f'the operator of a node allows it with allow = ["{flag}"] under [engines.{engine}] '
        "of its engines file"
    )
