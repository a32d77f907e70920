"""One table tells what engines say of themselves, whatever their release calls it."""

import pytest

from schemas.executor.engine_samples import EngineReading
from shared.engines.metrics_page import read_page

VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
vllm:generation_tokens_total{engine="0",model_name="m"} 40.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 15.0
"""
OLD_VLLM = """
vllm:num_requests_running{model_name="m"} 3.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:gpu_prefix_cache_queries_total{model_name="m"} 8.0
vllm:gpu_prefix_cache_hits_total{model_name="m"} 2.0
"""
SGLANG = """
sglang:num_running_reqs{model_name="m"} 5.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:token_usage{model_name="m"} 0.9
sglang:num_retracted_requests_total{model_name="m"} 6.0
sglang:prompt_tokens_total{model_name="m"} 1e3
sglang:cached_tokens_total{cache_source="device",model_name="m"} 70.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 30.0
sglang:generation_tokens_total{model_name="m"} 500.0
sglang:spec_accept_length{model_name="m"} 2.5
"""
TRTLLM = """
trtllm_num_requests_running{model_name="m"} 4.0
trtllm_num_requests_waiting{model_name="m"} 2.0
trtllm_kv_cache_utilization{model_name="m"} 0.5
trtllm_prompt_tokens_total{model_name="m"} 100.0
trtllm_prompt_cached_tokens_total{model_name="m"} 25.0
trtllm_generation_tokens_total{model_name="m"} 40.0
trtllm_spec_decode_acceptance_length{model_name="m"} 2.5
"""
LLAMACPP = """
llamacpp:prompt_tokens_total 12
llamacpp:tokens_predicted_total 34
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
"""


@pytest.mark.parametrize(
    ("page", "engine", "reading"),
    [
        pytest.param(
            VLLM,
            "vllm",
            EngineReading(
                running=7,
                waiting=2,
                kv_cache_percent=75,
                preemptions=1,
                prefix_queried_tokens=100,
                prefix_hit_tokens=0,
                prompt_tokens=100,
                generation_tokens=40,
                accept_length=2.5,
            ),
            id="of two replicas, before the first hit",
        ),
        pytest.param(
            OLD_VLLM,
            "vllm",
            EngineReading(
                running=3, kv_cache_percent=25, prefix_queried_tokens=8, prefix_hit_tokens=2
            ),
            id="an older release",
        ),
        pytest.param(
            SGLANG,
            "sglang",
            EngineReading(
                running=5,
                waiting=1,
                kv_cache_percent=90,
                preemptions=6,
                prefix_queried_tokens=1000,
                prefix_hit_tokens=100,
                prompt_tokens=1000,
                generation_tokens=500,
                accept_length=2.5,
            ),
            id="sglang",
        ),
        pytest.param(
            TRTLLM,
            "trtllm",
            EngineReading(
                running=4,
                waiting=2,
                kv_cache_percent=50,
                prefix_queried_tokens=100,
                prefix_hit_tokens=25,
                prompt_tokens=100,
                generation_tokens=40,
                accept_length=2.5,
            ),
            id="TensorRT-LLM",
        ),
        pytest.param(
            LLAMACPP,
            "llamacpp",
            EngineReading(running=1, waiting=0, prompt_tokens=12, generation_tokens=34),
            id="llama.cpp has no share of its KV cache",
        ),
    ],
)
def test_a_page_is_read_under_one_set_of_names(
    page: str, engine: str, reading: EngineReading
) -> None:
    found = read_page(page)

    assert found is not None
    assert (found[0].engine, found[1]) == (engine, reading)


@pytest.mark.parametrize("page", ["", "<html>", "process_cpu_seconds_total 3\n", "vllm:other 1\n"])
def test_a_page_of_nothing_known_is_none(page: str) -> None:
    assert read_page(page) is None
