import asyncio
import json
import os
import ssl
import uuid
from pathlib import Path

import msgspec
import nats

LOGIN = json.loads(Path(os.environ["GPUSTEWARD_NATS_CREDENTIALS"]).read_text())
if authority := LOGIN.pop("ca", None):
    LOGIN |= {"tls": ssl.create_default_context(cadata=authority), "tls_handshake_first": True}


async def main() -> None:
    bus = await nats.connect(os.environ["GPUSTEWARD_NATS_URL"].split(","), **LOGIN)
    ids = {"command_id": str(uuid.uuid4()), "reservation_id": str(uuid.uuid4())}
    events = await bus.subscribe(f"gpusteward.evt.scheduler.*.{ids['reservation_id']}")
    command = {"type": "scheduler.request_reservation", **ids, "request": {"gpus": 1}}
    subject = "gpusteward.cmd.scheduler.request_reservation.default"  # the namespace
    reply = await bus.request(subject, msgspec.msgpack.encode(command), timeout=5)
    print(msgspec.msgpack.decode(reply.data)["type"])
    event = {"type": "scheduler.reservation_queued"}
    while event["type"] == "scheduler.reservation_queued":
        event = msgspec.msgpack.decode((await events.next_msg(timeout=300)).data)
        print(event["type"], [device["uuid"] for device in event.get("devices", [])])
    await bus.close()


asyncio.run(main())
