"""A benchmark of a running server with a look at its GPUs, as a plain function for scripts."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from shared.client import aio_benchmarks


def run_benchmark_job(
    endpoint_url: str,
    benchmark_spec: Mapping[str, Any],
    gpu_indices: Sequence[int] | None = None,
    *,
    node_id: str | None = None,
    api_key: str | None = None,
) -> dict[str, Any]:
    """Benchmark the OpenAI-compatible server at `endpoint_url`, watching GPUs meanwhile.

    Its namesake of `shared.client.aio_benchmarks`, waited for; inside an event loop use that.
    """
    return asyncio.run(
        aio_benchmarks.run_benchmark_job(
            endpoint_url, benchmark_spec, gpu_indices, node_id=node_id, api_key=api_key
        )
    )
