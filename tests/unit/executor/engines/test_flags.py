import argparse

import pytest

from shared.engines.flags import Flag, FlagKind, render, server_parser

THREADS = Flag(name="threads", kind=FlagKind.INTEGER, minimum=1, maximum=8, help="threads")
RATE = Flag(name="error-rate", kind=FlagKind.NUMBER, minimum=0, maximum=1, help="rate")
CACHE = Flag(name="cache-prompt", kind=FlagKind.SWITCH, help="cache")
TYPE = Flag(name="cache-type-k", kind=FlagKind.CHOICE, choices=("f16", "q8_0"), help="type")


@pytest.mark.parametrize(
    ("flag", "value", "want"),
    [
        pytest.param(THREADS, 2, ["--threads", "2"], id="an integer"),
        pytest.param(THREADS, "2", ["--threads", "2"], id="an integer written as text"),
        pytest.param(RATE, 0.5, ["--error-rate", "0.5"], id="a number"),
        pytest.param(CACHE, True, ["--cache-prompt"], id="a switch that is on"),
        pytest.param(CACHE, False, ["--no-cache-prompt"], id="a switch that is off"),
        pytest.param(CACHE, "False", ["--no-cache-prompt"], id="a switch written as text"),
        pytest.param(TYPE, "Q8_0", ["--cache-type-k", "q8_0"], id="a choice in capitals"),
    ],
)
def test_valid_value_round_trips_through_parser(flag: Flag, value: object, want: list[str]) -> None:
    arguments = render(flag.parameter, value)

    options = server_parser("server", "", [flag]).parse_args(arguments)
    read_back = getattr(options, flag.name.replace("-", "_"))
    assert arguments == want
    assert render(flag.parameter, read_back) == want


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        pytest.param(THREADS, 0, id="below the minimum"),
        pytest.param(THREADS, 9, id="above the maximum"),
        pytest.param(THREADS, 1.5, id="a fraction for an integer"),
        pytest.param(THREADS, True, id="a switch for an integer"),
        pytest.param(THREADS, [1], id="a list"),
        pytest.param(RATE, "nan", id="not a number"),
        pytest.param(CACHE, 1, id="a number for a switch"),
        pytest.param(TYPE, "f17", id="none of the choices"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(flag: Flag, value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        render(flag.parameter, value)


def test_command_line_refuses_with_expectation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser: argparse.ArgumentParser = server_parser("server", "", [THREADS])

    with pytest.raises(SystemExit):
        parser.parse_args(["--threads", "9"])

    assert "expected an integer >= 1 and <= 8, got '9'" in capsys.readouterr().err
