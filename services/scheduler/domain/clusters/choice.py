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
from schemas.cluster.nodes import ClusterNode, GpuSupply, HostAmounts, NodeGpus
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest, NodeRanking
from schemas.scheduler.reasons import Reason, ReasonCode
from services.scheduler.domain.clusters.divided import (
    avoided_hostnames,
    divided_gpus,
    divided_words,
)
from services.scheduler.domain.clusters.holdings import ClusterHolding, HeldOfNodes
from services.scheduler.domain.clusters.host_room import (
    free_host,
    has_room,
    host_needs,
    room_words,
)
from services.scheduler.domain.clusters.node_gpus import (
    NO_METRICS,
    FreeGpus,
    NodeLoad,
    Thresholds,
    free_gpus_of,
    gpus_of,
    takes_pods,
)
from services.scheduler.domain.clusters.parts import (
    PartNeed,
    part_of,
    part_words,
    parts_free,
)
from services.scheduler.domain.clusters.wishes import has_wishes, liking, restricts, suits
from services.scheduler.domain.node_selection import sentence

# Until a pod that has just been bound shows in the readings of its node.
SETTLING: Final = timedelta(seconds=120)
LEFT: Final = "left to the cluster's scheduler"


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
    _held: HeldOfNodes = field(init=False)

    def __post_init__(self) -> None:
        self._held = HeldOfNodes(self.now - SETTLING)
        self._by_id = {cluster.cluster_id: cluster for cluster in self.clusters}
        for holding in self.holdings:
            self.hold(holding)

    @property
    def known(self) -> list[Cluster]:
        """Those by which something may be chosen."""
        return [each for each in self.clusters if each.blocked is None]

    def hold(self, holding: ClusterHolding) -> None:
        """Count a holding from now on."""
        cluster = self._by_id.get(holding.cluster_id)
        node = cluster.nodes.get(holding.node_name or "") if cluster is not None else None
        self._held.add(holding, node)

    def take(self, reservation_id: UUID, request: GpuRequest, placement: ClusterPlacement) -> None:
        """Count what was just chosen."""
        self.hold(
            ClusterHolding(
                reservation_id=reservation_id,
                cluster_id=placement.cluster_id,
                node_name=placement.node_name,
                resource=placement.resource,
                gpus=placement.gpus,
                granted_at=self.now,
                host=host_needs(request),
                part=part_of(request),
            )
        )

    def choose(self, request: GpuRequest) -> Choice | tuple[Reason, ...]:
        """Where the request is to go, or why that is not decided yet."""
        wanted = request.cluster or ClusterRequest()
        named = [each for each in self.clusters if _is_named(each, request, wanted)]
        usable = [each for each in named if each.blocked is None]
        if not usable:
            return _unusable(named, wanted)
        if not wanted.selects_node:
            return _leave(request, wanted, usable, "the request selects no node")
        part = part_of(request)
        least = request.gpus if part is None else 1
        best: _Candidate | None = None
        for each in self._candidates(request, wanted, usable, least):
            if best is None or each.rank < best.rank:
                best = each
        if best is not None:
            avoided = ", ".join(wanted.avoided_node_names)
            return self._place(best, request, f"keeps off {avoided}; " if avoided else "")
        if wanted.avoided_node_names:  # better there than left to chance
            anywhere = replace(wanted, avoided_node_names=())
            return self.choose(replace(request, cluster=anywhere))
        suitable = list(self._candidates(request, wanted, usable, 0))
        most = max((each.free_gpus.idle for each in suitable), default=0)
        what = _idle_gpus(request.gpus) if part is None else part_words(wanted.resource, part)
        asked = f"{what}{room_words(host_needs(request))}"
        divided = _divided_words(request, wanted, usable)
        why = f"no node has {asked}; the most that one has is {most}{divided}"
        if not restricts(request, wanted):
            return _leave(request, wanted, usable, why)
        # The choice is not all Kubernetes': the best of those that may be taken, idle or not.
        if suitable:
            ready = [each for each in suitable if each.takes(least)]
            best = min(ready or suitable, key=lambda each: each.rank)
            return self._place(best, request, f"{why}; ")
        is_by_name = wanted.node_names or not request.gpu_models
        code = ReasonCode.NODE_MISMATCH if is_by_name else ReasonCode.MODEL_MISMATCH
        names = ", ".join(each.cluster_id for each in usable)
        says = f"no node that is asked for takes pods in {names}{divided}"
        return (Reason(code=code, message=says),)

    def summaries(self, thresholds: Thresholds) -> dict[str, NodeGpuSummary]:
        """Every node with GPUs, whole or divided, by its name; under `cluster/name` if several have
        it. Of divided ones none is free as a whole.
        """
        found: dict[str, NodeGpuSummary] = {}
        for cluster in self.known:
            for node in cluster.nodes.values():
                gpus, divided = gpus_of(node, None), divided_gpus(node)
                if gpus is None and divided is None:
                    continue
                free_gpus = FreeGpus(0, 0)
                if gpus is not None:
                    free_gpus = self.free_gpus(cluster, node, gpus, thresholds)
                host = self._free_host(cluster, node)
                name = f"{cluster.cluster_id}/{node.name}" if node.name in found else node.name
                summary = _summary(cluster, node, gpus or divided, free_gpus, host)
                found[name] = self._with_divided(summary, cluster, node, divided)
        return found

    def _with_divided(
        self,
        summary: NodeGpuSummary,
        cluster: Cluster,
        node: ClusterNode,
        divided: NodeGpus | None,
    ) -> NodeGpuSummary:
        if divided is None:
            return summary
        shares = divided.allocatable_units if divided.sharing is not None else 0
        free = 0
        if shares and takes_pods(node):
            held = self._held.parts((cluster.cluster_id, node.name, divided.resource))
            free = parts_free(divided, PartNeed(1), held)
        return replace(summary, total_shares=shares, free_shares=free, note=divided.note)

    def free_gpus(
        self, cluster: Cluster, node: ClusterNode, gpus: NodeGpus, thresholds: Thresholds
    ) -> FreeGpus:
        """What is left of a node; nothing of one that takes no pods."""
        if not takes_pods(node):
            return FreeGpus(0, 0)
        in_flight = self._held.gpus((cluster.cluster_id, node.name, gpus.resource))
        return free_gpus_of(gpus, cluster.loads.get(node.name, NO_METRICS), in_flight, thresholds)

    def _free_host(self, cluster: Cluster, node: ClusterNode) -> HostAmounts | None:
        return free_host(node, self._held.host(cluster.cluster_id, node.name))

    def _candidates(
        self, request: GpuRequest, wanted: ClusterRequest, clusters: Iterable[Cluster], least: int
    ) -> Iterator[_Candidate]:
        """Nodes that may be taken with at least so many idle GPUs. Where the most idle one is the
        best, none with fewer than the one before: no more than are free are idle, so most nodes are
        not inspected further.
        """
        thresholds = thresholds_of(wanted)
        is_choosy, held, needs = has_wishes(request, wanted), self._held, host_needs(request)
        part = part_of(request)
        is_best_wanted = (
            least > 0 and not request.prefer and wanted.ranking is NodeRanking.MOST_IDLE
        )
        for cluster in clusters:
            cluster_id, loads = cluster.cluster_id, cluster.loads
            for name, node in cluster.nodes.items():
                gpus = gpus_of(node, wanted.resource, in_parts=part is not None)
                if gpus is None or (
                    part is None and least and gpus.allocatable - gpus.requested < least
                ):
                    continue
                if (
                    node.hostname is None
                    or not takes_pods(node)
                    or (is_choosy and not suits(node, request, wanted))
                ):
                    continue
                place = (cluster_id, name, gpus.resource)
                load, in_flight = loads.get(name, NO_METRICS), held.gpus(place)
                if part is None:
                    free_gpus = free_gpus_of(gpus, load, in_flight, thresholds)
                else:  # readings of a shared GPU are its holders' use: only their age counts
                    parts = parts_free(gpus, part, held.parts(place))
                    free_gpus = FreeGpus(parts, 0 if load.is_stale else parts)
                if free_gpus.idle < least:
                    continue
                fits = has_room(node, held.host(cluster_id, name), needs)
                if fits or not least:
                    least = free_gpus.idle if is_best_wanted else least
                    liked = liking(node, request) if request.prefer else 0
                    yield _Candidate(cluster, node, gpus, free_gpus, fits, liked, wanted.ranking)

    def _place(self, chosen: _Candidate, request: GpuRequest, why: str = "") -> Choice:
        cluster, node, offered, found, *_ = chosen
        wanted, part = request.cluster or ClusterRequest(), part_of(request)
        gpus = self.free_gpus(cluster, node, offered, thresholds_of(wanted))
        summary = _summary(cluster, node, offered, gpus, self._free_host(cluster, node))
        says = sentence(summary)
        if part is not None:
            says = f"{node.name}: room for {found.free} of {part_words(offered.resource, part)}"
        placement = ClusterPlacement(
            cluster_id=cluster.cluster_id,
            gpus=request.gpus,
            node_name=node.name,
            hostname=node.hostname,
            resource=offered.resource,
            supply=offered.supply,
            message=f"{why}{says}",
            units=wanted.units,
            memory_units=wanted.memory_units,
            gpu_model=node.gpu_model,
        )
        return Choice(placement=placement, summary=summary)


def thresholds_of(wanted: ClusterRequest) -> Thresholds:
    """Return below what a GPU is idle for the request."""
    return Thresholds(wanted.utilization_threshold_percent, wanted.memory_threshold_percent)


def selection(found: Choice | tuple[Reason, ...]) -> NodeSelection:
    """Return a choice, or why there is none yet, as it is told and logged."""
    if not isinstance(found, Choice):
        return NodeSelection(node_id=None, message="; ".join(each.message for each in found))
    placement = found.placement
    return NodeSelection(
        node_id=placement.node_name,
        message=placement.message,
        summary=found.summary,
        hostname=placement.hostname,
        avoided_hostnames=placement.avoided_hostnames,
    )


def _leave(
    request: GpuRequest, wanted: ClusterRequest, clusters: Sequence[Cluster], why: str
) -> Choice:
    """To the cluster whose emptiest node has the most GPUs left."""
    in_parts = part_of(request) is not None
    left = [(each, _most_left(each, wanted.resource, in_parts=in_parts)) for each in clusters]
    chosen, gpus = min(left, key=lambda each: (-_left(each[1]), each[0].cluster_id))
    resource = gpus.resource if gpus is not None else wanted.resource
    placement = ClusterPlacement(
        cluster_id=chosen.cluster_id,
        gpus=request.gpus,
        resource=resource,
        supply=gpus.supply if gpus is not None else GpuSupply.DEVICE_PLUGIN,
        message=f"{LEFT}: {why}",
        units=wanted.units,
        memory_units=wanted.memory_units,
        avoided_hostnames=(() if in_parts else avoided_hostnames(chosen.nodes.values(), resource)),
    )
    return Choice(placement=placement)


def _divided_words(request: GpuRequest, wanted: ClusterRequest, clusters: Iterable[Cluster]) -> str:
    nodes = (
        node
        for cluster in clusters
        for node in cluster.nodes.values()
        if suits(node, request, wanted)
    )
    return divided_words(nodes, wanted.resource, in_parts=part_of(request) is not None)


def _is_named(cluster: Cluster, request: GpuRequest, wanted: ClusterRequest) -> bool:
    return wanted.cluster_id in (None, cluster.cluster_id) and (
        not request.node_ids or cluster.cluster_id in request.node_ids
    )


def _unusable(named: Sequence[Cluster], wanted: ClusterRequest) -> tuple[Reason, ...]:
    if named:
        return tuple(each.blocked for each in named if each.blocked is not None)
    which = f"cluster {wanted.cluster_id}" if wanted.cluster_id else "a Kubernetes cluster"
    return (
        Reason(
            code=ReasonCode.AWAITING_CLUSTER,
            message=f"waits for a view of {which}: none has been heard of",
            node_id=wanted.cluster_id,
        ),
    )


def _most_left(cluster: Cluster, resource: str | None, *, in_parts: bool) -> NodeGpus | None:
    found = (
        gpus_of(node, resource, in_parts=in_parts)
        for node in cluster.nodes.values()
        if takes_pods(node)
    )
    return max((gpus for gpus in found if gpus is not None), key=_left, default=None)


def _left(gpus: NodeGpus | None) -> int:
    return gpus.allocatable - gpus.requested if gpus is not None else -1


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
    )


def _idle_gpus(count: int) -> str:
    return "an idle GPU" if count == 1 else f"{count} idle GPUs"
