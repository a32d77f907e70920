"""Taking GPUs out of service and back, from the command to the scheduler."""

import hashlib
import json
from pathlib import Path
from typing import Any

from schemas.scheduler.devices import Cordon, DeviceState, Drain, Uncordon
from schemas.scheduler.drifts import DriftAction, DriftKind
from schemas.scheduler.nodes import AdmitNode, LabelNode, RemoveNode
from schemas.scheduler.views import DriftList, ListDrifts
from services.cli.commands.operations.maintenance import DONE, MEANINGS, NEXT
from services.cli.request_options import user_name
from shared.ids import new_id
from tests.support.fakes.gateway import stub_gateway
from tests.support.processes.command_line import Command
from tests.support.worlds.gateway import gateway
from tests.support.worlds.gateway_views import make_drift, make_gpu, make_reservation


async def test_only_admin_cordons_and_uncordons_devices(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    roles = {"a": "admin", "s": "submitter"}
    tokens = [
        {"token_sha256": hashlib.sha256(token.encode()).hexdigest(), "role": role}
        for token, role in roles.items()
    ]
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(tokens))

    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as api:
        for command in (Cordon, Uncordon, Drain, LabelNode, AdmitNode, RemoveNode):
            await api.owners.accept(command)
        await api.owners.answer(ListDrifts, DriftList(drifts=(make_drift(),)))

        async def status(what: str, token: str, body: dict[str, Any]) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return (await api.post(f"/api/v1/nodes/alpha/{what}", body, headers=headers))[0]

        assert await status("cordon", "s", {}) == 403
        assert await status("drain", "s", {}) == 403
        assert await status("uncordon", "s", {}) == 403
        assert api.owners.received == []
        assert await status("cordon", "a", {"device_uuid": "GPU-0", "set_by": "eve"}) == 200
        assert await status("uncordon", "a", {"confirm_stopped": True}) == 200
        assert await status("drain", "a", {"reason": "moves"}) == 200
        assert await status("cordon", "a", {"device": "GPU-0"}) == 400
        assert await status("labels", "s", {"labels": {"zone": "a"}}) == 403
        assert await status("labels", "a", {"labels": {"zo ne": "a"}}) == 400
        assert await status("labels", "a", {"labels": {"zone": "a", "old": None}}) == 200
        assert await status("admit", "s", {}) == 403
        assert await status("admit", "a", {}) == 200
        for token, asked_for in (("s", "alpha"), ("a", "alpha?end_held=true&reason=sold")):
            found = await api.call(
                "DELETE", f"/api/v1/nodes/{asked_for}", headers={"Authorization": f"Bearer {token}"}
            )
            assert found[0] == (200 if token == "a" else 403)
        cordoned, back, drained, labelled, admitted, removed = api.owners.received
        _, listed = await api.get(
            "/api/v1/drifts?node_id=alpha&ended=true", headers={"Authorization": "Bearer s"}
        )
        asked = api.owners.received[-1]

    assert isinstance(cordoned, Cordon)
    assert (cordoned.node_id, cordoned.device_uuid, cordoned.set_by) == ("alpha", "GPU-0", "eve")
    assert isinstance(back, Uncordon)
    assert (back.device_uuid, back.confirm_stopped) == (None, True)
    assert isinstance(drained, Drain)
    assert drained.reason == "moves"
    assert asked == ListDrifts(node_id="alpha", ended=True, limit=1000)
    assert isinstance(removed, RemoveNode)
    assert (removed.node_id, removed.end_held, removed.reason) == ("alpha", True, "sold")
    assert isinstance(labelled, LabelNode)
    assert isinstance(admitted, AdmitNode)
    assert labelled.labels == {"zone": "a", "old": None}
    assert [drift["drift"] for drift in listed["drifts"]] == ["squatter"]


async def test_drift_is_listed_and_gpu_named_by_index(
    tmp_path: Path,
) -> None:
    async with stub_gateway() as (stub, url):
        command = Command(stub, url, tmp_path)
        stub.drifts = [make_drift()]

        cordoned = await command("cordon", "alpha/1", "--reason", "hot")
        back = await command("uncordon", "alpha", "--confirm-stopped")
        unknown = await command("cordon", "alpha/9")
        listed = await command("drift")
        changes = stub.calls_of("POST")

    assert (cordoned.code, back.code) == (0, 0)
    assert changes == [
        (
            "POST",
            "/api/v1/nodes/alpha/cordon",
            {"device_uuid": "GPU-1", "reason": "hot", "set_by": user_name()},
        ),
        (
            "POST",
            "/api/v1/nodes/alpha/uncordon",
            {"device_uuid": None, "confirm_stopped": True, "reason": ""},
        ),
    ]
    assert "no GPU 9" in unknown.err
    assert "squatter" in listed.out
    assert "alpha/GPU-1" in listed.out
    assert "4711" in listed.out
    assert "next: end it" in listed.out


async def test_node_removal_asks_only_if_gpus_are_held(
    tmp_path: Path,
) -> None:
    async with stub_gateway() as (stub, url):
        command = Command(stub, url, tmp_path)

        empty = await command("node", "remove", "alpha", "--reason", "sold")
        stub.gpus = [
            make_gpu(3, state=DeviceState.HELD, reservation_id=new_id(), holder="exec/alice")
        ]
        asked = await command("node", "remove", "alpha")
        confirmed = await command("node", "remove", "alpha", "--yes")
        removals = [path for _, path, _ in stub.calls_of("DELETE")]

    assert (empty.code, asked.code, confirmed.code) == (0, 2, 0)
    assert "GPU 3 is held: exec/alice" in asked.err
    assert "--yes" in asked.err
    assert removals == [
        "/api/v1/nodes/alpha?end_held=false&reason=sold",
        "/api/v1/nodes/alpha?end_held=true",
    ]


async def test_drain_previews_and_ends_only_if_told(tmp_path: Path) -> None:
    async with stub_gateway() as (stub, url):
        command = Command(stub, url, tmp_path)

        idle = await command("drain", "alpha", "--reason", "moves")
        stub.gpus = []
        held = make_reservation(holder="exec/carol")
        stub.reservations = {held.reservation_id: held}
        asked = await command("drain", "alpha")
        drained = await command("drain", "alpha", "--yes")
        drains = stub.calls_of("POST")

    assert (idle.code, asked.code, drained.code) == (0, 2, 0)
    assert "Draining alpha ends 1 reservation on 1 GPU: exec/carol" in asked.err
    assert "add --yes" in asked.err
    assert [body["reason"] for _, _, body in drains] == ["moves", ""]


async def test_labels_are_set_taken_away_and_printed(tmp_path: Path) -> None:
    async with stub_gateway() as (stub, url):
        command = Command(stub, url, tmp_path)

        changed = await command("node", "label", "alpha", "zone=a", "old-")
        printed = await command("node", "label", "alpha")
        changes = stub.calls_of("POST")

    assert changes == [
        ("POST", "/api/v1/nodes/alpha/labels", {"labels": {"zone": "a", "old": None}})
    ]
    assert changed.out == printed.out == "alpha: zone=a\n"


def test_every_drift_kind_has_meaning_and_action() -> None:
    assert set(MEANINGS) == set(NEXT) == set(DriftKind)
    assert set(DONE) == set(DriftAction)
