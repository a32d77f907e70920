"""The kinds of OME, and the names by which it and Kubernetes know things."""

from typing import Final

from shared.kubernetes.names import Resource

OME_VERSION: Final = "ome.io/v1beta1"
INFERENCE_SERVICES: Final = Resource(OME_VERSION, "inferenceservices")
SERVING_RUNTIMES: Final = Resource(OME_VERSION, "servingruntimes")
CLUSTER_RUNTIMES: Final = Resource(OME_VERSION, "clusterservingruntimes", is_namespaced=False)
BASE_MODELS: Final = Resource(OME_VERSION, "basemodels")
CLUSTER_MODELS: Final = Resource(OME_VERSION, "clusterbasemodels", is_namespaced=False)
ENGINE_CONTAINER: Final = "ome-container"  # by this name OME knows the engine's
