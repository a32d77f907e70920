"""The prompts of a dataset, selected by the engine that is measured."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from schemas.task.dataset import DatasetFormat, DatasetSpec, DatasetUse, DropReason, LengthUnit
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.prompts import PROMPTS_NAME, write_prompts
from shared.benchmarks.traffic import PromptText
from shared.datasets.bounds import DatasetRefused
from shared.datasets.pieces import decode, unpack
from shared.datasets.rows import Row, column_names, read_rows
from shared.datasets.selection import (
    Candidates,
    answer_length,
    count_words,
    draw_candidates,
    refuse_length,
)
from shared.load_files.places import FetchedFile

_AT_ONCE: Final = 16  # texts whose tokens the engine counts
_REFUSED_AT_ONCE: Final = 256


async def prepare_prompts(
    fetched: FetchedFile, dataset: DatasetSpec, server: ChatServer, directory: Path
) -> tuple[Path, DatasetUse]:
    """Select the dataset's rows and write them into the directory. Raises DatasetRefused."""

    def draw() -> tuple[Candidates, DatasetFormat]:
        texts = decode(unpack(fetched.read_chunks(column_names(dataset.columns))))
        reading = read_rows(texts, dataset, fetched.name)
        return draw_candidates(reading.rows, dataset), reading.format

    drawn, read_as = await asyncio.to_thread(draw)
    counted = Counter(drawn.dropped)
    counter = _TokenCounter(server)
    prompts = await _select(drawn.rows, dataset, counter, counted)
    if not prompts:
        raise DatasetRefused(_say_nothing_left(drawn.rows_read, counted, dataset))
    path = directory / PROMPTS_NAME
    await asyncio.to_thread(write_prompts, path, prompts)
    return path, DatasetUse(
        sha256=fetched.sha256,
        format=read_as,
        rows=drawn.rows_read,
        used=len(prompts),
        dropped={reason: counted[reason] for reason in DropReason if counted[reason]},
        length_unit=LengthUnit.WORDS if counter.is_refused else LengthUnit.ENGINE_TOKENS,
        mean_input_tokens=fmean(prompt.num_input_tokens for prompt in prompts),
        mean_output_tokens=fmean(prompt.num_output_tokens for prompt in prompts),
    )


class _TokenCounter:
    """Counts tokens by the engine, or words once it has refused."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self.is_refused = False

    async def count(self, texts: Sequence[str]) -> list[int]:
        if not self.is_refused:
            counts = await asyncio.gather(*map(self._server.count_tokens, texts))
            lengths = [count for count in counts if count is not None]
            if len(lengths) == len(texts):
                return lengths
            self.is_refused = True
        return count_words(texts)


async def _select(
    rows: Sequence[Row], dataset: DatasetSpec, counter: _TokenCounter, counted: Counter[DropReason]
) -> list[PromptText]:
    """Take rows in their order until there are enough; add to `counted` why others are dropped.

    Starts again in words where the engine ceases to count, so that all lengths are of one kind.
    """
    was_refused = counter.is_refused
    dropped: Counter[DropReason] = Counter()
    prompts: list[PromptText] = []
    batch_size = _REFUSED_AT_ONCE if was_refused else _AT_ONCE
    place = 0
    while place < len(rows) and len(prompts) < dataset.sample:
        batch = rows[place : place + min(batch_size, dataset.sample - len(prompts))]
        place += len(batch)
        lengths = await counter.count([row.prompt for row in batch])
        fitting = []
        for row, length in zip(batch, lengths, strict=True):
            if (reason := refuse_length(length, dataset)) is not None:
                dropped[reason] += 1
            else:
                fitting.append((row, length))
        with_answer = [row for row, _ in fitting if row.answer and row.output_tokens is None]
        answers = dict(
            zip(
                map(id, with_answer),
                await counter.count([row.answer for row in with_answer]) if with_answer else [],
                strict=True,
            )
        )
        if counter.is_refused is not was_refused:
            return await _select(rows, dataset, counter, counted)
        prompts += [
            PromptText(
                row.prompt, max(1, length), answer_length(row, answers.get(id(row)), dataset)
            )
            for row, length in fitting
        ]
    dropped[DropReason.NOT_SAMPLED] += len(rows) - place
    counted.update(dropped)
    return prompts


def _say_nothing_left(rows: int, dropped: Counter[DropReason], dataset: DatasetSpec) -> str:
    reasons = ", ".join(
        f"{count} {reason.value.replace('_', ' ')}" for reason, count in dropped.items() if count
    )
    advice = (
        ": see columns.prompt, and format"
        if dropped[DropReason.EMPTY] == rows
        else f": expected at least {dataset.min_input_tokens} tokens"
        + (f", at most {dataset.max_input_tokens}" if dataset.max_input_tokens else "")
    )
    return f"no row of the dataset can be used, of {rows} rows {reasons or 'none'}{advice}"
