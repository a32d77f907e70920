"""Everything on the web page that changes something: where it stands, how it is begun, and what is
said once it is done.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from playwright.async_api import Locator, Page

from shared.testing import eventually
from tests.support.processes.platform import PlatformProcess, quick_task

NODE: Final = "gpu-01"
SECOND: Final = "gpu-02"

Names = Mapping[str, str]
Nodes = Mapping[str, AsyncExitStack]
Prepare = Callable[[PlatformProcess, Nodes], Awaitable[Names]]
Step = tuple[str, str, str]


def press(button: str) -> Step:
    return ("press", button, "")


def fill(label: str, text: str) -> Step:
    return ("fill", label, text)


async def nothing(_: PlatformProcess, __: Nodes) -> Names:
    return {}


@dataclass(frozen=True)
class Change:
    """Texts may name what `prepare` made, in braces. `opens` begins it: by a dialog, or a form that
    the place itself is where `opens` is empty.
    """

    name: str
    place: str
    confirm: str
    says: str
    opens: tuple[Step, ...] = ()
    steps: tuple[Step, ...] = ()
    prepare: Prepare = nothing
    # Made anew by a second try: the answer alone has what nobody can read again.
    has_secret_answer: bool = False
    # Where it is said; the list of changes, else.
    says_in: str = ""

    def filled_in(self, names: Names) -> "Change":
        def text(words: str) -> str:
            return words.format(**names)

        return Change(
            name=self.name,
            place=text(self.place),
            confirm=text(self.confirm),
            says=text(self.says),
            opens=tuple((kind, text(where), text(what)) for kind, where, what in self.opens),
            steps=tuple((kind, text(where), text(what)) for kind, where, what in self.steps),
            has_secret_answer=self.has_secret_answer,
            says_in=self.says_in,
        )

    async def begin(self, page: Page) -> Locator:
        """Do all that comes before it is sent; return the button that sends it."""
        await take(page.locator("body"), self.opens)
        scope = self.scope(page)
        await take(scope, self.steps)
        return scope.get_by_role("button", name=self.confirm, exact=True)

    def scope(self, page: Page) -> Locator:
        return page.get_by_role("dialog") if self.opens else page.locator("main")


async def take(scope: Locator, steps: tuple[Step, ...]) -> None:
    for kind, where, text in steps:
        if kind == "press":
            await scope.get_by_role("button", name=where, exact=True).click()
        else:
            field = scope.get_by_label(re.compile(rf"^{re.escape(where)}( \*)?$")).last
            await field.fill(text)


async def get(platform: PlatformProcess, path: str) -> Any:
    status, body = await platform.request("GET", f"/api/v1{path}")
    assert status == 200, body
    return body


async def post(platform: PlatformProcess, path: str, body: object) -> Any:
    status, answer = await platform.request("POST", f"/api/v1{path}", body)
    assert status < 300, answer
    return answer


async def has_secret(platform: PlatformProcess, _: Nodes) -> Names:
    await post(platform, "/secrets/OLD_TOKEN", {"value": "of no engine"})
    return {}


async def has_member(platform: PlatformProcess, _: Nodes) -> Names:
    await post(platform, "/namespaces/default/members", {"name": "marek", "role": "viewer"})
    return {}


async def has_token(platform: PlatformProcess, _: Nodes) -> Names:
    await post(platform, "/tokens", {"name": "old", "role": "viewer"})
    return {}


async def in_service(platform: PlatformProcess, _: Nodes) -> Names:
    await post(platform, f"/nodes/{NODE}/uncordon", {})
    gpus = (await get(platform, "/gpus"))["gpus"]
    return {"uuid": next(gpu["uuid"] for gpu in gpus if gpu["node_id"] == NODE)}


async def cordoned(platform: PlatformProcess, _: Nodes) -> Names:
    await post(platform, f"/nodes/{NODE}/cordon", {"reason": "new fan"})
    return {}


async def silent(platform: PlatformProcess, nodes: Nodes) -> Names:
    await release_all(platform)
    await nodes[SECOND].aclose()
    return {}


async def reserve(platform: PlatformProcess, holder: str, gpus: int) -> str:
    request = {"gpus": gpus, "node_ids": [NODE], "lease_ttl_seconds": 600}
    body = {"request": request, "holder": holder}
    return str((await post(platform, "/reservations", body))["reservation_id"])


async def holds(platform: PlatformProcess, nodes: Nodes) -> Names:
    await release_all(platform)
    await in_service(platform, nodes)
    reservation_id = await reserve(platform, "anna", 1)

    async def is_granted() -> bool:
        reservation = await get(platform, f"/reservations/{reservation_id}")
        return bool(reservation["state"] == "granted")

    await eventually(is_granted, within_seconds=30, what="a granted reservation")
    return {}


async def waits(platform: PlatformProcess, nodes: Nodes) -> Names:
    await holds(platform, nodes)
    return {"id": await reserve(platform, "yuki", 2)}


async def release_all(platform: PlatformProcess) -> None:
    states = "queued,granted,active"
    for each in (await get(platform, f"/reservations?state={states}"))["reservations"]:
        epoch = f"?epoch={each['epoch']}" if each["epoch"] else ""
        place = f"/api/v1/reservations/{each['reservation_id']}{epoch}"
        status, answer = await platform.request("DELETE", place)
        assert status == 200, answer


async def has_task(platform: PlatformProcess, nodes: Nodes) -> Names:
    """It waits for GPUs that others hold."""
    await release_all(platform)
    await in_service(platform, nodes)
    await reserve(platform, "all-of-it", 2)
    name = f"of-the-page-{uuid4().hex[:8]}"
    return {"task": await platform.submit(quick_task(name)), "task_name": name}


async def has_paused_task(platform: PlatformProcess, nodes: Nodes) -> Names:
    names = await has_task(platform, nodes)
    await post(platform, f"/tasks/{names['task']}/pause", {})
    return names


NODE_PLACE: Final = f"/nodes/{NODE}"
# In this order: what one leaves is what a later one needs.
CHANGES: Final = (
    Change(
        "set-secret",
        "/admin?tab=secrets",
        "Set",
        "Set: secret HF_TOKEN",
        opens=(press("Set a secret"),),
        steps=(fill("Name", "HF_TOKEN"), fill("Value", "planted")),
    ),
    Change(
        "remove-secret",
        "/admin?tab=secrets",
        "Remove",
        "Removed: secret OLD_TOKEN",
        opens=(press("Remove OLD_TOKEN"),),
        prepare=has_secret,
    ),
    Change(
        "set-member",
        "/admin?tab=members",
        "Set",
        "Member set: anna in default",
        opens=(press("Add member"),),
        steps=(fill("Name", "anna"),),
    ),
    Change(
        "remove-member",
        "/admin?tab=members",
        "Remove",
        "Member removed: marek from default",
        opens=(press("Remove marek"),),
        prepare=has_member,
    ),
    Change(
        "set-quota",
        "/admin?tab=namespaces",
        "Set",
        "Set: rules of vision",
        opens=(press("Set namespace rules"),),
        steps=(fill("Namespace", "vision"), fill("Limit", "4")),
    ),
    Change(
        "create-token",
        "/admin?tab=tokens",
        "Create token",
        "Created: token pipeline",
        opens=(press("Create token"),),
        steps=(fill("Name", "pipeline"),),
        has_secret_answer=True,
    ),
    Change(
        "revoke-token",
        "/admin?tab=tokens",
        "Revoke",
        "Revoked: token old",
        opens=(press("Revoke old"),),
        prepare=has_token,
    ),
    Change(
        "invite-server",
        "/",
        "Make the command",
        "gpusteward join",
        opens=(press("Add a server"),),
        steps=(fill("Name of the server", "gpu-09"),),
        has_secret_answer=True,
        says_in="dialog",
    ),
    Change(
        "admit-node",
        f"/nodes/{SECOND}",
        "Admit",
        f"Admitted: node {SECOND}",
        opens=(press("Admit"),),
    ),
    Change(
        "label-node",
        NODE_PLACE,
        "Set labels",
        f"Labels changed: node {NODE}",
        opens=(press("Labels"),),
        steps=(fill("Labels", "zone=a"),),
    ),
    Change(
        "cordon-node",
        NODE_PLACE,
        "Cordon",
        f"Cordoned: node {NODE}",
        opens=(press("Cordon"),),
        steps=(fill("Reason", "new fan"),),
        prepare=in_service,
    ),
    Change(
        "uncordon-node",
        NODE_PLACE,
        "Uncordon",
        f"Back in service: node {NODE}",
        opens=(press("Uncordon"),),
        prepare=cordoned,
    ),
    Change(
        "cordon-gpu",
        f"/gpus/{NODE}/{{uuid}}",
        "Cordon",
        "Cordoned: GPU {uuid}",
        opens=(press("Cordon"),),
        steps=(fill("Reason", "many errors"),),
        prepare=in_service,
    ),
    Change(
        "drain-node",
        NODE_PLACE,
        f"Drain {NODE}",
        f"Draining: node {NODE}",
        opens=(press("Drain"),),
        steps=(fill("Reason", "new driver"),),
        prepare=holds,
    ),
    Change(
        "reserve",
        "/reservations",
        "Reserve",
        "by-form: ",
        opens=(press("Reserve GPUs"),),
        steps=(fill("Name", "by-form"),),
        prepare=in_service,
    ),
    Change(
        "renew",
        "/reservations",
        "Renew for 10 min",
        "Renewed: anna",
        opens=(press("Use, renew, release: anna"),),
        prepare=holds,
    ),
    Change(
        "release",
        "/reservations",
        "Release 1 GPU",
        "Released: anna",
        opens=(press("Use, renew, release: anna"),),
        steps=(press("Release…"),),
        prepare=holds,
    ),
    Change(
        "request-smaller",
        "/queue?open={id}",
        "Request that instead",
        "yuki",
        opens=(press("Request that instead"),),
        prepare=waits,
    ),
    Change(
        "pause-task",
        "/tasks/{task}",
        "Pause",
        "Paused {task_name}",
        prepare=has_task,
    ),
    Change(
        "resume-task",
        "/tasks/{task}",
        "Resume",
        "Resumed {task_name}",
        prepare=has_paused_task,
    ),
    Change(
        "cancel-task",
        "/tasks/{task}",
        "Cancel the task",
        "Cancelled {task_name}",
        opens=(press("Cancel"),),
        prepare=has_task,
    ),
    Change(
        "submit-task",
        "/tasks/new",
        "Submit",
        "Submitted from-the-form",
        steps=(fill("Name", "from-the-form"),),
    ),
    Change(
        "save-preset",
        "/tasks/new",
        "Save",
        "Saved: preset starter",
        steps=(fill("Save parameters as a preset", "starter"),),
    ),
    Change(
        "remove-node",
        f"/nodes/{SECOND}",
        f"Remove {SECOND}",
        f"Removed: node {SECOND}",
        opens=(press("Remove"),),
        steps=(fill("Reason", "sold"),),
        prepare=silent,
    ),
)
