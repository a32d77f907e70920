"""Identifiers."""

import re

from hypothesis import given
from hypothesis import strategies as st

from schemas.base import TOKEN_PATTERN
from shared.ids import new_id, node_token

names = st.text(max_size=300)


@given(names)
def test_every_name_becomes_a_subject_token(name: str) -> None:
    assert re.fullmatch(TOKEN_PATTERN, node_token(name))


@given(names)
def test_a_token_stays_as_it_is(name: str) -> None:
    assert node_token(node_token(name)) == node_token(name)


def test_names_differing_in_replaced_parts_differ() -> None:
    names_of_hosts = ["gpu.1", "gpu:1", "gpu 1", "gpu-1", "n" * 200, "n" * 201, ""]

    assert len({node_token(name) for name in names_of_hosts}) == len(names_of_hosts)


def test_ids_sort_in_the_order_they_were_made() -> None:
    ids = [new_id() for _ in range(1000)]

    assert ids == sorted(ids)
    assert len(set(ids)) == 1000
    assert {made.version for made in ids} == {7}
