"""How much a line of a log says about why its writer ended.

An engine survives what it only warns of, echoes its settings, gives hints for failures that have
not happened, and its parent processes report that a child has ended. A raised error says most.
"""

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Final


class Weight(IntEnum):
    """What a line is, the least telling first."""

    NOTHING = 0  # said in passing: information, settings, hints, source code, ends of children
    WARNING = 1
    TEXT = 2  # of no level, or logged as an error
    RAISED = 3  # the last line of a traceback, or what a program says as it gives up


# Process, rank and time, then level and place:
# (EngineCore_DP0 pid=210) ERROR 11-27 10:00:09 [core.py:708]
_PREFIX: Final = re.compile(
    r"""^(?:
        \([^()]*pid=\d+[^()]*\)\s?
      | \[rank\d+\]:\s?
      | \[\d{4}-\d\d-\d\d[ T][^\]]*\]\s?
      | \[[WECIF]\d{3,4}\s[^\]]*\]\s?
      | \[\d+\]\s
      | \d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s?
      | \d+\.\d\d\.\d{3}\.\d{3}\s
      | [IWED]\s(?=[a-z_]+:|srv|slot)
      | (?:-\s)?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b(?:\s-)?:?\s*
      | \d\d-\d\d\s[\d:.]+\s
      | \[?[\w./-]+\.(?:py|cpp|cc):\d+\]:?\s?
      | -\s[\w.]+\s-\s
    )+""",
    re.VERBOSE,
)
_LEVEL: Final = re.compile(
    r"\b(?P<name>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b"
    r"|\[(?P<torch>[WECIF])\d{3,4}\s|^(?:\[\d+\]\s)?[\d.]+\s(?P<ggml>[IWED])\s"
)
_PASSING_LEVELS: Final = frozenset({"DEBUG", "INFO", "I", "D"})
_WARNING_LEVELS: Final = frozenset({"WARNING", "WARN", "W"})
_ECHO: Final = re.compile(
    r"Namespace\(|non-default args|server_args=|\bServerArgs\(|engine_args|LLM engine \(v"
    r"|llama_model_loader: - kv|print_info:|system_info:"
)
_HINT: Final = re.compile(
    r"(if |please |try |hint\b|note\b|to silence|you can |consider |for debugging consider"
    r"|compile with `TORCH_USE)",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r'\s+File "[^"]*", line \d+|\s*[\^~]+\s*$|frame #\d+')
_SOURCE_FILE: Final = re.compile(r'\s+File "[^"]*", line \d+')
# What processes say of others that have ended, whatever ended them.
_OF_A_CHILD: Final = re.compile(
    r"engine (core|process) (initialization )?failed|EngineCore failed to start|EngineDeadError"
    r"|EngineCore encountered (an issue|a fatal error)|received sigquit from a child"
    r"|destroy_process_group\(\) was not called|resource_tracker:|WorkerProc initialization failed"
    r"|see (the )?(root cause|stack trace)|child process|exiting due to model loading error",
    re.IGNORECASE,
)
_WARNINGS_OF_PYTHON: Final = re.compile(r"\b(User|Future|Deprecation|Runtime|Import)Warning: ")
_RAISED: Final = re.compile(
    r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|OutOfMemory|Timeout|Unknown|NotFound"
    r"|NotLoaded|IsEnabled)(_\w+)?(: |$)"
    r"|(Exception|AttributeError|terminate called|Assertion|panic|fatal)\b"
)


def weigh_lines(text: str) -> Iterator[tuple[Weight, str]]:
    """Yield the lines that say something, each with how much, in order."""
    is_after_place = False
    for line in text.splitlines():
        message = _PREFIX.sub("", line)
        is_code = is_after_place and message.startswith("    ")
        weight = Weight.NOTHING if is_code else _weight_of(line, message)
        is_after_place = _SOURCE_FILE.match(message) is not None
        if weight:
            yield weight, line


def _weight_of(line: str, message: str) -> Weight:
    level = _LEVEL.search(line[:120])
    name = next(filter(None, level.groups()), "") if level is not None else ""
    is_passing = name in _PASSING_LEVELS and not _is_error_all_the_same(line)
    if is_passing or _CODE.match(message) or _HINT.match(message.lstrip()):
        return Weight.NOTHING
    if _ECHO.search(line) or _OF_A_CHILD.search(line):
        return Weight.NOTHING
    if name in _WARNING_LEVELS and not _is_error_all_the_same(line):
        return Weight.WARNING
    if _WARNINGS_OF_PYTHON.search(line):
        return Weight.WARNING
    return Weight.RAISED if _RAISED.match(message) else Weight.TEXT


def _is_error_all_the_same(line: str) -> bool:
    """Return whether the level understates: NCCL warns of what ends it, other programs relay lines
    of an engine under a level of their own.
    """
    return "NCCL WARN" in line or " Traceback (most recent call last)" in line
