"""Puts a telemetry agent together."""

import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from services.telemetry import memory
from services.telemetry.agent import Agent
from services.telemetry.clock import NodeClock
from services.telemetry.counters import Counters
from services.telemetry.device_monitor import DeviceMonitor
from services.telemetry.disk_watch import watch_disk
from services.telemetry.domain.holdings import Holdings
from services.telemetry.domain.labels import parse_labels
from services.telemetry.event_publisher import EventPublisher, read_host_facts
from services.telemetry.handlers import Handlers, build_routes
from services.telemetry.kubernetes.cuda_labels import CudaLabels
from services.telemetry.kubernetes.pod_facts import PodFactsSource
from services.telemetry.kubernetes.resource_slices import ClusterApi, ResourceSlices
from services.telemetry.metrics.exporter import AgentMetrics
from services.telemetry.metrics.server import MetricsServer
from services.telemetry.mig.changes import MigChanges
from services.telemetry.mig.records import MigRecords
from services.telemetry.mps.control import MpsControl
from services.telemetry.mps.daemons import MpsDaemons
from services.telemetry.pods import PodTracker
from services.telemetry.power.journal import PowerJournal
from services.telemetry.power.limits import PowerLimits
from services.telemetry.reservations import ReservationTracker
from services.telemetry.settings import TelemetrySettings
from services.telemetry.sources.selection import select_source
from shared.gpu.shares import MPS_LABEL, MPS_OF_EACH_GPU, MPS_OF_HOST
from shared.lifecycle import give_back_memory
from shared.messaging.bus import Bus, Route
from shared.mps import daemon_listens
from shared.service import Service, Step
from shared.settings import SettingsError, load_settings, variable_of
from shared.tls.contexts import CertificateUnusable
from shared.tls.reloading import ReloadingCertificate, load_certificate

MPS_SETTLE_INVENTORIES: Final = 3  # by then the scheduler has the label that a stop takes away

Loops = dict[str, Callable[[], Awaitable[None]]]


class TelemetryService(Service):
    """The agent's lifecycle. `metrics` is None where the settings serve none."""

    def __init__(
        self,
        bus: Bus,
        agent: Agent,
        reservations: ReservationTracker,
        power: PowerLimits,
        *,
        metrics: MetricsServer | None,
        routes: list[Route],
        loops: Loops,
        on_new_stream: Step,
    ) -> None:
        super().__init__(
            "telemetry",
            bus=bus,
            routes=routes,
            loops=loops,
            start=self._open,
            ready=self._wait_ready,
            stop=self._close,
            on_new_stream=on_new_stream,
        )
        self.metrics = metrics
        self._agent = agent
        self._reservations = reservations
        self._power = power

    async def _open(self) -> None:
        await self._reservations.subscribe()
        self._agent.start()

    async def _wait_ready(self) -> None:
        await self._agent.wait_ready()
        give_back_memory()
        memory.freeze()

    async def _close(self) -> None:
        # Power limits are restored through the driver, so before the agent closes it.
        await self._power.stop()
        await self._agent.stop()


def create_service(settings: TelemetrySettings | None = None) -> TelemetryService:
    """The service, closed; `run` or `running` opens it.

    Raises SettingsError for a bad fleet or bad labels.
    """
    settings = settings or load_settings(TelemetrySettings, "telemetry")
    bus = Bus.from_settings("telemetry", settings)
    holdings, counters = Holdings(), Counters()
    publisher = EventPublisher(
        bus,
        NodeClock(),
        node_id=settings.node_id,
        interval_seconds=settings.interval_seconds,
        host=read_host_facts(),
        labels=node_labels(settings, lambda: mps.all_listen),
    )
    selection = select_source(settings, holdings)
    journals = Path(settings.data_dir) / "telemetry"
    mig_records = MigRecords(
        journals / f"{settings.node_id}.mig.json", is_allowed=settings.mig_instances
    )
    devices = DeviceMonitor(
        selection,
        publisher,
        counters,
        interval_seconds=settings.interval_seconds,
        inventory_seconds=settings.inventory_seconds,
        observe=mig_records.observe,
    )
    reservations = ReservationTracker(bus, settings.node_id, holdings, settings.inventory_seconds)
    api = ClusterApi() if settings.kubernetes_node else None
    pods = PodTracker(
        Path(settings.pod_resources_socket),
        ResourceSlices(api, settings.kubernetes_node),
        PodFactsSource(api, settings.kubernetes_node),
        lambda: devices.facts,
    )
    agent = Agent(
        devices,
        publisher,
        bus,
        counters,
        interval_seconds=settings.interval_seconds,
        on_released=reservations.end,
        with_pods=pods.with_pods,
    )
    mps = MpsDaemons(
        MpsControl(settings.mps_control_path, settings.mps_pipe_dir, journals / "mps"),
        is_wanted=settings.mps_daemons,
        settle_seconds=MPS_SETTLE_INVENTORIES * settings.inventory_seconds,
        holdings=holdings,
        facts=lambda: devices.facts,
        fresh=lambda: agent.fresh,
    )
    power = PowerLimits(
        agent,
        publisher,
        PowerJournal(journals / f"{settings.node_id}.power.json"),
        require_holder=reservations.require_holder,
        has_ended=holdings.has_ended,
    )
    mig = MigChanges(agent, mig_records, holdings, fresh=lambda: agent.fresh)
    reservations.on_end.append(power.reservation_ended)
    loops: Loops = {
        "ticks": agent.run,
        "events": publisher.run,
        "reservations": reservations.reconcile,
        "pods": pods.run,
        "power_limits": power.run,
        "mps": mps.run,
        "memory": memory.collect_garbage,
        "disk": partial(watch_disk, Path(settings.data_dir), publisher),
    }
    if settings.kubernetes_node and settings.kubernetes_cuda_labels:
        labels = CudaLabels(
            ClusterApi(), settings.kubernetes_node, lambda: devices.cuda_driver_version
        )
        loops["cuda_labels"] = labels.run
    metrics = None
    if settings.metrics:
        text = AgentMetrics(agent, publisher, holdings, counters).text
        names = (socket.gethostname(), *settings.metrics_allowed_hosts.split(","))
        certificate = _metrics_certificate(settings)
        metrics = MetricsServer(
            settings.metrics_host, settings.metrics_port, text, names, certificate
        )
        loops["metrics"] = metrics.run
        if certificate is not None:
            loops["metrics_certificate"] = certificate.run
    return TelemetryService(
        bus,
        agent,
        reservations,
        power,
        metrics=metrics,
        routes=build_routes(Handlers(agent, power, mig), settings.node_id),
        loops=loops,
        on_new_stream=devices.repeat_inventory,
    )


def _metrics_certificate(settings: TelemetrySettings) -> ReloadingCertificate | None:
    if settings.metrics_cert is None:
        return None
    try:
        return load_certificate(settings.metrics_cert, settings.metrics_key)
    except CertificateUnusable as error:
        raise SettingsError(f"{variable_of('metrics_cert', 'telemetry')}: {error}") from error


def node_labels(
    settings: TelemetrySettings, has_mps: Callable[[], bool] = lambda: False
) -> Callable[[], dict[str, str]]:
    """Return a function that reads the labels: those of the settings, and what the host shows at
    the moment.
    """
    try:
        configured = parse_labels(settings.labels)
    except ValueError as error:
        raise SettingsError(f"{variable_of('labels', 'telemetry')}: {error}") from error

    def labels() -> dict[str, str]:
        if daemon_listens(settings.mps_pipe_dir):
            return {MPS_LABEL: MPS_OF_HOST, **configured}
        return {**({MPS_LABEL: MPS_OF_EACH_GPU} if has_mps() else {}), **configured}

    return labels
