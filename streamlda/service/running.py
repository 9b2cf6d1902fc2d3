"""A daemon from its settings: everything opened in order, run, and closed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from streamlda.errors import SourceError
from streamlda.service.daemon import FLUSH_SECONDS, Daemon, end_at_signals
from streamlda.service.logs import log
from streamlda.service.machine import Machine, Rules
from streamlda.service.memory import Plan, check_memory
from streamlda.service.messages import Started
from streamlda.service.opening import (
    Restored,
    given_words,
    open_ledger,
    open_stream,
    open_work,
    security,
    stream_name,
)
from streamlda.service.status import Status
from streamlda.service.supervisor import Supervisor
from streamlda.service.worker import Worker
from streamlda.settings.table import MIB, Settings
from streamlda.storage.checkpoint import Checkpoints
from streamlda.storage.publishing import Publisher
from streamlda.storage.snapshots import Snapshots
from streamlda.stream.sink import DeadLetterSink, SnapshotSink, open_sink
from streamlda.stream.source import Source

#: Records that are passed over at once, behind a release.
PASS_RECORDS = 4096


def check(settings: Settings) -> Plan:
    """Return the memory plan, after all that can be checked without reading or connecting.

    Raises
    ------
    StreamLDAError
        If a daemon could not start with these settings.
    """
    words = given_words(settings)
    return check_memory(settings, None if words is None else words.n_features)


def rules_of(settings: Settings) -> Rules:
    """Return what the machine goes by."""
    return Rules(
        checkpoint_seconds=settings["checkpoint.interval"],
        queue_bytes=settings["memory.queue"],
        breaker_records=settings["breaker.records"],
        breaker_share=settings["breaker.share"],
        attempts=settings["breaker.attempts"],
        memory_patience_seconds=settings["memory.patience"],
        stop_when_exhausted=settings["snapshots.when_exhausted"] == "stop",
        release_at_end=not settings.private,
    )


def run(settings: Settings) -> int:
    """Run a daemon in the foreground; return its exit code.

    Raises
    ------
    StreamLDAError, OSError
        If it cannot start. Nothing has been read then, and nothing spent.
    """
    end_at_signals()
    for part, size in check(settings):
        log("info", "memory-plan", part=part, mib=round(size / MIB, 1))
    with ExitStack() as opened:
        supervisor = Supervisor()
        status = Status(
            private=settings.private,
            stream=stream_name(settings),
            memory_limit_bytes=settings["memory.limit"],
        )
        snapshots = Snapshots(settings["output.folder"])
        _serve(settings, status, snapshots, opened)
        store = opened.enter_context(Checkpoints.open(settings["checkpoint.folder"]))
        ledger, ended = open_ledger(settings, opened)
        if ended:
            log("warning", "release-cut-short", outcome=ended)
        restored = open_work(settings, store, ledger)
        letters = _dead_letters(settings, status, opened)
        publisher = Publisher(snapshots, _snapshot_sink(settings, opened))
        on_reject = None if letters is None else letters.put
        source = open_stream(settings, on_reject)
        opened.callback(source.close)
        _go_on(source, restored, status, supervisor, letters)

        def worker_of(tell: Any, committed: Any) -> Worker:
            # Without a group there is nowhere to show offsets.
            shown = committed if settings["kafka.group"] else lambda position: None
            return Worker(restored.work, store, publisher, status, tell, shown, ledger)

        daemon = Daemon(
            Machine(rules_of(settings)),
            source,
            source.position(),
            lambda: open_stream(settings, on_reject),
            worker_of,
            status,
            supervisor,
            dead_letters=letters,
            memory_limit_bytes=settings["memory.limit"],
        )
        return daemon.run(_started(restored, publisher))


def _started(restored: Restored, publisher: Publisher) -> Started:
    released = restored.released
    if released is not None and released.missed:
        log("warning", "no-snapshot", message=released.missed)
    if released is not None and released.model is not None:
        number = publisher.store(released.model)
        log("info", "snapshot", number=number, topics=released.model.n_components)
    return Started(
        time.monotonic(),
        restored.work.slots_left,
        rounds=restored.work.rounds,
        snapshot=publisher.snapshots.latest() is not None,
        unsaved=released is not None,
        fresh=restored.work.fresh,
    )


def _serve(settings: Settings, status: Status, snapshots: Snapshots, opened: ExitStack) -> None:
    """Begin to answer over HTTP, if there is a port."""
    if not settings["http.port"]:
        return
    from streamlda.service.http import Server, make_app

    host, token = settings["http.host"], settings["http.token"]
    app = make_app(
        status,
        snapshots,
        private=settings.private,
        token=None if token is None else token.reveal(),
        host=host,
    )
    server = Server(app, host, settings["http.port"])
    opened.callback(server.stop)
    shown = f"[{host}]" if ":" in host else host
    log("info", "http", address=f"http://{shown}:{server.port}/")


def _dead_letters(settings: Settings, status: Status, opened: ExitStack) -> DeadLetterSink | None:
    if settings["dead_letters.topic"] is None:
        return None
    sink: DeadLetterSink = open_sink(
        "kafka-dead-letters",
        settings["dead_letters.topic"],
        bootstrap_servers=settings["kafka.bootstrap"],
        with_text=settings["dead_letters.with_text"],
        security=security(settings),
    )
    opened.callback(sink.close)
    return _Counted(sink, status)


class _Counted:
    """Dead letters that are counted as they go."""

    def __init__(self, sink: DeadLetterSink, status: Status) -> None:
        self._sink, self._status = sink, status
        self.flush, self.close = sink.flush, sink.close

    def put(self, record: Any, reason: str) -> None:
        self._sink.put(record, reason)
        self._status.count_dead_letter(reason)


def _snapshot_sink(settings: Settings, opened: ExitStack) -> SnapshotSink | None:
    if settings["output.topic"] is None:
        return None
    sink: SnapshotSink = open_sink(
        "kafka-snapshots",
        settings["output.topic"],
        bootstrap_servers=settings["kafka.bootstrap"],
        security=security(settings),
    )
    opened.callback(sink.close)
    return sink


def _go_on(
    source: Source,
    restored: Restored,
    status: Status,
    supervisor: Supervisor,
    letters: DeadLetterSink | None,
) -> None:
    """Take the source behind the checkpoint, and behind what a release has used since.

    Raises
    ------
    SourceError
        If the source is not there any more, or ends before that, or if what was rejected on the
        way cannot be made durable.
    """
    saved = restored.checkpoint
    if saved is not None:
        for problem in saved.skipped:
            log("error", "checkpoint-passed-over", message=problem)
        log("info", "checkpoint-restored", generation=saved.generation)
        source.seek(saved.position)
    left = restored.slots_to_skip
    if left:
        log("warning", "records-of-a-release-passed", records=left)
    while left:
        status.beat()
        supervisor.alive()
        batch = source.poll(min(left, PASS_RECORDS), 1.0)
        batch.check(PASS_RECORDS)
        left -= batch.n_records
        if batch.exhausted and left:
            raise SourceError(
                "a source must still hold what a release has used, got its end with "
                f"records_missing={left}; bring the source back"
            )
    if restored.slots_to_skip and letters is not None:
        # The checkpoint that passes them comes next.
        letters.flush(FLUSH_SECONDS)
