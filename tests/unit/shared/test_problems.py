"""Errors of decoding, told by path and expectation."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from schemas import catalog
from schemas.task.task_file import TaskFile
from shared.problems import explain_validation_error

START = '{"task_name": "a", "base_runtime": "vllm", "model": {"id_or_path": "m"}'


@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        pytest.param('{"task_name": 3}', "$.task_name", "Expected `str`", id="wrong type"),
        pytest.param("{}", "$.task_name", "missing required field", id="missing field"),
        pytest.param("[]", "$", "Expected `object`", id="not an object"),
        pytest.param(
            START + ', "optimization": {"strategy": "guess"}}',
            "$.optimization.strategy",
            "expected one of: grid_search, random, bayesian",
            id="unknown choice",
        ),
        pytest.param(
            START + ', "storage": {"type": "nfs"}}',
            "$.storage.type",
            "expected one of: hf, hostpath, pvc",
            id="unknown literal",
        ),
        pytest.param(
            START + ', "optimisation": {}}', "$.optimisation", "known: base_runtime", id="misspelt"
        ),
        pytest.param(
            START + ', "slo": {"ttft": {"treshold": 1}}}',
            "$.slo.ttft.treshold",
            "known: fail_ratio, hard_fail, threshold, weight",
            id="misspelt deeper",
        ),
        pytest.param(
            START + ', "parameters": {"tp": [[1]]}}',
            "$.parameters[...][0]",
            "got `array`",
            id="list",
        ),
        pytest.param(
            START + ', "parameters": {"t p": [1]}}',
            "$.parameters",
            "expected 1 to 64 letters, digits, - and _, the first a letter, as a key",
            id="key",
        ),
        pytest.param(
            '{"task_name": "a b"}', "$.task_name", "expected 1 to 128 letters", id="a pattern"
        ),
        pytest.param('{"task_name":', None, "truncated", id="cut off"),
        pytest.param('{"task_name": NaN}', None, "malformed", id="not a number"),
    ],
)
def test_offending_field_and_expectation_are_named(text: str, path: str | None, says: str) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(text, type=TaskFile)

    found_path, sentence = explain_validation_error(caught.value, TaskFile)

    assert found_path == path
    assert says in sentence


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        pytest.param('{"dp": [1], "tp-size": [[1]]}', "$.parameters.tp-size[0]", id="in a list"),
        pytest.param('{"dp": [1], "tp": 3}', "$.parameters.tp", id="the value itself"),
        pytest.param(
            '{"dp": [1], "tp": {"type": "choice", "valus": []}}',
            "$.parameters.tp.valus",
            id="a misspelt field",
        ),
    ],
)
def test_mapping_value_is_named_by_its_key(parameters: str, path: str) -> None:
    text = START + f', "parameters": {parameters}}}'
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(text, type=TaskFile)

    found_path, _ = explain_validation_error(caught.value, TaskFile, text)

    assert found_path == path


def test_mapping_key_keeps_dots_in_cut_text() -> None:
    text = START + ', "parameters": {"tp": 3}, "description'
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=TaskFile)

    assert explain_validation_error(caught.value, TaskFile, text)[0] == "$.parameters[...]"


@pytest.mark.parametrize("url", ["engine:8000", "http://[", "http://engine:99999"])
@pytest.mark.parametrize(("place", "is_list"), [("$.endpoint.url", False), ("$.endpoint", True)])
def test_wrong_url_of_an_endpoint_is_told_at_its_place(url: str, place: str, is_list: bool) -> None:
    text = json.dumps(json.loads(START + "}") | {"endpoint": {"url": [url] if is_list else url}})
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=TaskFile)

    path, sentence = explain_validation_error(caught.value, TaskFile, text)

    assert path is not None
    assert path.startswith(place)
    assert sentence.startswith("expected http:// or https://, a host, and what stands before /v1")
    assert is_list or sentence.endswith(f", got {url!r}")


def test_every_pattern_is_told_in_words() -> None:
    _, schemas = msgspec.json.schema_components([*catalog.MESSAGES, TaskFile])
    texts = [found for found in _nested(schemas) if "pattern" in found]

    assert texts
    assert [text["pattern"] for text in texts if not text.get("description")] == []


def _nested(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    if isinstance(schema, dict | list):
        for inner in schema.values() if isinstance(schema, dict) else schema:
            yield from _nested(inner)
