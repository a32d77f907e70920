"""What the scheduler reads from the environment, as `GPUSTEWARD_SCHEDULER_<FIELD>`."""

from typing import Annotated, Final

from msgspec import Meta

from schemas.base import NodeId, Percent, PositiveInt, PositiveSeconds, Seconds
from schemas.gpus.gpu_request import WHOLE
from schemas.scheduler.idle import IDLE_GRACE_SECONDS, IDLE_WINDOW_SECONDS, IdleAction
from services.scheduler.domain.drift.detection import system_names
from services.scheduler.domain.drift.lifecycle import Limits
from services.scheduler.domain.idle import IdlePolicy, actions_by_namespace
from services.scheduler.domain.placement.placement import Weights
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.placement.shares import ShareRules, hundredths
from shared.nats_addresses import are_on_loopback
from shared.settings import CommonSettings

SYSTEM_PROCESSES: Final = (
    "Xorg,Xwayland,gnome-shell,kwin_wayland,nvidia-persistenced,nv-hostengine,dcgm-exporter,"
    "nvidia-cuda-mps-control,nvidia-cuda-mps-server"
)


class SchedulerSettings(CommonSettings, frozen=True, kw_only=True):
    """Timing and weights of the scheduler.

    A new node is granted on by itself if `admit_nodes` names it (separated by commas; `*` is
    every node); any other waits for `gpusteward node admit`. Unset, it is every node where the bus
    is on loopback, else none; `up` adds this machine's own.

    `leader_ttl_seconds` is how long no other decides after a leader fell silent. A fleet that is
    empty, or a node that has not reported its devices, rules nothing out for
    `inventory_grace_seconds`.

    What is reserved, runs and is used is compared every `reconcile_interval_seconds`. A
    disagreement is a drift after its `*_seconds`: a ghost is a reservation under which nothing runs
    for so long, and for a whole lease; an orphan runs without a live reservation; a squatter is a
    process under none; underuse is a held device below `idle_percent`; an agent is stale that sends
    nothing. The report of a stale agent stops no grants: three sampling intervals without a sample
    stop the grants. A node's clock may be `clock_skew_seconds` off the scheduler's.
    `stale_agent_seconds` is also how long a node has to be silent before it can be removed; while
    all of several nodes are, none is lost. A node that sends nothing at all for
    `node_lost_seconds` is lost. The cordon of a lost GPU or node lifts itself once it was well for
    `recovery_quiet_seconds`. Processes named in `system_processes`, separated by commas, never
    prevent the grant of a GPU. A GPU whose processes its source cannot list (rocm-smi,
    dcgm-exporter, WSL) is granted while at most `idle_memory_mb` of its memory are in use; an idle
    MI300X shows about 285.
    `aging_seconds` of waiting count as one point of priority, 0 turns that off; a preempted holder
    has `preemption_grace_seconds` to stop. Ended reservations stay for `retention_days`; of the
    decision log `decisions_kept` records, none longer than `decision_retention_days`.

    Where requests of several namespaces wait, what each has held counts, half as much after every
    `use_half_life_seconds`.

    With `density`, requests that `pack` go where they take the least from what the latest 10,000
    requests asked for, instead of to the fullest node.

    A reservation whose GPUs all stay below `idle_percent` for `idle_window_seconds`, and of whose
    experiment nothing runs, is reported as idle. If it stays so for `idle_grace_seconds` more,
    `idle_action` follows: `warn` is nothing, `preemptible` lets any request that waits have its
    GPUs, `release` ends it. `idle_actions` has other actions for namespaces:
    `research=release, ci=preemptible`.

    Shares of a GPU are requested in multiples of `share_quantum`, of which 1 is one. Namespaces
    named in `enforced_share_namespaces`, separated by commas (`*` is all), are granted only shares
    that something enforces.
    """

    admit_nodes: str | None = None
    leader_ttl_seconds: PositiveSeconds = 3.0
    inventory_grace_seconds: Seconds = 10.0
    snapshot_timeout_seconds: PositiveSeconds = 2.0
    memory_weight: float = 0.6
    utilization_weight: float = 0.4
    reconcile_interval_seconds: PositiveSeconds = 10.0
    ghost_seconds: Seconds = 300.0
    orphan_seconds: Seconds = 30.0
    squatter_seconds: Seconds = 10.0
    underuse_seconds: Seconds = 1800.0
    idle_percent: Percent = 5.0
    stale_agent_seconds: PositiveSeconds = 15.0
    clock_skew_seconds: PositiveSeconds = 60.0
    node_lost_seconds: PositiveSeconds = 120.0
    recovery_quiet_seconds: Seconds = 60.0
    system_processes: str = SYSTEM_PROCESSES
    idle_memory_mb: Annotated[int, Meta(ge=0)] = 300
    idle_window_seconds: PositiveSeconds = IDLE_WINDOW_SECONDS
    idle_grace_seconds: PositiveSeconds = IDLE_GRACE_SECONDS
    idle_action: IdleAction = IdleAction.WARN
    idle_actions: str = ""
    aging_seconds: Seconds = 60.0
    preemption: bool = True
    preemption_grace_seconds: Seconds = 30.0
    retention_days: PositiveSeconds = 30.0
    decision_retention_days: PositiveSeconds = 7.0
    decisions_kept: PositiveInt = 20_000
    use_half_life_seconds: PositiveSeconds = 3600.0
    density: bool = False
    share_quantum: Annotated[float, Meta(ge=0.01, le=1)] = 0.01
    enforced_share_namespaces: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        quantum = hundredths(self.share_quantum)
        if quantum is None or WHOLE % quantum:
            raise ValueError(
                f"expected a share_quantum of which 1 is one, got {self.share_quantum}"
            )
        actions_by_namespace(self.idle_actions)

    @property
    def share_rules(self) -> ShareRules:
        """The rules that requests for shares must meet."""
        namespaces = self.enforced_share_namespaces.split(",")
        return ShareRules(
            quantum=hundredths(self.share_quantum) or 1,
            enforced_namespaces=frozenset(name.strip() for name in namespaces if name.strip()),
        )

    @property
    def drift_limits(self) -> Limits:
        """The time that each kind of disagreement may last."""
        return Limits(
            ghost_seconds=self.ghost_seconds,
            orphan_seconds=self.orphan_seconds,
            squatter_seconds=self.squatter_seconds,
            underuse_seconds=self.underuse_seconds,
            stale_agent_seconds=self.stale_agent_seconds,
            clock_skew_seconds=self.clock_skew_seconds,
            idle_percent=self.idle_percent,
            system_processes=system_names(self.system_processes.split(",")),
        )

    @property
    def idle_policy(self) -> IdlePolicy:
        """The policy for reservations that nothing uses."""
        return IdlePolicy(
            window_seconds=self.idle_window_seconds,
            grace_seconds=self.idle_grace_seconds,
            idle_percent=self.idle_percent,
            action=self.idle_action,
            by_namespace=actions_by_namespace(self.idle_actions),
        )

    def admits(self, node_id: NodeId) -> bool:
        """Return True if a new node is granted on before an operator admits it."""
        if self.admit_nodes is None:
            return are_on_loopback(self.nats_url)
        node_ids = {name.strip() for name in self.admit_nodes.split(",")}
        return not node_ids.isdisjoint({"*", node_id})

    @property
    def policy(self) -> Policy:
        """The policy by which the engine decides."""
        return Policy(
            weights=Weights(memory=self.memory_weight, utilization=self.utilization_weight),
            aging_seconds=self.aging_seconds,
            preemption=self.preemption,
            preemption_grace_seconds=self.preemption_grace_seconds,
            share_quantum=self.share_rules.quantum,
            density=self.density,
            use_half_life_seconds=self.use_half_life_seconds,
        )
