"""LeaderWorkerSets: what OME makes of an engine over several nodes, a leader and its workers.

All workers are made from one template: which of them is which rank is known to the cluster alone,
and reaches the engine by variables that it fills in (LeaderWorkerSet v1, "Labels, Annotations and
Environment Variables").
"""

import re
from typing import Final

from schemas.executor.attempts import FailureKind
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.kubernetes.plan import Plan
from shared.kubernetes.errors import NOT_FOUND, KubernetesError

LEADER_WORKER_VERSION: Final = "leaderworkerset.x-k8s.io/v1"
WORKER_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"  # 0 is the leader's
LEADER_ADDRESS: Final = "$(LWS_LEADER_ADDRESS)"
WORKER_INDEX: Final = "$(LWS_WORKER_INDEX)"
VARIABLE_PREFIX: Final = "$(LWS_"
VARIABLES: Final = frozenset({"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"})
_ESCAPED: Final = re.compile(r"\$(\$\(LWS_(?:LEADER_ADDRESS|WORKER_INDEX)\))")


def keep_variables(literal_text: str, plan: Plan) -> str:
    """Return the text of which the cluster fills in these variables, where OME spreads ranks."""
    return _ESCAPED.sub(r"\1", literal_text) if plan.worker_nodes else literal_text


async def require_leader_worker_sets(cluster: Cluster) -> None:
    """Raises AttemptFailed where the cluster has no such kind, so that nothing would start."""

    async def is_served() -> bool:
        try:
            await cluster.client.call("GET", f"/apis/{LEADER_WORKER_VERSION}")
        except KubernetesError as error:
            if error.code == NOT_FOUND:
                return False
            raise
        return True

    if not await cluster.patiently(is_served, "a look at the cluster's kinds"):
        raise AttemptFailed.of(
            FailureKind.RUNTIME_UNAVAILABLE,
            "the cluster has no LeaderWorkerSets, of which OME makes engines over several nodes: "
            "install LeaderWorkerSet (leaderworkerset.x-k8s.io), or use mode 'kubernetes', which "
            "needs none",
        )
