"""Who asks is the person of the token, on a real Postgres and bus."""

from pathlib import Path
from typing import Any

from schemas.orchestrator.experiments import SubmitTask
from schemas.scheduler.reservations import RequestReservation
from schemas.scheduler.views import GetReservation
from tests.real.gateway.test_tokens import Caller, admins
from tests.support.worlds.gateway import TASK, gateway, make_reservation_view

ACCOUNT = "X-GPU-Steward-Account"


async def answer_reservations(caller: Caller) -> None:
    await caller.api.owners.accept(RequestReservation)
    await caller.api.owners.answer(
        GetReservation, lambda query: make_reservation_view(query.reservation_id)
    )


def requesters(caller: Caller) -> list[str]:
    return [
        message.requester
        for message in caller.api.owners.received
        if isinstance(message, RequestReservation | SubmitTask)
    ]


async def test_the_requester_is_the_name_of_the_token(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await answer_reservations(admin)
        ada = Caller(admin.api, (await admin.make("ada"))["secret"])

        reserved, _ = await ada.post("/api/v1/reservations", {"holder": "bob: training"})
        submitted, _ = await ada.post("/api/v1/tasks?requester=ada", TASK)
        _, me = await ada.get("/api/v1/me")

        assert (reserved, submitted) == (201, 201)
        assert requesters(admin) == ["ada", "ada"]
        assert me["person"] == "ada"


async def test_a_claim_to_be_somebody_else_is_refused(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await answer_reservations(admin)
        ada = Caller(admin.api, (await admin.make("ada"))["secret"])

        refused, problem = await ada.post("/api/v1/reservations", {"requester": "bob"})
        other, other_problem = await ada.post("/api/v1/tasks?requester=bob", TASK)

        assert (refused, other) == (403, 403)
        assert (problem["path"], other_problem["path"]) == ("$.requester", "query.requester")
        assert other_problem["detail"] == (
            "expected no requester or ada, found bob; only an admin asks for somebody else"
        )
        assert requesters(admin) == []


async def test_admin_requests_for_others_or_as_account(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await answer_reservations(admin)
        admin.headers[ACCOUNT] = "j%C3%BCrgen"

        await admin.post("/api/v1/reservations", {})
        await admin.post("/api/v1/reservations", {"requester": "bob"})

        assert requesters(admin) == ["jürgen", "bob"]


async def test_account_is_ignored_below_admin(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await answer_reservations(admin)
        ada = Caller(admin.api, (await admin.make("ada"))["secret"])
        ada.headers[ACCOUNT] = "bob"

        await ada.post("/api/v1/reservations", {})

        assert requesters(admin) == ["ada"]


async def test_without_tokens_account_is_the_requester(nats_url: str, postgres_dsn: str) -> None:
    async with gateway(nats_url, postgres_dsn) as api:
        caller = Caller(api, "")
        await answer_reservations(caller)

        async def ask(headers: dict[str, Any]) -> None:
            await api.post("/api/v1/reservations", {}, headers=headers)

        await ask({ACCOUNT: "ada"})
        await ask({ACCOUNT: "ada%0Aroot"})
        await ask({})

        assert requesters(caller) == ["ada", "", ""]
