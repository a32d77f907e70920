"""Tests of several files at once, in forks of the process that has collected them.

Workers that collect by themselves, as those of pytest-xdist, spend a third of what the unit tests
take on that and on telling their results (docs/explanation/performance.md).
"""

import io
import multiprocessing
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest._io import TerminalWriter

from shared.lifecycle import die_with_parent

_fork = multiprocessing.get_context("fork")


@dataclass(slots=True)
class _Worker:
    """`node` is how pytest's terminal names the process whose report it prints."""

    node: SimpleNamespace
    process: BaseProcess
    connection: Connection
    runs: str = ""  # the test's id


class ForkedWorkers:
    """Runs each file whole in one of `count` processes; a plugin of pytest."""

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed:
            return None
        files = [list(items) for _, items in groupby(session.items, lambda item: item.path)]
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # noqa: SLF001  # one for all
        workers: dict[Connection, _Worker] = {}
        try:
            for number in range(min(self._count, len(files))):
                ours, theirs = _fork.Pipe()
                process = _fork.Process(target=_work, args=(session, files, theirs))
                process.start()
                theirs.close()
                name = f"worker {number}"
                node = SimpleNamespace(gateway=SimpleNamespace(id=name), _workerinfocache=name)
                workers[ours] = _Worker(node, process, ours)
            self._serve(session, files, workers)
        finally:
            for each in workers.values():
                each.process.kill()  # a test may have made SIGTERM something else
                each.process.join()
        return True

    def _serve(
        self,
        session: pytest.Session,
        files: list[list[pytest.Item]],
        workers: dict[Connection, _Worker],
    ) -> None:
        left = iter(range(len(files)))
        while workers:
            for connection in wait(list(workers)):
                assert isinstance(connection, Connection)
                worker = workers[connection]
                try:
                    kind, content = connection.recv()
                except EOFError:
                    worker.process.join()
                    del workers[connection]
                    if worker.process.exitcode != 0 or worker.runs:
                        raise session.Interrupted(
                            f"{worker.node.gateway.id} ended with {worker.process.exitcode}"
                            f" in {worker.runs or 'no test'}"
                        ) from None
                    continue
                if kind == "file":
                    connection.send(next(left, None))
                elif kind == "runs":
                    worker.runs = content
                else:
                    _report(session.config, content, worker)
                    if session.shouldfail:
                        raise session.Failed(session.shouldfail)
                    if session.shouldstop:
                        raise session.Interrupted(session.shouldstop)


def _report(config: pytest.Config, content: dict[str, Any], worker: _Worker) -> None:
    report = config.hook.pytest_report_from_serializable(config=config, data=content)
    report.node = worker.node
    config.hook.pytest_runtest_logreport(report=report)


class _Telling:
    """A worker's in place of pytest's terminal: what that would be told is sent."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection
        self._tw = TerminalWriter(io.StringIO())  # pytest-timeout writes every thread's stack there

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._connection.send(("runs", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        content = self._config.hook.pytest_report_to_serializable(
            config=self._config, report=report
        )
        self._connection.send(("report", content))


def _work(session: pytest.Session, files: list[list[pytest.Item]], connection: Connection) -> None:
    die_with_parent()
    config = session.config
    plugins = config.pluginmanager
    plugins.unregister(plugins.getplugin("terminalreporter"))
    plugins.register(_Telling(config, connection), "terminalreporter")
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files are shared with the other workers
    capture.start_global_capturing()
    capture.suspend_global_capture()

    def next_file() -> int | None:
        connection.send(("file", None))
        number: int | None = connection.recv()
        return number

    items = chain.from_iterable(files[number] for number in iter(next_file, None))
    # Whoever is interrupted ends this process.
    with suppress(KeyboardInterrupt):
        # Fixtures that the next one does not share are torn down with it: all with the last.
        for item, following in pairwise(chain(items, [None])):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        connection.send(("runs", ""))
