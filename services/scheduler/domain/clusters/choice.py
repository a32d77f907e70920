"""The node of a Kubernetes cluster that a request should have.

Kubernetes decides what is free and binds pods. What is chosen here counts as taken from then on,
before its pod is there, so that no two choices are of the same GPUs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import NodeId
from schemas.cluster.node_selection import NodeGpuSummary, NodeSelection
from schemas.cluster.nodes import ClusterNode, HostAmounts, NodeGpus
from schemas.gpus.device_grant import ClusterNodeName, ClusterPlacement
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest, NodeRanking
from schemas.scheduler.reasons import Reason, ReasonCode
from services.scheduler.domain.clusters.divided import (
    division_text,
    find_divided_gpus,
)
from services.scheduler.domain.clusters.holdings import ClusterHolding, HeldOfNodes
from services.scheduler.domain.clusters.host_room import free_host, has_room, host_needs, room_words
from services.scheduler.domain.clusters.left_to_cluster import leave_to_cluster
from services.scheduler.domain.clusters.node_gpus import (
    NO_METRICS,
    FreeGpus,
    NodeLoad,
    Thresholds,
    free_gpus_of,
    gpus_of,
    takes_pods,
)
from services.scheduler.domain.clusters.parts import PartNeed, part_of, part_words, parts_free
from services.scheduler.domain.clusters.vanished import describe_vanished
from services.scheduler.domain.clusters.wishes import has_wishes, liking, restricts, suits
from services.scheduler.domain.node_selection import sentence

# Until a pod that has just been bound shows in the readings of its node.
SETTLING: Final = timedelta(seconds=120)


class Cluster(Struct, frozen=True, kw_only=True):
    """A cluster as it is known now; `blocked` is why nothing may be chosen by that. `past_use` is
    the mean utilization of late, by node name, as far as it was read.
    """

    cluster_id: NodeId
    nodes: Mapping[str, ClusterNode] = {}
    loads: Mapping[str, NodeLoad] = {}
    past_use: Mapping[str, float] = {}
    blocked: Reason | None = None


class Choice(Struct, frozen=True, kw_only=True):
    """Where a request goes; `summary` is of the chosen node, None if none is."""

    placement: ClusterPlacement
    summary: NodeGpuSummary | None = None


class _Candidate(NamedTuple):
    cluster: Cluster
    node: ClusterNode
    gpus: NodeGpus
    free_gpus: FreeGpus
    has_room: bool
    liking: int
    ranking: NodeRanking

    @property
    def rank(self) -> tuple[int, int, float, int, str]:
        """Order what is liked first; then more idle GPUs, or fewer that are left over; then less
        use of late, and of as much the node with the fewest free ones.
        """
        node, (free, idle) = self.node, self.free_gpus
        load = self.cluster.loads.get(node.name, NO_METRICS)
        used = self.cluster.past_use.get(node.name, load.mean_utilization_percent or 0.0)
        by_gpus = free if self.ranking is NodeRanking.LEAST_FRAGMENTING else -idle
        return -self.liking, by_gpus, used, free, node.name

    def takes(self, gpus: int) -> bool:
        """Tell whether a pod with so many GPUs would be bound now."""
        return self.has_room and self.free_gpus.free >= gpus


@dataclass(slots=True)
class ClusterFleet:
    """The clusters of one moment, and what reservations hold of them."""

    clusters: Sequence[Cluster]
    holdings: Iterable[ClusterHolding]
    now: datetime
    _by_id: dict[NodeId, Cluster] = field(init=False)
    _holdings: HeldOfNodes = field(init=False)

    def __post_init__(self) -> None:
        self._holdings = HeldOfNodes(self.now - SETTLING)
        self._by_id = {cluster.cluster_id: cluster for cluster in self.clusters}
        for holding in self.holdings:
            self.hold(holding)

    @property
    def known(self) -> list[Cluster]:
        """The clusters that may be chosen from."""
        return [cluster for cluster in self.clusters if cluster.blocked is None]

    def hold(self, holding: ClusterHolding) -> None:
        """Count a holding from now on."""
        cluster = self._by_id.get(holding.cluster_id)
        node = cluster.nodes.get(holding.node_name or "") if cluster is not None else None
        self._holdings.add(holding, node)

    def take(self, reservation_id: UUID, request: GpuRequest, placement: ClusterPlacement) -> None:
        """Count what was just chosen."""
        for node_name in (placement.node_name, *(node.node_name for node in placement.other_nodes)):
            self.hold(
                ClusterHolding(
                    reservation_id=reservation_id,
                    cluster_id=placement.cluster_id,
                    node_name=node_name,
                    resource=placement.resource,
                    gpus=placement.gpus,
                    granted_at=self.now,
                    host=host_needs(request),
                    part=part_of(request),
                )
            )

    def choose(self, request: GpuRequest) -> Choice | tuple[Reason, ...]:
        """Return where the request is to go, or why that is not decided yet."""
        target = request.cluster or ClusterRequest()
        matching = [cluster for cluster in self.clusters if _is_named(cluster, request, target)]
        usable = [cluster for cluster in matching if cluster.blocked is None]
        if not usable:
            return _unusable(matching, target)
        if not target.selects_node:
            why = "the request selects no node"
            return Choice(placement=leave_to_cluster(request, target, usable, why))
        if request.nodes > 1:
            return self._choose_several(request, target, usable)
        part = part_of(request)
        least = request.gpus if part is None else 1
        best: _Candidate | None = None
        for candidate in self._candidates(request, target, usable, least):
            if best is None or candidate.rank < best.rank:
                best = candidate
        if best is not None:
            avoided = ", ".join(target.avoided_node_names)
            return self._place(best, request, f"keeps off {avoided}; " if avoided else "")
        if target.avoided_node_names:  # better there than left to chance
            anywhere = replace(target, avoided_node_names=())
            return self.choose(replace(request, cluster=anywhere))
        suitable = list(self._candidates(request, target, usable, 0))
        most = max((candidate.free_gpus.idle for candidate in suitable), default=0)
        what = _idle_gpus(request.gpus) if part is None else part_words(target.resource, part)
        request_words = f"{what}{room_words(host_needs(request))}"
        divided = _division_text(request, target, usable)
        why = f"no node has {request_words}; the most that one has is {most}{divided}"
        if not restricts(request, target):
            return Choice(placement=leave_to_cluster(request, target, usable, why))
        # The choice is not all Kubernetes': the best of those that may be taken, idle or not.
        if suitable:
            ready = [candidate for candidate in suitable if candidate.takes(least)]
            best = min(ready or suitable, key=lambda candidate: candidate.rank)
            return self._place(best, request, f"{why}; ")
        is_by_name = target.node_names or not request.gpu_models
        code = ReasonCode.NODE_MISMATCH if is_by_name else ReasonCode.MODEL_MISMATCH
        names = ", ".join(cluster.cluster_id for cluster in usable)
        says = f"no node that is asked for takes pods in {names}{divided}"
        return (Reason(code=code, message=says),)

    def _choose_several(
        self, request: GpuRequest, target: ClusterRequest, usable: Sequence[Cluster]
    ) -> Choice | tuple[Reason, ...]:
        """Choose all nodes, of one cluster, or none: by chance a part could be bound alone."""
        most = 0
        for cluster in usable:
            ranked = sorted(
                (
                    candidate
                    for candidate in self._candidates(request, target, [cluster], 0)
                    if candidate.has_room and candidate.free_gpus.idle >= request.gpus
                ),
                key=lambda candidate: candidate.rank,
            )
            resource = ranked[0].gpus.resource if ranked else None
            nodes = [candidate for candidate in ranked if candidate.gpus.resource == resource]
            most = max(most, len(nodes))
            if len(nodes) >= request.nodes:
                choice = self._place(nodes[0], request)
                other_nodes = tuple(
                    ClusterNodeName(node_name=other.node.name, hostname=other.node.hostname or "")
                    for other in nodes[1 : request.nodes]
                )
                placement = replace(choice.placement, other_nodes=other_nodes)
                return replace(choice, placement=placement)
        if target.avoided_node_names:
            anywhere = replace(target, avoided_node_names=())
            return self._choose_several(request, anywhere, usable)
        what = _idle_gpus(request.gpus)
        message = f"waits for {request.nodes} nodes with {what} each; {most} have that"
        return (Reason(code=ReasonCode.TOO_FEW_NODES, message=message),)

    def summaries(self, thresholds: Thresholds) -> dict[str, NodeGpuSummary]:
        """Return every node with GPUs, whole or divided, by its name; `cluster/name` if several
        have it.

        Of divided GPUs none is free as a whole.
        """
        summaries: dict[str, NodeGpuSummary] = {}
        for cluster in self.known:
            for node in cluster.nodes.values():
                gpus, divided = gpus_of(node, None), find_divided_gpus(node)
                if gpus is None and divided is None:
                    continue
                free_gpus = FreeGpus(0, 0)
                if gpus is not None:
                    free_gpus = self.free_gpus(cluster, node, gpus, thresholds)
                host = self._free_host(cluster, node)
                name = f"{cluster.cluster_id}/{node.name}" if node.name in summaries else node.name
                summary = _summary(cluster, node, gpus or divided, free_gpus, host)
                summaries[name] = self._with_divided(summary, cluster, node, divided)
        return summaries

    def _with_divided(
        self, summary: NodeGpuSummary, cluster: Cluster, node: ClusterNode, divided: NodeGpus | None
    ) -> NodeGpuSummary:
        if divided is None:
            return summary
        shares = divided.allocatable_units if divided.sharing is not None else 0
        free = 0
        if shares and takes_pods(node):
            promised = self._holdings.parts((cluster.cluster_id, node.name, divided.resource))
            free = parts_free(divided, PartNeed(1), promised)
        note = "; ".join(text for text in (divided.note, summary.note) if text)
        return replace(summary, total_shares=shares, free_shares=free, note=note)

    def free_gpus(
        self, cluster: Cluster, node: ClusterNode, gpus: NodeGpus, thresholds: Thresholds
    ) -> FreeGpus:
        """Return the free GPUs of a node; none of one that takes no pods."""
        if not takes_pods(node):
            return FreeGpus(0, 0)
        in_flight = self._holdings.gpus((cluster.cluster_id, node.name, gpus.resource))
        return free_gpus_of(gpus, cluster.loads.get(node.name, NO_METRICS), in_flight, thresholds)

    def _free_host(self, cluster: Cluster, node: ClusterNode) -> HostAmounts | None:
        return free_host(node, self._holdings.host(cluster.cluster_id, node.name))

    def _candidates(
        self, request: GpuRequest, target: ClusterRequest, clusters: Iterable[Cluster], least: int
    ) -> Iterator[_Candidate]:
        """Nodes that may be taken with at least so many idle GPUs. Where the most idle one is the
        best, none with fewer than the one before: no more than are free are idle, so most nodes are
        not inspected further.
        """
        thresholds = thresholds_of(target)
        is_choosy, needs = has_wishes(request, target), host_needs(request)
        holdings = self._holdings
        part = part_of(request)
        is_best_wanted = (
            least > 0 and not request.prefer and target.ranking is NodeRanking.MOST_IDLE
        )
        for cluster in clusters:
            cluster_id, loads = cluster.cluster_id, cluster.loads
            for name, node in cluster.nodes.items():
                gpus = gpus_of(node, target.resource, in_parts=part is not None)
                if gpus is None or (
                    part is None and least and gpus.allocatable - gpus.requested < least
                ):
                    continue
                if (
                    node.hostname is None
                    or not takes_pods(node)
                    or (is_choosy and not suits(node, request, target))
                ):
                    continue
                place = (cluster_id, name, gpus.resource)
                load, in_flight = loads.get(name, NO_METRICS), holdings.gpus(place)
                if part is None:
                    free_gpus = free_gpus_of(gpus, load, in_flight, thresholds)
                else:  # readings of a shared GPU are its holders' use: only their age counts
                    parts = parts_free(gpus, part, holdings.parts(place))
                    free_gpus = FreeGpus(parts, 0 if load.is_stale else parts)
                if free_gpus.idle < least:
                    continue
                fits = has_room(node, holdings.host(cluster_id, name), needs)
                if fits or not least:
                    least = free_gpus.idle if is_best_wanted else least
                    liked = liking(node, request) if request.prefer else 0
                    yield _Candidate(cluster, node, gpus, free_gpus, fits, liked, target.ranking)

    def _place(self, candidate: _Candidate, request: GpuRequest, why: str = "") -> Choice:
        cluster, node, offered, free_gpus, *_ = candidate
        target, part = request.cluster or ClusterRequest(), part_of(request)
        gpus = self.free_gpus(cluster, node, offered, thresholds_of(target))
        summary = _summary(cluster, node, offered, gpus, self._free_host(cluster, node))
        says = sentence(summary)
        if part is not None:
            says = f"{node.name}: room for {free_gpus.free} of {part_words(offered.resource, part)}"
        placement = ClusterPlacement(
            cluster_id=cluster.cluster_id,
            gpus=request.gpus,
            node_name=node.name,
            hostname=node.hostname,
            resource=offered.resource,
            supply=offered.supply,
            message=f"{why}{says}",
            units=target.units,
            memory_units=target.memory_units,
            gpu_model=node.gpu_model,
        )
        return Choice(placement=placement, summary=summary)


def thresholds_of(target: ClusterRequest) -> Thresholds:
    """Return below what a GPU is idle for the request."""
    return Thresholds(target.utilization_threshold_percent, target.memory_threshold_percent)


def selection(outcome: Choice | tuple[Reason, ...]) -> NodeSelection:
    """Return a choice, or why there is none yet, as it is told and logged."""
    if not isinstance(outcome, Choice):
        return NodeSelection(node_id=None, message="; ".join(reason.message for reason in outcome))
    placement = outcome.placement
    return NodeSelection(
        node_id=placement.node_name,
        message=placement.message,
        summary=outcome.summary,
        hostname=placement.hostname,
        avoided_hostnames=placement.avoided_hostnames,
    )


def _division_text(request: GpuRequest, target: ClusterRequest, clusters: Iterable[Cluster]) -> str:
    nodes = (
        node
        for cluster in clusters
        for node in cluster.nodes.values()
        if suits(node, request, target)
    )
    return division_text(nodes, target.resource, in_parts=part_of(request) is not None)


def _is_named(cluster: Cluster, request: GpuRequest, target: ClusterRequest) -> bool:
    return target.cluster_id in (None, cluster.cluster_id) and (
        not request.node_ids or cluster.cluster_id in request.node_ids
    )


def _unusable(matching: Sequence[Cluster], target: ClusterRequest) -> tuple[Reason, ...]:
    if matching:
        return tuple(cluster.blocked for cluster in matching if cluster.blocked is not None)
    which = f"cluster {target.cluster_id}" if target.cluster_id else "a Kubernetes cluster"
    return (
        Reason(
            code=ReasonCode.AWAITING_CLUSTER,
            message=f"waits for a view of {which}: none has been heard of",
            node_id=target.cluster_id,
        ),
    )


def _summary(
    cluster: Cluster,
    node: ClusterNode,
    gpus: NodeGpus | None,
    free_gpus: FreeGpus,
    host: HostAmounts | None,
) -> NodeGpuSummary:
    load = cluster.loads.get(node.name, NO_METRICS)
    return NodeGpuSummary(
        node_name=node.name,
        total_gpus=gpus.capacity if gpus is not None else 0,
        allocatable_gpus=free_gpus.free,
        idle_gpu_count=free_gpus.idle,
        avg_utilization_percent=load.mean_utilization_percent,
        avg_memory_usage_percent=load.mean_memory_percent,
        has_metrics=bool(load.gpus),
        cluster_id=cluster.cluster_id,
        past_utilization_percent=cluster.past_use.get(node.name),
        free_host=host,
        note=describe_vanished(node),
    )


def _idle_gpus(count: int) -> str:
    return "an idle GPU" if count == 1 else f"{count} idle GPUs"
