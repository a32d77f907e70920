"""Puts a cluster's adapter together."""

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from services.cluster.domain.cluster_state import ClusterState, Counted
from services.cluster.handlers import build_routes
from services.cluster.pod_index import PodIndex
from services.cluster.publisher import ViewPublisher
from services.cluster.settings import ClusterSettings, listed
from services.cluster.watching import ClusterWatch
from shared.ids import node_token
from shared.kubernetes.access import ClusterAccess
from shared.kubernetes.client import KubernetesClient
from shared.labels import RESERVATION_LABEL, written_id
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
    counted = Counted(listed(settings.resources), frozenset(listed(settings.drivers)))
    state = ClusterState(counted, _reservation_of, node_token)
    pods = PodIndex(_pairs(settings), settings.exporter_port, settings.installation_id)
    publisher = ViewPublisher(bus, settings.node_id, state)
    watch = ClusterWatch(
        client,
        state,
        pods,
        heartbeat_seconds=settings.heartbeat_seconds,
        on_change=publisher.changed,
    )
    return Service(
        "cluster",
        bus=bus,
        routes=build_routes(publisher, watch, settings.node_id),
        loops={"watch": watch.run, "publish": partial(publisher.run, watch)},
        stop=client.close,
    )


def _reservation_of(labels: Mapping[str, str]) -> UUID | None:
    return written_id(labels.get(RESERVATION_LABEL))


def _pairs(settings: ClusterSettings) -> list[tuple[str, str]]:
    pairs = [each.partition("=") for each in listed(settings.exporter_labels)]
    if any(not equals or not key for key, equals, _ in pairs):
        raise SettingsError(
            f"{variable_of('exporter_labels', 'cluster')}: expected KEY=VALUE[,KEY=VALUE...], "
            f"found {settings.exporter_labels!r}"
        )
    return [(key, value) for key, _, value in pairs]
