"""Who may send and receive what on the bus: the one table of which every server's users are made.

A service owns what its messages' tags name: it publishes these events, and receives these commands
and queries. `RULES` lists who else takes part. A user's name states its role: `scheduler`,
`node_<id>`, `viewer_<name>`, `submitter_<namespace>_<name>`, `admin_<name>`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from schemas.audit import CommandRecorded
from schemas.backlog import GetBacklog
from schemas.base import (
    PREFIX,
    Command,
    Event,
    Kind,
    Live,
    Message,
    Sample,
    pattern_for,
    sender_subject,
    tag_of,
)
from schemas.catalog import MESSAGES
from schemas.cluster.node_selection import GetClusterStatus, GetNodeSummaries, SelectNode
from schemas.cluster.nodes import ClusterChanged, GetCluster
from schemas.executor.attempts import (
    AttemptEvent,
    AttemptProgressed,
    CancelExperiment,
    ExecutorReported,
    FenceReservation,
    StartExperiment,
)
from schemas.executor.engine_samples import EngineSampled
from schemas.executor.logs import AttemptLogged, ReadLog
from schemas.executor.ranks import GetRank, StartRank
from schemas.executor.running import ListRunning
from schemas.executor.servers import AskServer, ListServedModels
from schemas.gateway.datasets import GetDatasetPiece
from schemas.gateway.views import CustomEvent
from schemas.gpus.available_gpus import ListAvailableGpus
from schemas.gpus.mig import ChangeMig
from schemas.orchestrator.deletion import DeleteExperiment, DeleteTask
from schemas.orchestrator.experiments import (
    CancelTask,
    ExperimentEvent,
    PauseTask,
    ResumeTask,
    StartsWaiting,
    SubmitTask,
    TaskEvent,
)
from schemas.orchestrator.leaders import ListLeaders
from schemas.orchestrator.presets import (
    DeletePreset,
    GetPreset,
    ListPresets,
    MergePresets,
    PresetEvent,
    SavePresets,
)
from schemas.orchestrator.secrets import (
    ListSecrets,
    OpenSecrets,
    RemoveSecret,
    RotateSecretKey,
    SetSecret,
)
from schemas.orchestrator.uploads import ListUploadUses
from schemas.orchestrator.views import (
    GetExperiment,
    GetTask,
    ListExperiments,
    ListTasks,
    ValidateTask,
)
from schemas.results.engine_metrics import GetEngineSeries, ListEngineSamples
from schemas.results.measurements import (
    ExperimentSummarized,
    GetMemoryTrend,
    GetReport,
    GetRequests,
    GetSummary,
    ListSamples,
    ListSummaries,
)
from schemas.results.prices import GetGpuPrices
from schemas.results.reports import GetIdle, GetWaterfall, ReportQuery
from schemas.results.series import GetSeries, ListPods
from schemas.scheduler.devices import Cordon, DeviceEvent, Drain, Uncordon
from schemas.scheduler.drifts import DriftEvent
from schemas.scheduler.idle import ExemptReservation
from schemas.scheduler.namespaces import ListNamespaces, NamespaceSet, SetNamespace
from schemas.scheduler.nodes import AdmitNode, LabelNode, NodeEvent, RemoveNode
from schemas.scheduler.policy import TryPolicy
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationEnded,
    ReservationEvent,
    ReservationGranted,
)
from schemas.scheduler.views import (
    EstimateRequirements,
    ExplainReservation,
    GetAllocationMap,
    GetAvailability,
    GetReservation,
    ListDecisions,
    ListDrifts,
    ListReservations,
    ReplayDecisions,
    WhatIf,
)
from schemas.telemetry.monitoring import GetAgent, GetGpu, StartMonitoring, StopMonitoring
from schemas.telemetry.readings import (
    GetSnapshot,
    GpuSampled,
    HealthChanged,
    InventoryReported,
    SetBurst,
    SetPowerLimit,
)
from shared.messaging.stream_names import ENGINE_SAMPLES, EVENTS, NAMES, SAMPLES
from shared.messaging.user_names import SERVICES, BusUser, Role, bus_user


class Permissions(Struct, frozen=True):
    """Subjects, as a NATS server takes them. `answers`: also to the inbox of who requested."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool


_SCHEDULER, _ORCHESTRATOR, _NODE = {Role.SCHEDULER}, {Role.ORCHESTRATOR}, {Role.NODE}
_PEOPLE: Final = {Role.VIEWER, Role.SUBMITTER, Role.ADMIN}
_SIGNED: Final = frozenset({Role.SCHEDULER, Role.ORCHESTRATOR})
_READERS: Final = _PEOPLE | {Role.GATEWAY}
_CHANGERS: Final = {Role.GATEWAY, Role.SUBMITTER, Role.ADMIN}
_ADMINS: Final = {Role.GATEWAY, Role.ADMIN}

# Beside its owner: who sends a command or a query, who receives an event or a view in passing.
# Events that are alike have the rule of their base class.
RULES: Final[Mapping[type[Message], set[Role]]] = {
    RequestReservation: _CHANGERS | _ORCHESTRATOR,
    RenewReservation: _CHANGERS | _ORCHESTRATOR | _NODE,
    ReleaseReservation: _CHANGERS | _ORCHESTRATOR | _NODE,
    CancelReservation: _CHANGERS | _ORCHESTRATOR,
    ExemptReservation: _CHANGERS,
    Cordon: _ADMINS,
    Uncordon: _ADMINS,
    Drain: _ADMINS,
    LabelNode: _ADMINS,
    AdmitNode: _ADMINS,
    RemoveNode: _ADMINS,
    SetNamespace: _ADMINS,
    SubmitTask: _CHANGERS,
    CancelTask: _CHANGERS,
    PauseTask: _CHANGERS,
    ResumeTask: _CHANGERS,
    DeleteTask: _CHANGERS,
    DeleteExperiment: _CHANGERS,
    SavePresets: _CHANGERS,
    DeletePreset: _CHANGERS,
    # Over HTTP alone: what is sent there is audited, and in no command that anybody keeps.
    **{sent: {Role.GATEWAY} for sent in (SetSecret, RemoveSecret, RotateSecretKey, ListUploadUses)},
    OpenSecrets: _NODE,
    GetDatasetPiece: _NODE,
    StartExperiment: _ORCHESTRATOR | _NODE,
    CancelExperiment: _ORCHESTRATOR | _NODE,
    StartRank: _NODE,
    FenceReservation: _SCHEDULER,
    SetBurst: _CHANGERS | {Role.RESULTS},
    SetPowerLimit: _ADMINS | _NODE,
    ChangeMig: _SCHEDULER,
    AskServer: _CHANGERS,
    ListServedModels: _CHANGERS,
    StartMonitoring: _CHANGERS,
    StopMonitoring: _CHANGERS,
    GetReservation: _READERS | _ORCHESTRATOR | _NODE,
    ListReservations: _READERS | _NODE,
    ExplainReservation: _READERS | _ORCHESTRATOR,
    GetAvailability: _READERS | _ORCHESTRATOR,
    **dict.fromkeys(
        (
            WhatIf,
            EstimateRequirements,
            GetAllocationMap,
            GetClusterStatus,
            GetNodeSummaries,
            SelectNode,
            ListDrifts,
            ListDecisions,
            ReplayDecisions,
            TryPolicy,
            ListAvailableGpus,
            GetTask,
            ListTasks,
            GetExperiment,
            ListExperiments,
            ListLeaders,
            ValidateTask,
            GetPreset,
            ListPresets,
            ListSecrets,
            MergePresets,
            ReadLog,
            GetEngineSeries,
            ListEngineSamples,
            ListSamples,
            ListSummaries,
            GetMemoryTrend,
            GetRequests,
            GetSeries,
            ListPods,
            GetReport,
            ReportQuery,
            GetIdle,
            GetWaterfall,
            GetAgent,
            GetGpu,
        ),
        _READERS,
    ),
    GetSummary: _READERS | _ORCHESTRATOR,
    GetGpuPrices: _READERS | _ORCHESTRATOR,
    ListNamespaces: _READERS | {Role.RESULTS},
    GetSnapshot: _READERS | _SCHEDULER | _ORCHESTRATOR,
    GetCluster: _READERS | _SCHEDULER,
    ClusterChanged: _READERS | _SCHEDULER | _NODE,
    ListRunning: _READERS | _SCHEDULER | _ORCHESTRATOR | _NODE,
    GetRank: _NODE,
    GetBacklog: _ADMINS,
    GpuSampled: _READERS | _SCHEDULER,
    EngineSampled: _READERS | _SCHEDULER,
    InventoryReported: _PEOPLE | _SCHEDULER | {Role.RESULTS},
    HealthChanged: _PEOPLE,
    ExecutorReported: _PEOPLE | _SCHEDULER,
    AttemptEvent: _PEOPLE,
    AttemptLogged: _READERS,
    AttemptProgressed: _READERS | _ORCHESTRATOR,
    ReservationEvent: _READERS,
    ReservationGranted: _READERS | _NODE,
    ReservationEnded: _READERS | _NODE,
    DeviceEvent: _PEOPLE,
    DriftEvent: _PEOPLE,
    NodeEvent: _PEOPLE,
    NamespaceSet: _PEOPLE,
    TaskEvent: _PEOPLE,
    CommandRecorded: _PEOPLE,
    PresetEvent: _PEOPLE,
    ExperimentEvent: _PEOPLE,
    StartsWaiting: _PEOPLE | _NODE,
    ExperimentSummarized: _PEOPLE,
    CustomEvent: _PEOPLE,
}
CONSUMERS: Final[Mapping[Role, Mapping[str, tuple[str, ...]]]] = {
    Role.SCHEDULER: {
        EVENTS: (
            "scheduler_record_inventory",
            "scheduler_record_health",
            "scheduler_record_executor",
        )
    },
    Role.ORCHESTRATOR: {
        EVENTS: (
            "orchestrator_on_granted",
            "orchestrator_on_ended",
            "orchestrator_on_attempt",
            "orchestrator_on_summarized",
            "orchestrator_on_reported",
        )
    },
    Role.RESULTS: {
        EVENTS: (
            "results_record_finished",
            "results_record_health",
            "results_record_inventory",
            "results_erase_deleted",
            "results_raise_sampling",
            "results_record_ledger",
        ),
        SAMPLES: ("results_store_samples",),
        ENGINE_SAMPLES: ("results_store_engine_samples",),
    },
    Role.GATEWAY: {EVENTS: ("gateway_event_log",)},
}
_NODE_SERVICES: Final = frozenset({"telemetry", "executor", "cluster"})
# A node queries itself alone, whether it is there twice, receives only what waits for it and what
# its other watcher tells, and limits the power of its own GPUs.
_OWN_NODE: Final = (ListRunning, StartsWaiting, SetPowerLimit, ClusterChanged)


def rule_of(message: type[Message]) -> set[Role]:
    """Raises LookupError for a message without a rule."""
    for cls in message.__mro__:
        if cls in RULES:
            return RULES[cls]
    raise LookupError(f"{tag_of(message)} has no rule: who takes part, beside its owner?")


def permissions_of(user: BusUser) -> Permissions:
    publish = [*_jetstream(user)]
    subscribe = [f"{inbox_of(user.name)}.>"]
    if user.role in _PEOPLE:
        # They receive every event, and subscribe by patterns of their own.
        subscribe += [f"{PREFIX}.{kind.value}.>" for kind in (Kind.EVENT, Kind.LIVE)]
    for message in MESSAGES:
        passes = issubclass(message, Event | Live | Sample)
        if owner_of(message) is user.role:
            (publish if passes else subscribe).append(_own(message, user))
            if is_signed(message):
                subscribe.append(sender_subject(_own(message, user), "*"))
        if user.role in rule_of(message) and not (passes and user.role in _PEOPLE):
            (subscribe if passes else publish).append(_others(message, user, passes=passes))
            if is_signed(message):
                publish.append(sender_subject(_others(message, user, passes=passes), user.name))
    answers = user.role in SERVICES or user.role is Role.NODE
    return Permissions(tuple(publish), tuple(subscribe), answers)


def is_signed(message: type[Message]) -> bool:
    """True if the subject may also tell the sender: commands that change what belongs to a
    person.
    """
    return issubclass(message, Command) and owner_of(message) in _SIGNED


def owner_of(message: type[Message]) -> Role:
    service = tag_of(message).partition(".")[0]
    return Role.NODE if service in _NODE_SERVICES else Role(service)


def inbox_of(name: str) -> str:
    """Return the subject of a user's own inbox."""
    return f"_INBOX.{name}"


def authorization(passwords: Mapping[str, str]) -> str:
    """The part of a NATS server's configuration that makes these users."""
    entries = (_entry(bus_user(name), passwords[name]) for name in sorted(passwords))
    users = "".join(f"    {entry}\n" for entry in entries)
    return f"authorization {{\n  users = [\n{users}  ]\n}}\n"


def _entry(user: BusUser, password: str) -> str:
    allowed = permissions_of(user)
    permissions: dict[str, object] = {
        "publish": {"allow": allowed.publish},
        "subscribe": {"allow": allowed.subscribe},
    }
    if allowed.answers:
        permissions["allow_responses"] = {"max": 1, "expires": "5m"}
    entry = {"user": user.name, "password": password, "permissions": permissions}
    return msgspec.json.encode(entry).decode()


def _own(message: type[Message], user: BusUser) -> str:
    """Return the subject on which the owner publishes or receives a message; a node only its
    own.
    """
    if message.speaker_field == "executor_id":
        return pattern_for(message, speaker=user.scope)
    return pattern_for(message, user.scope)


def _others(message: type[Message], user: BusUser, *, passes: bool) -> str:
    key = user.scope if user.role is Role.NODE and message in _OWN_NODE else None
    if passes or user.scope is None:
        return pattern_for(message, key)
    speaker = user.name if user.role is Role.NODE else user.scope
    return pattern_for(message, key, speaker=speaker)


def _jetstream(user: BusUser) -> Iterator[str]:
    """A node finds the streams and stores into them; services also make what they consume."""
    if user.role not in {*SERVICES, Role.NODE}:
        return
    for stream_name in NAMES:
        yield f"$JS.API.STREAM.INFO.{stream_name}"
        if user.role in SERVICES:
            yield f"$JS.API.STREAM.CREATE.{stream_name}"
        if user.role is Role.SCHEDULER:  # for their replicas: one owner is enough
            yield f"$JS.API.STREAM.UPDATE.{stream_name}"
        if user.role is Role.GATEWAY:  # for its metrics: how far behind every consumer is
            yield f"$JS.API.CONSUMER.LIST.{stream_name}"
    for stream_name, consumers in CONSUMERS.get(user.role, {}).items():
        for consumer in consumers:
            place = f"{stream_name}.{consumer}"
            for verb in ("DURABLE.CREATE", "CREATE", "INFO", "MSG.NEXT"):
                yield f"$JS.API.CONSUMER.{verb}.{place}"
            yield f"$JS.ACK.{place}.>"
