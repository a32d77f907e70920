"""Which cluster is spoken to, and as whom."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from shared.kubernetes.errors import KubernetesError

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# What the package raises where a kubeconfig has other things than it expects.
_ODD_CONFIGURATION: Final = (ValueError, TypeError, AttributeError, KeyError)


class NoCluster(KubernetesError):
    """No kubeconfig, and not inside a cluster; or one that leads nowhere."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "", message)


class ClusterAccess(Struct, frozen=True, kw_only=True):
    """`kubeconfig` None: by KUBECONFIG, else ~/.kube/config, else the service account of the pod
    that this runs in. `context` None is the current one.
    """

    kubeconfig: str | None = None
    context: str | None = None

    async def load(self) -> "Configuration":
        """Address and login, read anew: files, a token, what a login plugin prints.

        Raises NoCluster.
        """
        import yaml
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

        make: Any = Configuration  # without annotations
        configuration: Configuration = make()
        files = kubeconfig_files(self.kubeconfig)
        try:
            if files is None:
                load_incluster_config(  # type: ignore[no-untyped-call]  # the client has no types
                    client_configuration=configuration
                )
            else:
                await load_kube_config(  # type: ignore[no-untyped-call]  # the client has no types
                    config_file=files,
                    context=self.context,
                    client_configuration=configuration,
                    persist_config=False,
                )
        except (ConfigException, yaml.YAMLError, OSError, *_ODD_CONFIGURATION) as error:
            where = files or "the service account of this pod"
            raise NoCluster(f"{where} does not lead to a cluster: {error}") from error
        configuration.connection_pool_maxsize = 0  # any number: watches and logs hold one each
        return configuration

    def context_name(self) -> str | None:
        """The context's; None in a pod without a kubeconfig. Raises NoCluster."""
        files = kubeconfig_files(self.kubeconfig)
        if files is None:
            return None
        name, context = self._chosen(files)
        if not context:
            hint = f"`kubectl --kubeconfig {files} config get-contexts` shows them"
            raise NoCluster(f"{files} has no context {name}; {hint}")
        return name

    def _chosen(self, files: str) -> tuple[str | None, dict[str, Any]]:
        """The context's name and content, which is empty if there is none."""
        import yaml

        current = self.context
        contexts: list[Any] = []
        for file in files.split(":"):
            try:
                document = yaml.safe_load(Path(file).expanduser().read_text()) or {}
            except (OSError, ValueError, yaml.YAMLError):
                continue
            if not isinstance(document, dict):
                continue
            current = current or document.get("current-context")
            contexts += document.get("contexts") or []
        named_contexts = [context for context in contexts if isinstance(context, dict)]
        context: Any = next(
            (
                context_item.get("context")
                for context_item in named_contexts
                if context_item.get("name") == current
            ),
            {},
        )
        return current, context if isinstance(context, dict) else {}


def kubeconfig_files(requested: str | None) -> str | None:
    """The kubeconfig's path, or several joined by `:`; None inside a cluster without any.

    Raises NoCluster where nothing leads to a cluster.
    """
    if paths := requested or os.environ.get("KUBECONFIG"):
        if not any(Path(path).expanduser().exists() for path in paths.split(":") if path):
            raise NoCluster(f"there is no kubeconfig at {paths}")
        return paths
    if (default := Path.home() / ".kube" / "config").exists():
        return str(default)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return None
    raise NoCluster(
        "no kubeconfig: name one by GPUSTEWARD_KUBECONFIG or KUBECONFIG, "
        "or have one at ~/.kube/config"
    )
