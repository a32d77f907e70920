"""Labels of a node: what its agent reports, and what operators have set or taken away."""

from collections.abc import Mapping
from typing import Final

CLUSTER_LABEL: Final = "gpusteward.io/cluster"  # of an agent on a node of that Kubernetes cluster

OperatorLabels = dict[str, str | None]  # None: taken away, though the agent reports it


def apply_changes(
    agent: Mapping[str, str], operator: Mapping[str, str | None], changes: Mapping[str, str | None]
) -> OperatorLabels:
    """The operators' labels after these changes."""
    merged = {**operator, **changes}
    return {key: value for key, value in merged.items() if value is not None or key in agent}


def effective(agent: Mapping[str, str], operator: Mapping[str, str | None]) -> dict[str, str]:
    """The labels that count: the operators' win."""
    both = {**agent, **operator}
    return {key: value for key, value in sorted(both.items()) if value is not None}
