"""How many GPUs a request holds, once it is granted."""

from schemas.gpus.gpu_request import GpuRequest


def gpus_of(request: GpuRequest) -> float:
    """Return the GPUs that a grant holds: of one that is shared a part; a MIG instance counts as
    one.
    """
    return request.shares if request.shares is not None else float(request.gpus * request.nodes)
