"""Best configurations whose names, paths and values are hard to write down, one of each engine."""

from typing import Final

from msgspec import Struct

from schemas.cluster.kubernetes import KubernetesSpec, VolumeClaim
from schemas.executor.attempts import EngineSpec, Runtime
from schemas.gpus.gpu_request import GpuRequest
from schemas.task.report import Deployments
from services.gateway.domain.task_report.deployments import deployments


class Tuned(Struct, frozen=True, kw_only=True):
    """`name` is what its objects are called."""

    task_name: str
    name: str
    engine: EngineSpec
    gpus: int = 1

    def forms(self) -> Deployments:
        return deployments(self.task_name, self.engine, GpuRequest(gpus=self.gpus))


TUNED: Final = (
    Tuned(
        task_name="70B: latency & cost, 2nd try (über)",
        name="llm-70b-latency-cost-2nd-try-ber",
        engine=EngineSpec(
            runtime=Runtime.DOCKER,
            engine="vllm",
            model='/models/it\'s $HOME, "70B" #1',
            parameters={
                "tensor-parallel-size": 2,
                "max_num_seqs": 256,
                "gpu-memory-utilization": 0.92,
                "enable-prefix-caching": False,
                "enforce-eager": True,
                "compilation-config": {"level": 3, "cudagraph_capture_sizes": [1, 2]},
                "kv-cache-dtype": "fp8_e4m3",
            },
        ),
        gpus=2,
    ),
    Tuned(
        task_name="sglang",
        name="sglang",
        engine=EngineSpec(
            runtime=Runtime.OME,
            engine="sglang",
            model="/mnt/models",
            parameters={
                "tp-size": 4,
                "mem-fraction-static": 0.88,
                "disable-radix-cache": True,
                "enable-dp-attention": False,
                "json-model-override-args": '{"rope": "$(yarn)"}',
            },
            kubernetes=KubernetesSpec(
                claim=VolumeClaim(name="models", mount_path="/mnt/models", subpath="Qwen 3")
            ),
        ),
        gpus=4,
    ),
    Tuned(
        task_name="--llama--",
        name="llama",
        engine=EngineSpec(
            runtime=Runtime.PROCESS,
            engine="llamacpp",
            model="ggml-org/gpt-oss-20b-GGUF:q4_k_m",
            parameters={
                "threads": 8,
                "parallel": 4,
                "batch-size": 512,
                "mlock": False,
                "mmap": False,
                "cont-batching": True,
                "flash-attn": "on",
            },
        ),
    ),
)
