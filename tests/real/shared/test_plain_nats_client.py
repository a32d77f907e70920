"""The example of the API's page: a reservation by a plain NATS client, without our code."""

import asyncio
import sys

from schemas.scheduler.reservations import ReservationGranted, ReservationState
from shared.local_platform.bus_users import LOCAL_ADMIN
from shared.testing import NatsServer
from tests.support.paths import ROOT
from tests.support.worlds.scheduler import scheduler, world

EXAMPLE = ROOT / "schemas" / "examples" / "reserve_gpu.py"


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()

    assert f"```python\n{EXAMPLE.read_text()}```" in page


async def test_plain_nats_client_gets_a_reservation(
    nats_server: NatsServer, nats_url: str, postgres_dsn: str
) -> None:
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as steward:
        await steward.add_node("alpha", 1)

        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLE)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                "GPUSTEWARD_NATS_URL": nats_server.url,
                "GPUSTEWARD_NATS_CREDENTIALS": str(nats_server.users.path_of(LOCAL_ADMIN)),
            },
        )
        out, err = await process.communicate()
        (granted,) = steward.seen(ReservationGranted)
        view = await steward.view(granted.reservation_id)

    assert process.returncode == 0, err.decode()
    said = out.decode().splitlines()
    assert said[0] == "accepted"
    assert said[-1] == f"scheduler.reservation_granted ['{granted.devices[0].uuid}']"
    assert view.state is ReservationState.GRANTED
