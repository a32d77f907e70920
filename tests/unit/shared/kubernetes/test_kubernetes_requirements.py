"""What a cluster has to have."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from shared.kubernetes.requirements import OUR_FIELDS, is_too_old, unknown_fields

DATA = Path(os.environ.get("GPUSTEWARD_TEST_DATA", "nowhere")) / "ome/crds.json.gz"


@pytest.mark.parametrize(
    ("version", "want"),
    [
        ("v1.24.17", True),
        ("v1.25.0", False),
        ("v1.34.4+k3s1", False),
        ("v2.0.0", False),
        ("v0.99.0", True),
        ("of unknown version", False),
    ],
)
def test_kubernetes_is_1_25_or_later(version: str, want: bool) -> None:
    assert is_too_old(version) is want


def definition(schema: dict[str, Any], *, version: str = "v1beta1", served: bool = True) -> bytes:
    told = {"name": version, "served": served, "schema": {"openAPIV3Schema": schema}}
    return json.dumps({"spec": {"versions": [told]}}).encode()


def test_field_is_known_by_schema_or_wildcard() -> None:
    schema = {
        "properties": {
            "spec": {
                "properties": {
                    "name": {"type": "string"},
                    "free": {"x-kubernetes-preserve-unknown-fields": True},
                    "labels": {"additionalProperties": {"type": "string"}},
                    "list": {"items": {"properties": {"name": {"type": "string"}}}},
                }
            }
        }
    }
    known = ("spec.name", "spec.free.any.thing", "spec.labels.app", "spec.list.name")
    unknown = ("spec.other", "spec.list.other", "status.url")

    assert unknown_fields(definition(schema), (*known, *unknown)) == unknown
    assert unknown_fields(definition(schema, version="v1"), known) == known
    assert unknown_fields(definition(schema, served=False), known) == known


@pytest.mark.skipif(not DATA.exists(), reason="GPUSTEWARD_TEST_DATA leads to no ome/crds.json.gz")
@pytest.mark.parametrize("plural", OUR_FIELDS)
def test_ome_knows_every_field_of_ours(plural: str) -> None:
    definitions = json.loads(gzip.decompress(DATA.read_bytes()))
    [found] = [each for each in definitions if each["metadata"]["name"] == f"{plural}.ome.io"]

    assert unknown_fields(json.dumps(found).encode(), OUR_FIELDS[plural]) == ()
