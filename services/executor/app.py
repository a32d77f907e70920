"""How the executor is put together."""

from services.executor.executor import Executor
from services.executor.handlers import Handlers, build_routes
from services.executor.host.local_executors import LocalExecutorRegistry
from services.executor.journal.journal import Journal
from services.executor.journal.outbox import Outbox
from services.executor.preparations import Preparations
from services.executor.runtimes.host import cluster_runtimes, host_runtimes
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.settings import ExecutorSettings
from services.executor.workloads import Workloads
from shared.messaging.bus import Bus
from shared.service import Service
from shared.settings import load_settings


def create_service(settings: ExecutorSettings | None = None) -> Service:
    """The executor of this node or cluster, from the environment unless settings are given."""
    settings = settings or load_settings(ExecutorSettings, "executor")
    bus = Bus.from_settings("executor", settings)
    journal = Journal(settings.home / "journal.db")
    outbox = Outbox(journal=journal, bus=bus)
    cluster = Cluster(settings) if settings.cluster else None
    executor = Executor(
        settings=settings,
        bus=bus,
        journal=journal,
        outbox=outbox,
        workloads=Workloads(
            node_id=settings.node_id,
            local_executors=LocalExecutorRegistry(settings.installation_id),
            runtimes=(
                host_runtimes(settings, journal)
                if cluster is None
                else cluster_runtimes(settings, cluster, journal)
            ),
            journal=journal,
            bus=bus,
        ),
        start_loop=lambda name, loop: service.background.start(name, loop),
    )

    preparations = Preparations(
        settings=settings,
        bus=bus,
        runtimes=executor.workloads.runtimes,
        phases=executor.phases,
    )
    prepares = settings.prepare_waiting != "never" and not settings.cluster

    async def shut_down() -> None:
        await executor.shut_down()
        if cluster is not None:
            await cluster.close()

    service = Service(
        "executor",
        bus=bus,
        routes=build_routes(Handlers(executor)),
        loops={
            "prune": executor.prune,
            "reconcile": executor.reconcile,
            "send_events": outbox.send_events,
            "send_releases": outbox.send_releases,
            "report": executor.report,
            **({"prepare": preparations.run} if prepares else {}),
        },
        start=executor.recover,
        stop=shut_down,
        on_stream_seen=executor.stream_seen,
        on_new_stream=executor.request_report,
    )
    return service
