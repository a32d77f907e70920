"""Traces of OpenTelemetry. Until `start` nothing of it is imported, and no message has a header.

A trace goes from message to message in NATS headers. Where work goes on without the message that
began it (a queue, a lease, an engine that runs) the ids in messages lead back to it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

TRACEPARENT: Final = "traceparent"
ID_FIELDS: Final = ("attempt_id", "reservation_id", "experiment_id", "task_id")
REMEMBERED_IDS: Final = 20_000
EXPORT_SECONDS: Final = 2


class Tracing:
    """What a process that traces has: its tracer, and the contexts in which ids came first."""

    def __init__(self, service: str, processor: "SpanProcessor") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        self._provider = TracerProvider(
            resource=Resource({"service.name": f"gpusteward-{service}"})
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("gpusteward")
        self._remembered: OrderedDict[str, str] = OrderedDict()

    @contextmanager
    def span(self, name: str, parent: str | None, *, is_server: bool) -> Iterator[None]:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation import tracecontext

        context = None
        if parent is not None:
            propagator = tracecontext.TraceContextTextMapPropagator()
            context = propagator.extract({TRACEPARENT: parent})
        kind = SpanKind.SERVER if is_server else SpanKind.CLIENT
        with self._tracer.start_as_current_span(name, context, kind):
            yield

    def of(self, message: object) -> str | None:
        """The current context; that in which the message's ids came first, if it is another's."""
        ids = [str(value) for f in ID_FIELDS if (value := getattr(message, f, None)) is not None]
        current = _current()
        trace_parent = next(
            (self._remembered[message_id] for message_id in ids if message_id in self._remembered),
            None,
        )
        if current is None or (
            trace_parent is not None and _trace_id(trace_parent) != _trace_id(current)
        ):
            return trace_parent
        self.remember(ids, current)
        return current

    def remember(self, ids: list[str], traceparent: str) -> None:
        for message_id in ids:
            self._remembered.setdefault(message_id, traceparent)
        while len(self._remembered) > REMEMBERED_IDS:
            self._remembered.popitem(last=False)

    def shutdown(self) -> None:
        self._provider.shutdown()


_tracing: Tracing | None = None
_process_name: str | None = None


def name_process(name: str) -> None:
    """Have the services of this process be traced as one, by a name that is none of theirs."""
    global _process_name
    _process_name = name


def start(service: str, endpoint: str) -> None:
    """Trace this process from now on, to the collector whose URL for OTLP over HTTP this is."""
    if _process_name is not None and _tracing is not None:
        return  # for a service beside
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    url = f"{endpoint.rstrip('/')}/v1/traces"
    start_with(
        _process_name or service,
        BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=EXPORT_SECONDS)),
    )


def start_with(service: str, processor: "SpanProcessor") -> None:
    """Start tracing as `start` does, with another exporter."""
    global _tracing
    stop()
    _tracing = Tracing(service, processor)


def stop() -> None:
    """Send what is left and trace no longer."""
    global _tracing
    if _tracing is not None:
        _tracing.shutdown()
    _tracing = None


def is_on() -> bool:
    return _tracing is not None


def traceparent_of(message: object) -> str | None:
    """Return the trace context of the work that a message belongs to; None if there is none, or
    nothing is traced.
    """
    return None if _tracing is None else _tracing.of(message)


def headers(traceparent: str | None) -> dict[str, str]:
    return {} if traceparent is None else {TRACEPARENT: traceparent}


def requesting(subject: str, message: object) -> AbstractContextManager[None]:
    """Around a request that is sent."""
    if _tracing is None:
        return nullcontext()
    return _tracing.span(_name(subject), _tracing.of(message), is_server=False)


def serving(name: str, headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[None]:
    """Around what is done for a request over HTTP with these headers."""
    if _tracing is None:
        return nullcontext()
    traceparent = dict(headers).get(TRACEPARENT.encode())
    parent = None if traceparent is None else traceparent.decode("latin-1")
    return _tracing.span(name, parent, is_server=True)


def handling(
    subject: str, headers: Mapping[str, Any] | None, body: bytes
) -> AbstractContextManager[None]:
    """Around what is done for a message."""
    if _tracing is None:
        return nullcontext()
    traceparent = (headers or {}).get(TRACEPARENT)
    if traceparent is not None:
        _tracing.remember(_ids_in(body), traceparent)
    return _tracing.span(_name(subject), traceparent, is_server=True)


def _current() -> str | None:
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _trace_id(traceparent: str) -> str:
    return traceparent.split("-")[1]


def _name(subject: str) -> str:
    """A message's tag, of which there are few."""
    return ".".join(subject.split(".")[2:4])


def _ids_in(body: bytes) -> list[str]:
    try:
        message = msgspec.msgpack.decode(body)
    except msgspec.MsgspecError:
        return []
    fields = message if isinstance(message, dict) else {}
    return [str(fields[name]) for name in ID_FIELDS if fields.get(name) is not None]
