from services.executor.runtimes.log_position import LogPosition


def piece(nanoseconds: int, text: str) -> bytes:
    return f"2026-01-02T03:04:05.{nanoseconds:09}Z {text}\n".encode()


def admitted(position: LogPosition, *pieces: bytes) -> list[bytes]:
    return [new for each in pieces if (new := position.admit(each))]


def test_first_stream_is_read_from_beginning() -> None:
    position = LogPosition()

    assert position.begin() is None
    assert admitted(position, piece(1, "a"), piece(2, "b")) == [b"a\n", b"b\n"]


def test_after_a_break_only_what_follows_is_new() -> None:
    position = LogPosition()
    position.begin()
    admitted(position, piece(1, "a"), piece(2, "b"))

    since = position.begin()

    assert since == 1767323045
    assert admitted(position, piece(1, "a"), piece(2, "b"), piece(3, "c")) == [b"c\n"]


def test_pieces_with_same_time_are_counted() -> None:
    position = LogPosition()
    position.begin()
    admitted(position, piece(7, "x"), piece(7, "y"))

    position.begin()

    again = (piece(7, "x"), piece(7, "y"), piece(7, "z"), piece(8, "end"))
    assert admitted(position, *again) == [b"z\n", b"end\n"]


def test_earlier_time_within_stream_is_kept() -> None:
    position = LogPosition()
    position.begin()

    assert admitted(position, piece(2, "out"), piece(1, "error")) == [b"out\n", b"error\n"]


def test_what_carries_no_time_is_kept_as_it_is() -> None:
    position = LogPosition()
    position.begin()

    assert admitted(position, b"bare\n") == [b"bare\n"]
