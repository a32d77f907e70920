"""Puts a cluster's adapter together."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from uuid import UUID

from services.cluster.domain.cluster_state import ClusterState, GpuNames
from services.cluster.handlers import build_routes
from services.cluster.pod_index import PodIndex
from services.cluster.publisher import ViewPublisher
from services.cluster.readings.pod_http import PodPages
from services.cluster.readings.reader import (
    MAX_PAGE_BYTES,
    READ_SECONDS,
    ReadingsReader,
    page_through_api,
)
from services.cluster.settings import ClusterSettings, split_list
from services.cluster.standby import Standby
from services.cluster.vanished_file import NAME, load_vanished, save_vanished
from services.cluster.watching import ClusterWatch
from shared.ids import node_token
from shared.kubernetes.access import ClusterAccess, NoCluster, kubeconfig_files
from shared.kubernetes.client import KubernetesClient
from shared.labels import RESERVATION_LABEL, parse_id
from shared.messaging.bus import Bus
from shared.service import Service
from shared.settings import SettingsError, load_settings, variable_of


def create_service(settings: ClusterSettings | None = None) -> Service:
    """The adapter of one cluster. Raises SettingsError."""
    settings = settings or load_settings(ClusterSettings, "cluster")
    bus = Bus.from_settings("cluster", settings)
    client = KubernetesClient(
        ClusterAccess(kubeconfig=settings.kubeconfig, context=settings.kube_context)
    )
    counted = GpuNames(split_list(settings.resources), frozenset(split_list(settings.drivers)))
    state = ClusterState(counted, _reservation_of, node_token)
    pods = PodIndex(_pairs(settings), settings.exporter_port, settings.installation_id)
    publisher = ViewPublisher(bus, settings.node_id, state)
    vanished_path = Path(settings.data_dir) / NAME

    def on_change() -> None:
        save_vanished(vanished_path, state.vanished)
        publisher.mark_changed()

    watch = ClusterWatch(
        client,
        state,
        pods,
        heartbeat_seconds=settings.heartbeat_seconds,
        on_change=on_change,
    )
    pages = PodPages(timeout_seconds=READ_SECONDS, largest_bytes=MAX_PAGE_BYTES)
    reader = ReadingsReader(
        client,
        state,
        pods,
        fetch_page=pages.fetch if _goes_to_pods(settings) else partial(page_through_api, client),
        interval_seconds=settings.readings_seconds,
        may_exec=settings.exec_readings,
        on_change=publisher.mark_changed,
    )

    standby = Standby(bus, settings.node_id, publisher.boot_id)

    async def start() -> None:
        if settings.standby:
            await standby.wait()
        load_vanished(vanished_path, state.vanished)  # also what the other adapter has seen

    async def close() -> None:
        await service.background.stop()  # or they would connect anew
        await pages.close()
        await client.close()

    service = Service(
        "cluster",
        bus=bus,
        routes=build_routes(publisher, watch, settings.node_id),
        loops={
            "watch": watch.run,
            "publish": partial(publisher.run, watch),
            "readings": reader.run,
        },
        start=start,
        stop=close,
    )
    return service


def _goes_to_pods(settings: ClusterSettings) -> bool:
    if settings.exporter_route != "auto":
        return settings.exporter_route == "pod"
    try:
        return kubeconfig_files(settings.kubeconfig) is None
    except NoCluster:  # which is what the watches will say
        return False


def _reservation_of(labels: Mapping[str, str]) -> UUID | None:
    return parse_id(labels.get(RESERVATION_LABEL))


def _pairs(settings: ClusterSettings) -> list[tuple[str, str]]:
    pairs = [label.partition("=") for label in split_list(settings.exporter_labels)]
    if any(not equals or not key for key, equals, _ in pairs):
        raise SettingsError(
            f"{variable_of('exporter_labels', 'cluster')}: expected KEY=VALUE[,KEY=VALUE...], "
            f"found {settings.exporter_labels!r}"
        )
    return [(key, value) for key, _, value in pairs]
