"""What a person reads of an engine before the first task of it."""

import pytest

from schemas.executor.engine_rules import ParameterKind
from services.gateway.domain.engine_choices import engine_choice, form_text
from shared.engines.allow_list import Bounds, Text
from shared.engines.table import PROFILES

EVERY = pytest.mark.parametrize("name", sorted(PROFILES))


@EVERY
def test_an_engine_begins_with_flags_that_it_takes(name: str) -> None:
    choice = engine_choice(PROFILES[name])

    names = {flag.name for flag in choice.flags}
    assert choice.parameters.keys() <= names
    assert choice.model
    assert all(flag.form for flag in choice.flags)


@EVERY
def test_every_note_is_of_a_flag_and_stands_first(name: str) -> None:
    profile = PROFILES[name]

    flags = engine_choice(profile).flags

    first = flags[: len(profile.flag_notes)]
    assert [flag.name for flag in first] == list(profile.flag_notes)
    assert all(flag.help.endswith(".") and flag.default for flag in first)


def test_vllm_flags_say_type_default_and_help() -> None:
    flags = {flag.name: flag for flag in engine_choice(PROFILES["vllm"]).flags}

    assert flags["gpu-memory-utilization"].form == "a number from 0 to 1"
    assert flags["gpu-memory-utilization"].default == "0.9 or 0.92"
    assert flags["tensor-parallel-size"].help == "GPUs that each layer is divided over."


def test_every_form_has_words() -> None:
    assert form_text(ParameterKind.SWITCH) == "true or false"
    assert form_text(Bounds(0.0, 0.5)) == "a number from 0 to 0.5"
    assert form_text(("a", "b")) == "one of a, b"
    assert form_text(Text.HUB_ID) == Text.HUB_ID.value
    assert form_text({"method": ("x",)}) == "an object of method"
