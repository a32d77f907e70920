"""The rows of a dataset: a prompt each, with the answer that it got where there is one."""

import csv
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.task.dataset import DatasetColumns, DatasetFormat, DatasetSpec
from shared.datasets.bounds import MAX_ROW_BYTES, MAX_ROWS, DatasetRefused
from shared.datasets.pieces import split_array, split_lines

PROMPT_COLUMNS: Final = (
    *("prompt", "text", "question", "instruction", "input", "query", "content"),
    *("messages", "conversations"),
)
ANSWER_COLUMNS: Final = ("answer", "response", "completion", "output")
LENGTH_COLUMNS: Final = ("output_tokens", "num_output_tokens", "max_tokens")
_ENDINGS: Final = {"csv": DatasetFormat.CSV, "txt": DatasetFormat.TEXT, "text": DatasetFormat.TEXT}
_JSON_BEGINNINGS: Final = ("[", "{", '"')
_ASKERS: Final = frozenset({"human", "user"})
_ANSWERERS: Final = frozenset({"gpt", "assistant", "chatgpt", "model", "bing", "bard"})
_BODY: Final = "body"  # of OpenAI's batch form
_SHOWN_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class Row:
    """An empty prompt: the row has none. `output_tokens` is the answer's length as it is given."""

    prompt: str
    answer: str = ""
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """What is read as `format`; it is read once."""

    format: DatasetFormat
    rows: Iterator[Row]


def read_rows(texts: Iterable[str], spec: DatasetSpec, name: str) -> Rows:
    """Read the rows of a dataset called `name` as the task says, or as it looks.

    Raises DatasetRefused, also while the rows are read.
    """
    source = iter(texts)
    first = next(source, "")
    while not first.strip() and (more := next(source, None)) is not None:
        if len(first) > MAX_ROW_BYTES:
            raise DatasetRefused("expected a dataset with rows, got one that begins with blanks")
        first += more
    if not first.strip():
        raise DatasetRefused("expected a dataset with rows, got an empty file")
    beginning = first.lstrip()[:1]
    texts = itertools.chain([first], source)
    format_of_file = spec.format
    if format_of_file is DatasetFormat.AUTO:
        ending = name.lower().removesuffix(".gz").removesuffix(".zst").rpartition(".")[2]
        is_json = beginning in _JSON_BEGINNINGS
        format_of_file = _ENDINGS.get(ending, DatasetFormat.AUTO if is_json else DatasetFormat.TEXT)
    if format_of_file is DatasetFormat.TEXT:
        rows: Iterator[Row] = (Row(line.strip()) for line in split_lines(texts))
    elif format_of_file is DatasetFormat.CSV:
        rows = _read_csv(texts, spec.columns)
    else:
        values = split_array(texts) if beginning == "[" else _json_lines(texts)
        first_value = next(values, None)
        if format_of_file is DatasetFormat.AUTO:
            format_of_file = _format_of(first_value)
        read = _READERS[format_of_file]
        rows = (read(value, spec.columns) for value in itertools.chain([first_value], values))
    return Rows(format_of_file, _count(rows))


def column_names(columns: DatasetColumns) -> list[str]:
    """Return the names of all columns that may be read of a row."""
    own_names = (columns.prompt, columns.answer, columns.output_tokens)
    names = (*own_names, *PROMPT_COLUMNS, *ANSWER_COLUMNS, *LENGTH_COLUMNS, _BODY)
    return list(dict.fromkeys(name for name in names if name is not None))


def _count(rows: Iterator[Row]) -> Iterator[Row]:
    for number, row in enumerate(rows, start=1):
        if number > MAX_ROWS:
            raise DatasetRefused(f"expected at most {MAX_ROWS:,} rows, got more")
        yield row


def _json_lines(texts: Iterable[str]) -> Iterator[Any]:
    for number, line in enumerate(split_lines(texts), start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except RecursionError as error:
            raise DatasetRefused(f"line {number} is nested too deep") from error
        except ValueError as error:
            raise DatasetRefused(
                f"expected JSON in line {number}: {error}; for plain text say format: text"
            ) from error


def _format_of(value: Any) -> DatasetFormat:
    if isinstance(value, dict):
        if isinstance(value.get("conversations"), list):
            return DatasetFormat.SHAREGPT
        if isinstance(_body(value).get("messages"), list):
            return DatasetFormat.MESSAGES
    return DatasetFormat.PROMPTS


def _body(value: Any) -> Mapping[str, Any]:
    """Return the request's body in OpenAI's batch form, else the value itself."""
    if not isinstance(value, dict):
        return {}
    body = value.get(_BODY)
    return body if isinstance(body, dict) else value


def _read_sharegpt(value: Any, columns: DatasetColumns) -> Row:
    fields = _body(value)
    turns = fields.get(columns.prompt or "conversations")
    prompt = answer = ""
    for turn in turns if isinstance(turns, list) else []:
        speaker, text = _turn(turn)
        if not prompt and speaker in _ASKERS:
            prompt = text
        elif prompt and speaker in _ANSWERERS:
            answer = text
            break
    return Row(prompt, answer, _length(fields, columns))


def _read_messages(value: Any, columns: DatasetColumns) -> Row:
    fields = _body(value)
    return _row_of_messages(
        fields.get(columns.prompt or "messages"), length=_length(fields, columns)
    )


def _row_of_messages(messages: Any, length: int | None = None) -> Row:
    """Return all that was said as one prompt, the last answer beside it."""
    turns = [_turn(message) for message in messages] if isinstance(messages, list) else []
    answer = turns.pop()[1] if turns and turns[-1][0] in _ANSWERERS else ""
    return Row("\n\n".join(text for _, text in turns if text), answer, length)


def _turn(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict):
        return "", ""
    speaker = value.get("from", value.get("role"))
    return str(speaker).lower(), _text(value.get("value", value.get("content")))


def _text(value: Any) -> str:
    """Return a text as one that every engine takes; of a message's parts the texts."""
    if isinstance(value, list):
        value = "\n".join(
            part["text"]
            for part in value
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    if not isinstance(value, str):
        return ""
    return value.encode(errors="replace").decode().strip()


def _read_prompts(value: Any, columns: DatasetColumns) -> Row:
    return Row(_text(value)) if isinstance(value, str) else _row_of_fields(_body(value), columns)


def _row_of_fields(fields: Mapping[str, Any], columns: DatasetColumns) -> Row:
    prompts = (columns.prompt,) if columns.prompt else PROMPT_COLUMNS
    prompt = next((fields[name] for name in prompts if fields.get(name)), "")
    length = _length(fields, columns)
    if isinstance(prompt, str) and prompt.lstrip().startswith(("[{", "{")):
        prompt = _parse_list(prompt)
    if isinstance(prompt, list) and any(_turn(part)[1] for part in prompt):
        return _row_of_messages(prompt, length)
    answers = (columns.answer,) if columns.answer else ANSWER_COLUMNS
    answer = next((fields[name] for name in answers if fields.get(name)), "")
    return Row(_text(prompt), _text(answer), length)


def _parse_list(text: str) -> Any:
    """Return the messages that a cell has as JSON, else the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, dict):
        value = value.get("messages")
    is_list = isinstance(value, list) and value
    return value if is_list and all(isinstance(turn, dict) for turn in value) else text


def _length(fields: Mapping[str, Any], columns: DatasetColumns) -> int | None:
    names = (columns.output_tokens,) if columns.output_tokens else LENGTH_COLUMNS
    value = next((fields[name] for name in names if fields.get(name)), None)
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _read_csv(texts: Iterable[str], columns: DatasetColumns) -> Iterator[Row]:
    csv.field_size_limit(MAX_ROW_BYTES)
    reader = csv.reader(split_lines(texts))
    number = 0
    try:
        header = [name.strip() for name in next(reader, [])]
        prompt_columns = (columns.prompt,) if columns.prompt else PROMPT_COLUMNS
        if not set(prompt_columns) & set(header):
            listed = ", ".join(header[:_SHOWN_NAMES])[:500]
            raise DatasetRefused(
                f"expected a column {' or '.join(prompt_columns)} in the CSV, it has {listed}: "
                "name the prompt's column",
                "columns.prompt",
            )
        for number, cells in enumerate(reader, start=1):  # noqa: B007  # said by the error
            yield _row_of_fields(dict(zip(header, cells, strict=False)), columns)
    except csv.Error as error:
        message = f"expected CSV, after row {number} came something else: {error}"
        raise DatasetRefused(message) from error


_READERS: Final[Mapping[DatasetFormat, Callable[[Any, DatasetColumns], Row]]] = {
    DatasetFormat.SHAREGPT: _read_sharegpt,
    DatasetFormat.MESSAGES: _read_messages,
    DatasetFormat.PROMPTS: _read_prompts,
}
