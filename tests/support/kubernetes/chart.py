"""What compose/helm/gpusteward puts into a cluster, as helm renders it."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml

from shared.testing import eventually
from tests.support.kubernetes.api import Api, Object
from tests.support.kubernetes.binaries import HELM, helm_directory, missing_helm
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.paths import ROOT

CHART: Final = ROOT / "compose/helm/gpusteward"
EXAMPLES: Final = {path.stem: path for path in sorted((CHART / "examples").glob("*.yaml"))}
RELEASE: Final = "gpusteward"  # its name, and its namespace
HELM_SECONDS: Final = 60
# `helm install --create-namespace` makes it without a label; NOTES.txt tells how to set one.
PLATFORM_NAMESPACE: Final[Object] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": RELEASE,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    },
}


def run_helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm to its end, whatever that is. Skips the test where it was not built."""
    if reason := missing_helm():
        pytest.skip(reason)
    return subprocess.run(
        [helm_directory() / HELM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HELM_SECONDS,
        check=False,
    )


@cache
def _rendered_text(example: str | None, settings: tuple[str, ...]) -> str:
    command: list[str | Path] = ["template", RELEASE, CHART, "--namespace", RELEASE]
    if example is not None:
        command += ["--values", EXAMPLES[example]]
    for setting in settings:
        command += ["--set", setting]
    ended = run_helm(*command)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def rendered(example: str | None = None, *settings: str) -> list[Object]:
    """Return every object of the chart, in the order of their making; of the default values or of
    one of EXAMPLES, and of `settings` such as `agents.enabled=false`.
    """
    text = _rendered_text(example, settings)
    return [thing for thing in yaml.load_all(text, yaml.CSafeLoader) if thing]


def pod_templates(example: str | None = None) -> Iterator[tuple[str, str, Object]]:
    """Yield name, namespace and template of everything that makes pods."""
    for thing in rendered(example):
        if "template" in thing.get("spec", {}):
            metadata = thing["metadata"]
            yield metadata["name"], metadata["namespace"], thing["spec"]["template"]


async def until_no_namespace_ends(api: Api) -> None:
    async def none_is_ending() -> bool:
        found = await api.items("api/v1/namespaces")
        return all(each["status"]["phase"] == "Active" for each in found)

    await eventually(none_is_ending, within_seconds=30, what="the end of namespaces")


async def install(api: Api, *kinds: str, example: str | None = None) -> None:
    """Make all of it, or what is of these kinds, once namespaces of an earlier test are gone."""
    await until_no_namespace_ends(api)
    for thing in [PLATFORM_NAMESPACE, *rendered(example)]:
        if not kinds or thing["kind"] in kinds:
            await api.apply(thing, manager="test-chart")


async def token_of(plane: ControlPlane, namespace: str, account: str) -> str:
    """A login as that service account, from the API itself."""
    async with plane.api() as api:
        path = f"api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        answer: Object = await api.call("POST", path, request)
        return str(answer["status"]["token"])
