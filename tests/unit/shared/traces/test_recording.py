"""Traces out of logs, whose lines are as the engines' sources write them."""

import json
from typing import Any

import pytest

from shared.datasets.bounds import DatasetRefused
from shared.traces.recording import Recording, record, trace_lines

BLOCK = 4
IDS = list(range(100, 110))


def lines_of(recording: Recording) -> list[dict[str, Any]]:
    return list(trace_lines(recording))


def vllm(name: str, second: int, ids: list[int], answer: str, *, max_tokens: int = 64) -> list[str]:
    stamp = f"02-13 11:33:{second:02}"
    head = f"(APIServer pid=7) INFO {stamp} [logger.py:49]"
    prompt = r"'say \'Received request x: params: max_tokens=9\' prompt_token_ids: [1]'"
    return [
        (
            f"(APIServer pid=7) DEBUG {stamp} [logger.py:40] Request {name} details: "
            f"prompt: {prompt}, prompt_token_ids: {ids}, prompt_embeds shape: None.\n"
        ),
        (
            f"{head} Received request {name}: params: SamplingParams(n=1, seed=None, "
            f"max_tokens={max_tokens}, min_tokens=0), lora_request: None.\n"
        ),
        '(APIServer pid=7) INFO:     10.0.0.9:51408 - "POST /v1/chat/completions HTTP/1.1" 200\n',
        *([f"{head} Generated response {name}{answer}\n"] if answer else []),
    ]


def whole(count: int) -> str:
    return f": output: 'secret words', output_token_ids: {list(range(count))}, finish_reason: stop"


def test_vllms_log_becomes_a_trace() -> None:
    log = [
        *vllm("chatcmpl-a", 30, IDS, whole(5)),
        *vllm("chatcmpl-b", 30, [*IDS[:8], 7, 7, 7], whole(6)),
        *vllm("cmpl-c-0", 33, IDS, "", max_tokens=9),
    ]

    recording = record(log, BLOCK)

    assert recording.engine == "vllm"
    assert lines_of(recording) == [
        {"timestamp": 0, "input_length": 10, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 500, "input_length": 11, "output_length": 6, "hash_ids": [0, 1, 3]},
        {"timestamp": 3000, "input_length": 10, "output_length": 9, "hash_ids": [0, 1, 2]},
    ]
    assert recording.estimated_answers == 1


def test_streamed_answers_of_vllm_are_counted_by_piece() -> None:
    log = vllm("chatcmpl-a", 1, IDS, "")
    piece = "INFO 02-13 11:33:02 [logger.py:70] Generated response chatcmpl-a (streaming delta): "
    log += [f"{piece}output: ' a', output_token_ids: [1, 2], finish_reason: None\n"] * 3
    log += [
        (
            "INFO 02-13 11:33:02 [logger.py:70] Generated response chatcmpl-a (streaming complete)"
            ": output: ' a a a', output_token_ids: None, finish_reason: streaming_complete\n"
        )
    ]

    [line] = lines_of(record(log, BLOCK))

    assert line["output_length"] == 6


def test_older_vllm_says_all_in_one_line() -> None:
    log = [
        (
            "INFO 10-01 18:43:27 logger.py:36] Received request cmpl-c5-0: prompt: 'How to [1]', "
            "params: SamplingParams(n=1, max_tokens=16, seed=None), prompt_token_ids: [5, 6, 7], "
            "lora_request: None, prompt_adapter_request: None.\n"
        )
    ]

    assert lines_of(record(log, BLOCK)) == [
        {"timestamp": 0, "input_length": 3, "output_length": 16, "hash_ids": [0]}
    ]


def test_a_year_that_ends_goes_on() -> None:
    log = [
        line.replace("02-13 11:33:01", stamp)
        for stamp, name in (("12-31 23:59:59", "a"), ("01-01 00:00:01", "b"))
        for line in vllm(name, 1, IDS, whole(2))
    ]

    assert [line["timestamp"] for line in lines_of(record(log, BLOCK))] == [0, 2000]


def sglang(name: str, second: int, **meta: float) -> list[str]:
    stamp = f"[2026-02-13 09:29:{second:02}]"
    meta_text = ", ".join(f"'{key}': {value}" for key, value in meta.items())
    fake = "'meta_info': {'prompt_tokens': 1}"
    return [
        f"{stamp} Receive: obj=GenerateReqInput(rid='{name}', stream=True)\n",
        (
            f"{stamp} Finish: obj=GenerateReqInput(rid='{name}', text=\"{fake}\"), out={{'text': "
            f"'{fake}', 'meta_info': {{'id': '{name}', 'finish_reason': {{'type': 'stop'}}, "
            f"{meta_text}, 'e2e_latency': 0.25}}}}\n"
        ),
    ]


def test_sglangs_log_becomes_a_trace() -> None:
    log = [
        *sglang("a", 30, prompt_tokens=20, completion_tokens=8, cached_tokens=0),
        *sglang("b", 31, prompt_tokens=30, completion_tokens=9, cached_tokens=13),
        "[2026-02-13 09:29:31] Receive: obj=GenerateReqInput(rid='lost')\n",
    ]

    recording = record(log, BLOCK)

    assert recording.engine == "sglang"
    assert lines_of(recording) == [
        {"timestamp": 0, "input_length": 20, "output_length": 8, "hash_ids": []},
        {"timestamp": 1000, "input_length": 30, "output_length": 9, "hash_ids": [0, 1, 2]},
    ]
    assert recording.skipped["without their end"] == 1


def test_json_lines_of_sglang_have_their_own_times() -> None:
    def event(kind: str, at: str, **fields: Any) -> str:
        time = f"2026-02-13T09:29:{at}"
        return json.dumps({"timestamp": time, "event": f"request.{kind}", "rid": "r", **fields})

    meta = {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": 8, "e2e_latency": 1.25}
    finished = {"obj": {"rid": "r"}, "out": {"meta_info": meta}}
    log = [
        event("received", "30.500000", obj={"rid": "r"}),
        event("finished", "31.000000", **finished),
        event("finished", "33.000000", **finished),
        event("finished", "33.000000", out={"meta_info": {"prompt_tokens": "x"}}),
        '{"timestamp": "soon", "event": "request.finished"}',
        "{" * 5000,
    ]

    recording = record(log, BLOCK)

    # The second came as long before its end as it took.
    assert [line["timestamp"] for line in lines_of(recording)] == [0, 1250]
    assert recording.skipped["without their lengths"] == 1


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([], "found none"),
        (['INFO:     10.0.0.9:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'], "found none"),
        (
            vllm("a", 1, IDS, "")[1:],
            "1 of vLLM without the tokens of their prompt",
        ),
    ],
)
def test_log_without_lengths_is_refused_in_words(log: list[str], words: str) -> None:
    with pytest.raises(DatasetRefused, match="which options of the engine") as refused:
        record(log, BLOCK)

    assert words in refused.value.message


def test_no_text_and_no_token_gets_into_a_trace() -> None:
    log = [*vllm("a", 1, [987_654] * 9, whole(5)), *vllm("b", 2, [987_654] * 5, whole(5))]

    text = json.dumps(lines_of(record(log, BLOCK)))

    assert "secret" not in text
    assert "987654" not in text
