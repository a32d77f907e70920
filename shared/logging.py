"""Structured logs: readable on a terminal, JSON lines elsewhere."""

import contextlib
import logging
import sys
from typing import Any, TextIO, cast

import structlog

log: Any = structlog.get_logger()


class LossyStream:
    """A stream for logs: what its disk has no room for is lost, and its writer goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _ThroughStructlog(logging.Handler):
    """What libraries log, in the form of everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001  # its arguments do not fit it
            text = str(record.msg)
        log.log(record.levelno, text, logger=record.name, exc_info=record.exc_info)


def configure_logging(service: str, *, level: int = logging.INFO) -> None:
    """Send structlog and the standard library's warnings to stderr, each line marked `service`."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any
    if sys.stderr.isatty():
        # Rich ones, the default, show the values of variables, and take a second each.
        plain = structlog.dev.plain_traceback
        renderer = [structlog.dev.ConsoleRenderer(exception_formatter=plain)]
    else:
        renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, LossyStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(level=logging.WARNING, handlers=[_ThroughStructlog()])
