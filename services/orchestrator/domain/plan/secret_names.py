"""Whether a namespace has the secrets that a task names."""

from collections.abc import Collection, Sequence

from schemas.errors import ErrorCode
from shared.errors import RefusedError


def refuse_missing_secrets(
    namespace: str, names: Sequence[str], existing_names: Collection[str]
) -> None:
    """Raises RefusedError naming what is not there, and what is."""
    missing_names = [name for name in dict.fromkeys(names) if name not in existing_names]
    if missing_names:
        existing_text = f"it has {', '.join(existing_names)}" if existing_names else "it has none"
        raise RefusedError(
            ErrorCode.NOT_FOUND,
            f"namespace {namespace} has no secret {', '.join(missing_names)}; {existing_text};"
            " `gpusteward secret set NAME` sets one",
            path="$.secrets",
        )
