"""What compose/kubernetes puts into a cluster, as `kubectl apply -k` reads it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from shared.testing import eventually
from tests.support.kubernetes.api import Api, Object
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.paths import ROOT

MANIFESTS: Final = ROOT / "compose/kubernetes"


def rendered(folder: Path = MANIFESTS) -> list[Object]:
    """Every object of a kustomization, in its order; that it has no patches is looked at."""
    found: list[Object] = []
    kustomization = yaml.load((folder / "kustomization.yaml").read_text(), yaml.CSafeLoader)
    assert kustomization.keys() <= {"apiVersion", "kind", "resources", "images"}
    for name in kustomization["resources"]:
        path = folder / name
        if path.is_dir():
            found += rendered(path)
        else:
            found += [each for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if each]
    return found


def pod_templates() -> Iterator[tuple[str, str, Object]]:
    """Name, namespace and template of everything that makes pods."""
    for each in rendered():
        if "template" in each.get("spec", {}):
            yield each["metadata"]["name"], each["metadata"]["namespace"], each["spec"]["template"]


async def until_no_namespace_ends(api: Api) -> None:
    async def none_is_ending() -> bool:
        found = await api.items("api/v1/namespaces")
        return all(each["status"]["phase"] == "Active" for each in found)

    await eventually(none_is_ending, within_seconds=30, what="the end of namespaces")


async def install(api: Api, *kinds: str) -> None:
    """Make all of it, or what is of these kinds, once namespaces of an earlier test are gone."""
    await until_no_namespace_ends(api)
    for each in rendered():
        if not kinds or each["kind"] in kinds:
            await api.apply(each, manager="test-manifests")


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
