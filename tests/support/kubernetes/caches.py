"""A claim for what engines in pods compile."""

from tests.support.kubernetes.api import Api, Object, path_to

CLAIM = "persistentVolumeClaim:compiled"


def bound_claim(namespace: str) -> list[Object]:
    """A claim that pods of every node may write, and its volume; no controller binds them here."""
    amounts = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": "compiled"}
    capacity = {"storage": "1Gi"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "compiled"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": capacity,
            "claimRef": {"namespace": namespace, "name": "compiled"},
            "nfs": {"server": "nfs.example", "path": "/compiled"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "compiled",
            "namespace": namespace,
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {**amounts, "resources": {"requests": capacity}},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": capacity},
    }
    return [volume, claim]


async def mounted(api: Api, namespace: str) -> list[str]:
    """The directories of the caches of its pods."""
    pods = await api.items(path_to("v1", "Pod", namespace), labelSelector="gpusteward.reservation")
    return [
        mount["subPath"]
        for pod in pods
        for mount in pod["spec"]["containers"][0]["volumeMounts"]
        if mount["name"] == "compiled"
    ]
