"""What must not leave an installation."""

import re
from typing import Any, Final

SECRET: Final = re.compile(
    r"(key|token|secret|passw(or)?d|credentials?|authorization)s?", re.IGNORECASE
)
HIDDEN: Final = "***"


def without_secrets(value: Any) -> Any:
    """Plain data without texts under names that end as secrets do, and without engines' logs."""
    match value:
        case dict():
            return {name: _field(name, inner) for name, inner in value.items()}
        case list():
            return [without_secrets(inner) for inner in value]
    return value


def _field(name: str, value: Any) -> Any:
    if name == "log_tail":
        return []
    last_word = re.split(r"[^A-Za-z]|(?<=[a-z])(?=[A-Z])", name)[-1]
    return _hidden(value) if SECRET.fullmatch(last_word) else without_secrets(value)


def _hidden(value: Any) -> Any:
    match value:
        case str():
            return HIDDEN
        case list():
            return [_hidden(inner) for inner in value]
        case dict():
            return {k: v if k == "type" else _hidden(v) for k, v in value.items()}
    return value
