"""The query that a cluster's adapter answers."""

from schemas.cluster.nodes import ClusterView, GetCluster
from services.cluster.publisher import ViewPublisher
from services.cluster.watching import ClusterWatch
from shared.messaging.bus import Route, query_route


def build_routes(publisher: ViewPublisher, watch: ClusterWatch, cluster_id: str) -> list[Route]:
    async def get_cluster(query: GetCluster) -> ClusterView:
        return publisher.view(query, watch.kubernetes_version)

    return [query_route(get_cluster, GetCluster, key=cluster_id)]
