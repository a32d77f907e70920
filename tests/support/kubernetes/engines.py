"""Engines in pods that kwok only pretends to run: each pod's simulated engine, as a process that
listens at the pod's address. Its exit becomes its container's, and it ends with its pod.

With `disks` its directories of nodes and claims are there, as kubelet makes them, and the variables
that name them.
"""

import asyncio
import base64
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from aiohttp import ClientError

from shared.waiting import cancel_and_wait
from tests.support.kubernetes.api import Api, ApiError, Object, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.paths import ROOT

CONTAINER: Final = "ome-container"
LABEL: Final = "gpusteward.reservation"
SERVICE_NAME: Final = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc")
POD_NAME: Final = re.compile(r"(lws-[a-z0-9-]+)\.lws-[a-z0-9-]+\.([a-z0-9-]+)")  # by a subdomain
REFERENCE: Final = re.compile(r"\$(?:\$|\((\w+)\))")
RETRY_SECONDS: Final = 0.1
WATCH_SECONDS: Final = 5  # then pods are listed anew: a watch may fall silent with its apiserver


class PodEnded(Exception):
    """The pod went before its container could start."""


@asynccontextmanager
async def pod_engines(
    control_plane: ControlPlane, disks: Path | None = None
) -> "AsyncIterator[PodEngines]":
    async with control_plane.api() as api:
        engines = PodEngines(control_plane, api, disks)
        watching = asyncio.create_task(engines.watch())
        try:
            yield engines
        finally:
            await cancel_and_wait(watching)
            await engines.end_all()


@dataclass
class PodEngines:
    """By the pod's uid."""

    control_plane: ControlPlane
    api: Api
    disks: Path | None = None
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    _of_reservation: dict[str, list[str]] = field(default_factory=dict)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _addresses: dict[str, str] = field(default_factory=dict)
    _killed: set[str] = field(default_factory=set)

    def pids(self, reservation_id: object) -> list[int]:
        return [
            process.pid
            for uid in self._of_reservation.get(str(reservation_id), ())
            if (process := self.processes.get(uid)) is not None and process.returncode is None
        ]

    def kill(self, reservation_id: object) -> None:
        for uid in self._of_reservation.get(str(reservation_id), ()):
            self._kill(uid)

    async def watch(self) -> None:
        while True:
            with suppress(ApiError, ClientError, TimeoutError, OSError):
                async with asyncio.timeout(2 * WATCH_SECONDS):
                    await self._list_and_watch()
            await asyncio.sleep(RETRY_SECONDS)

    async def _list_and_watch(self) -> None:
        path = path_to("v1", "Pod")
        pods = await self.api.get(path, labelSelector=LABEL)
        there = {pod["metadata"]["uid"] for pod in pods["items"]}
        for uid in set(self._running) - there:
            self._kill(uid)
        for pod in pods["items"]:
            self._notice(pod)
        async for event, pod in self.api.watch(
            path,
            since=pods["metadata"]["resourceVersion"],
            labelSelector=LABEL,
            timeoutSeconds=WATCH_SECONDS,
        ):
            if event == "ERROR":
                return
            if event == "DELETED":
                self._kill(pod["metadata"]["uid"])
            else:
                self._notice(pod)

    async def end_all(self) -> None:
        for uid in self._running:
            self._kill(uid)
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _notice(self, pod: Object) -> None:
        uid, status = pod["metadata"]["uid"], pod.get("status", {})
        address = status.get("podIP")
        if not address or status.get("phase") != "Running" or address == self._addresses.get(uid):
            return
        if uid in self._running:  # kwok gave another address: its first answer was lost on the way
            self._addresses[uid] = address
            self._running[uid].cancel()
            self._running[uid] = asyncio.create_task(self._run_anew(pod, self._running[uid]))
            return
        states = [each.get("state", {}) for each in status.get("containerStatuses", [])]
        if any("running" in each for each in states):
            reservation = pod["metadata"]["labels"][LABEL]
            self._of_reservation.setdefault(reservation, []).append(uid)
            self.names.add(pod["metadata"]["name"])
            self._addresses[uid] = address
            self._running[uid] = asyncio.create_task(self._run(pod))

    def _kill(self, uid: str) -> None:
        self._killed.add(uid)  # it may have no process yet
        process = self.processes.get(uid)
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()

    async def _resolved(self, word: str, uid: str) -> str:
        """With the address of the pod that a headless Service or a subdomain names, as the
        cluster's DNS answers the pod `uid` for as long as it is there.
        """
        if match := POD_NAME.search(word):
            query = {"fieldSelector": f"metadata.name={match[1]}"}
        elif match := SERVICE_NAME.search(word):
            service = await self.api.get(path_to("v1", "Service", match[2], match[1]))
            labels = (f"{key}={text}" for key, text in service["spec"]["selector"].items())
            query = {"labelSelector": ",".join(labels)}
        else:
            return word
        while uid not in self._killed:
            for pod in await self.api.items(path_to("v1", "Pod", match[2]), **query):
                if address := pod.get("status", {}).get("podIP"):
                    return word.replace(match[0], address)
            await asyncio.sleep(RETRY_SECONDS)
        return word

    async def _run_anew(self, pod: Object, before: asyncio.Task[None]) -> None:
        await asyncio.wait([before])
        process = self.processes.pop(pod["metadata"]["uid"], None)
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        await self._run(pod)

    async def _run(self, pod: Object) -> None:
        metadata, address = pod["metadata"], pod["status"]["podIP"]
        container = next(c for c in pod["spec"]["containers"] if c["name"] == CONTAINER)
        words = [*container.get("command", []), *container.get("args", [])]
        uid = metadata["uid"]
        values = {each["name"]: each.get("value", "") for each in container.get("env", [])}
        words = [await self._resolved(_filled_in(each, values), uid) for each in words]
        argv = [sys.executable, *(address if each == "0.0.0.0" else each for each in words[1:])]  # noqa: S104
        folders = await self._secret_volumes(pod, container)
        for target, folder in folders.items():
            argv = [word.replace(target, folder.name) for word in argv]
        process = self.processes[metadata["uid"]] = await asyncio.create_subprocess_exec(
            *argv,
            env={
                **self._mounted(pod, container),
                **await self._of_secrets(metadata, container),
                "PATH": os.defpath,
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        if metadata["uid"] in self._killed:
            self._kill(metadata["uid"])
        if process.stdout is not None:
            async for line in process.stdout:
                self._log(line.decode(errors="replace").rstrip("\n"))
        code = await process.wait()
        for folder in folders.values():
            folder.cleanup()
        state = {"terminated": {"exitCode": code if code >= 0 else 128 - code, "reason": "Error"}}
        before = next(s for s in pod["status"]["containerStatuses"] if s["name"] == CONTAINER)
        status = {key: before[key] for key in ("name", "image", "imageID")} | {"ready": False}
        path = path_to("v1", "Pod", metadata["namespace"], metadata["name"])
        with suppress(ApiError, ClientError):
            await self.api.merge(
                f"{path}/status",
                {"status": {"containerStatuses": [{**status, "restartCount": 0, "state": state}]}},
            )

    async def _of_secrets(self, metadata: Object, container: Object) -> dict[str, str]:
        """Variables from Secrets, for which kubelet waits."""
        values: dict[str, str] = {}
        for each in container.get("env", []):
            if (reference := each.get("valueFrom", {}).get("secretKeyRef")) is None:
                continue
            secret = await self._secret(metadata, reference["name"])
            values[each["name"]] = base64.b64decode(secret["data"][reference["key"]]).decode()
        return values

    async def _secret(self, metadata: Object, name: str) -> Object:
        """Wait for it as kubelet does, for as long as the pod is there."""
        path = path_to("v1", "Secret", metadata["namespace"], name)
        while metadata["uid"] not in self._killed:
            with suppress(ApiError, ClientError, TimeoutError, OSError):
                secret: Object = await self.api.get(path)
                return secret
            await asyncio.sleep(RETRY_SECONDS)
        raise PodEnded(metadata["name"])

    async def _secret_volumes(
        self, pod: Object, container: Object
    ) -> "dict[str, TemporaryDirectory[str]]":
        """Folders with the files of Secrets, by where the container has them mounted."""
        folders: dict[str, TemporaryDirectory[str]] = {}
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        for mount in container["volumeMounts"]:
            if (source := volumes[mount["name"]].get("secret")) is None:
                continue
            secret = await self._secret(pod["metadata"], source["secretName"])
            folder = folders[mount["mountPath"]] = TemporaryDirectory()
            for item in source["items"]:
                content = base64.b64decode(secret["data"][item["key"]])
                (Path(folder.name) / item["path"]).write_bytes(content)
        return folders

    def _mounted(self, pod: Object, container: Object) -> dict[str, str]:
        """Variables that name what is mounted below a volume, on this host's disk."""
        named: dict[str, str] = {}
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        for mount in container["volumeMounts"] if self.disks is not None else ():
            volume, target = volumes[mount["name"]], mount["mountPath"]
            if "hostPath" in volume:
                root = self.disks / pod["spec"]["nodeName"] / volume["hostPath"]["path"][1:]
            elif "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                root = self.disks / pod["metadata"]["namespace"] / claim
            else:
                continue
            directory = root / mount.get("subPath", "")
            directory.mkdir(parents=True, exist_ok=True)
            for each in container["env"]:
                if each.get("value", "").startswith(target):
                    named[each["name"]] = str(directory) + each["value"].removeprefix(target)
        return named

    def _log(self, line: str) -> None:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        with self.control_plane.pod_log.open("a") as file:
            file.write(f"{stamp} stdout F {line}\n")


def _filled_in(word: str, values: dict[str, str]) -> str:
    """As kubelet does: `$(NAME)` is a variable's value, `$$` a dollar."""
    return REFERENCE.sub(lambda match: values.get(match[1], match[0]) if match[1] else "$", word)
