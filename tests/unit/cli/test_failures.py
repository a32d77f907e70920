"""How commands fail: exit code, sentence, problem JSON."""

from typing import Any

import click
import msgspec
import pytest

from schemas.errors import EXIT_CODE, HTTP_STATUS, ErrorCode
from schemas.gateway.problem import Problem
from services.cli.failures import CommandFailed, in_plain_words, report, sentence, wants_json
from shared.client.errors import ApiError, PlatformUnreachable
from shared.errors import RefusedError
from tests.support.tables import for_each


def make_problem(code: ErrorCode, **changes: str) -> Problem:
    given = {"type": "about:blank", "title": code.value, "detail": "it is so", "code": code.value}
    return msgspec.convert({"status": HTTP_STATUS[code], **given, **changes}, Problem)


@for_each("code", ErrorCode)
def test_refusal_has_exit_code_of_table(
    code: ErrorCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(ApiError(make_problem(code)), ["tasks"]) == EXIT_CODE[code]
    assert capsys.readouterr().err.startswith("gpusteward: it is so")


def test_the_offending_field_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    problem = make_problem(ErrorCode.BAD_REQUEST, path="$.model.id_or_path")

    report(ApiError(problem), ["submit", "x.json"])

    assert capsys.readouterr().err == "gpusteward: it is so (at $.model.id_or_path)\n"


def test_unreachable_platform_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = report(PlatformUnreachable("nothing answers at http://x"), ["gpus"])

    assert code == EXIT_CODE[ErrorCode.UNAVAILABLE]
    assert capsys.readouterr().err == (
        "gpusteward: nothing answers at http://x; start it with `gpusteward up`\n"
    )


def test_json_error_is_problem_document(capsys: pytest.CaptureFixture[str]) -> None:
    report(CommandFailed(ErrorCode.NOT_FOUND, "no such task"), ["show", "x", "--json"])

    problem = msgspec.json.decode(capsys.readouterr().err, type=Problem)
    assert (problem.code, problem.status, problem.detail) == ("not_found", 404, "no such task")


def test_unknown_code_is_an_internal_error() -> None:
    problem = msgspec.structs.replace(make_problem(ErrorCode.CONFLICT), code="brand_new")

    assert report(ApiError(problem), []) == EXIT_CODE[ErrorCode.INTERNAL]


def test_json_after_dashes_belongs_to_command() -> None:
    assert not wants_json(["exec", "--gpus", "1", "--", "tool", "--json"])
    assert wants_json(["tasks", "--json"])


@pytest.mark.parametrize(
    ("type_", "value", "says"),
    [
        (click.Choice(["team", "person"]), "persn", "'person'; did you mean 'person'?"),
        (click.Choice(["team", "person"]), "zebra", "'team', 'person'"),
        (click.IntRange(1, 8), "none", "expected a whole number >= 1 and <= 8, got 'none'"),
        (click.INT, "1.5", "expected a whole number, got '1.5'"),
        (click.FloatRange(0), "x", "expected a number >= 0, got 'x'"),
        (click.IntRange(1, 8), "9", "9 is not in the range 1<=x<=8."),
    ],
)
def test_a_wrong_option_says_what_was_expected(
    type_: click.ParamType[Any], value: str, says: str
) -> None:
    option = click.Option(["--given"], type=type_)
    with pytest.raises(click.BadParameter) as refused:
        type_.convert(value, option, None)

    message = in_plain_words(refused.value).message

    assert message.endswith(says)


def test_message_with_command_has_no_second_hint() -> None:
    problem = make_problem(ErrorCode.NOT_FOUND, detail="no preset; `gpusteward preset list`")

    assert sentence(problem) == "no preset; `gpusteward preset list`"


def test_several_mistakes_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    mistakes = [{"path": "$.a", "message": "it is so"}, {"path": "$.b", "message": "so too"}]
    refused = RefusedError(
        ErrorCode.BAD_REQUEST, "it is so", path="$.a", details={"mistakes": mistakes}
    )

    report(refused, ["validate", "x.json"])
    report(refused, ["validate", "x.json", "--json"])

    shown, document = capsys.readouterr().err.split("\n{")
    assert shown == "gpusteward: 2 mistakes:\n  $.a: it is so\n  $.b: so too"
    assert msgspec.json.decode("{" + document)["details"] == {"mistakes": mistakes}
