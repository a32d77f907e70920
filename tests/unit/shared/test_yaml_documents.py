"""What YAML means as JSON, and what of it is refused."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from shared.yaml_documents import MAX_BYTES, InvalidYamlError, json_of_yaml
from tests.support.paths import ROOT

EXAMPLES: Final = sorted((ROOT / "schemas/examples").glob("*.json"))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [1, -2, +3, 0x1F, 0o17, 010]", [1, -2, 3, 31, 15, 10], id="integers"),
        pytest.param("a: [1.5, .5, 1., 1e-3, -2E+4]", [1.5, 0.5, 1.0, 0.001, -2e4], id="floats"),
        pytest.param("a: [true, FALSE, null, ~, ]", [True, False, None, None], id="words"),
        pytest.param(
            "a: [no, on, y, 12:30, 2026-01-02, 1_000, .inf, 1.2.3, '1', \"true\", <<]",
            ["no", "on", "y", "12:30", "2026-01-02", "1_000", ".inf", "1.2.3", "1", "true", "<<"],
            id="texts",
        ),
        pytest.param("a:", None, id="nothing"),
        pytest.param("a: |\n  one\n  two\n", "one\ntwo\n", id="a block"),
        pytest.param("# why\na: {b: {c: ü}}\n", {"b": {"c": "ü"}}, id="nested, with a comment"),
        pytest.param('{"a": [1, {"b": null}]}', [1, {"b": None}], id="JSON"),
        pytest.param("a: &here {b: 1}", {"b": 1}, id="an anchor that nothing refers to"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, want: Any) -> None:
    assert json.loads(json_of_yaml(text.encode())) == {"a": want}


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(b"a: [1", "line 2, column 1: this is not YAML: did not find", id="no end"),
        pytest.param(b"a: 1\nb: 2\na: 3", "line 3, column 1: the key a is there twice", id="twice"),
        pytest.param(b"a: &x 1\nb: *x", "line 2, column 4: aliases are not taken", id="an alias"),
        pytest.param(b"a: 1\n---\nb: 2", "expected one document, found more", id="two documents"),
        pytest.param(b"[" * 1000, "expected at most 64 levels, found more", id="deep"),
        pytest.param(b"a: !!python/name:os.system x", "could not determine a", id="a program"),
        pytest.param(b"a: !!timestamp 2026-01-02", "JSON cannot say this: ", id="a date"),
        pytest.param(b"a: !!float .nan", "JSON cannot say this: ", id="not a number"),
        pytest.param(b"a: 1e999", "JSON cannot say this: ", id="beyond every number"),
        pytest.param(b"? [a, b]\n: 1", "found unhashable key", id="a list as a key"),
        pytest.param(b"a: \xff", "this is not UTF-8", id="Latin-1"),
        pytest.param(b"a: \x00", "", id="a control character"),
        pytest.param(b" " * (MAX_BYTES + 1), "expected at most 65536 bytes of", id="large"),
    ],
)
def test_non_json_value_is_refused_with_its_place(document: bytes, want: str) -> None:
    with pytest.raises(InvalidYamlError) as seen:
        json_of_yaml(document)

    assert want in str(seen.value)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "schemas/examples").glob("*.json")), ids=lambda p: p.stem
)
def test_our_examples_are_the_same_as_yaml(path: Path) -> None:
    example = json.loads(path.read_bytes())
    text = yaml.safe_dump(example, allow_unicode=True)

    assert json.loads(json_of_yaml(text.encode())) == example


def test_huge_expansion_is_refused_before_building() -> None:
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    laughs = "\n".join(["a0: &a0 [lol]", *rows])

    for hostile in (laughs.encode(), b"[" * MAX_BYTES, b"{a: " * (MAX_BYTES // 4)):
        with pytest.raises(InvalidYamlError):
            json_of_yaml(hostile)
