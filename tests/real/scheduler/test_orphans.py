"""A real executor and the scheduler: what a reservation left behind is found and ended."""

import os
import subprocess
from pathlib import Path

from schemas.scheduler.drifts import DriftDetected, DriftKind, DriftResolved
from schemas.scheduler.reservations import ReservationGranted
from services.executor.app import create_service
from shared.testing import eventually
from tests.real.scheduler.test_drift import QUICK
from tests.support.worlds.executor import make_settings
from tests.support.worlds.scheduler import accepted, scheduler, world


async def test_outliving_process_is_found_and_ended(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    settings = make_settings(nats_url, tmp_path, node_id="alpha")
    async with (
        scheduler(nats_url, postgres_dsn, **QUICK),
        create_service(settings).running(),
        world(nats_url) as steward,
    ):
        await steward.add_node("alpha", 2, executor=False, interval_seconds=0.2)
        over = await steward.granted(await steward.request())
        live = await steward.granted(await steward.request())
        with (
            _labelled(over, settings.installation_id) as left_behind,
            _labelled(live, settings.installation_id) as wanted,
        ):
            accepted(await steward.release(over))

            orphan = await steward.event(DriftDetected)
            await eventually(lambda: left_behind.poll() is not None, what="it to be ended")
            await steward.event(DriftResolved)

            assert (orphan.drift, orphan.reservation_id) == (
                DriftKind.ORPHAN_WORKLOAD,
                over.reservation_id,
            )
            assert orphan.pids == (left_behind.pid,)
            assert wanted.poll() is None
            wanted.kill()


def _labelled(granted: ReservationGranted, installation_id: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sleep", "60"],
        env={
            "PATH": os.defpath,
            "GPUSTEWARD_RESERVATION": str(granted.reservation_id),
            "GPUSTEWARD_EPOCH": str(granted.epoch),
            "GPUSTEWARD_INSTALLATION": installation_id,
        },
    )
