"""Which Kubernetes cluster `up` and `agent` are asked for."""

import json
from pathlib import Path

import pytest

from services.cli.failures import CommandFailed
from services.cli.local_platform.options import cluster_of


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own, with the contexts `prod.example` (the current one) and `lab`."""
    path = tmp_path / "config"
    contexts = [{"name": name, "context": {"cluster": name}} for name in ("prod.example", "lab")]
    path.write_text(json.dumps({"current-context": "prod.example", "contexts": contexts}))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def test_no_cluster_is_used_unless_one_is_named(kubeconfig: Path) -> None:
    assert cluster_of(None, None, {}) is None


def test_current_context_is_the_default(kubeconfig: Path) -> None:
    found = cluster_of("", None, {})

    assert found is not None
    assert found.cluster_id.startswith("prod-example-")  # a dot cannot stand in a subject
    assert (found.context, found.kubeconfig) == (None, None)


def test_a_context_and_an_id_may_be_named(kubeconfig: Path) -> None:
    found = cluster_of("lab", "mine", {})

    assert found is not None
    assert (found.cluster_id, found.context) == ("mine", "lab")


def test_own_kubeconfig_names_a_cluster(kubeconfig: Path) -> None:
    variables = {"GPUSTEWARD_KUBECONFIG": str(kubeconfig), "GPUSTEWARD_KUBE_CONTEXT": "lab"}

    found = cluster_of(None, None, variables)

    assert found is not None
    assert (found.cluster_id, found.kubeconfig) == ("lab", str(kubeconfig))


def test_unknown_context_is_refused_with_command(kubeconfig: Path) -> None:
    with pytest.raises(CommandFailed, match=r"no context other.*get-contexts"):
        cluster_of("other", None, {})


def test_cluster_without_kubeconfig_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(CommandFailed, match="no kubeconfig"):
        cluster_of("", None, {})
