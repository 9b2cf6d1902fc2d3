"""A daemon from its settings: everything opened in order, run, and closed."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn

from streamlda.errors import SourceAwayError
from streamlda.learner import NEVER_BY_ITSELF
from streamlda.run.opening import OpenedRun, open_ledger, open_pipeline
from streamlda.run.parts import check_outputs, name_stream, open_letters
from streamlda.service.daemon import TICK_SECONDS, Daemon, Run
from streamlda.service.lease import Lease, check_beginning
from streamlda.service.letters import Letters
from streamlda.service.logs import log, log_failure, name_reason
from streamlda.service.memory import check_memory
from streamlda.service.messages import StartDone
from streamlda.service.partitions import Partitions, PartitionsWorker, SharedSource
from streamlda.service.rules import Retry, Rules
from streamlda.service.signals import end_at_once, leave, watch_signals
from streamlda.service.status import Status
from streamlda.service.worker import Worker
from streamlda.settings.build import public_words
from streamlda.settings.rules import GROUP
from streamlda.settings.table import HttpSettings, RunSettings
from streamlda.storage.partitions import PROJECTION, open_shared_folder
from streamlda.storage.snapshots import Snapshots
from streamlda.storage.store import Store
from streamlda.stream.source import Position, Source
from streamlda.utils import exit_codes
from streamlda.utils.process import get_memory_limit


def check(settings: RunSettings) -> str:
    """Check all that needs no reading or connecting; return a line on the memory needed."""
    check_outputs(settings)
    words = public_words(settings)
    return check_memory(settings, None if words is None else words.n_features)


def make_rules(settings: RunSettings) -> Rules:
    """Return what the machine goes by."""
    return Rules(
        checkpoint_seconds=settings.checkpoint.interval,
        queue_bytes=settings.memory.queue,
        breaker_records=settings.breaker.records,
        # A daemon that stops for one more rejected record would tell of that record.
        breaker_share=1.0 if settings.private else settings.breaker.share,
        attempts=settings.breaker.attempts,
        stop_when_exhausted=settings.snapshots.when_exhausted == "stop",
        snapshot_seconds=settings.snapshots.seconds,
        release_at_end=not settings.private,
    )


class DaemonParts(NamedTuple):
    """A daemon's parts: settings, what is shown and published, and what is closed in the end."""

    settings: RunSettings
    status: Status
    snapshots: Snapshots
    until_end: ExitStack

    def wait_for(
        self, what: str, open_it: Callable[[], Any], away: type[OSError] = SourceAwayError
    ) -> Any:
        """Return what `open_it` does, called again while that is away, and close it in the end."""
        retry, status = Retry(what), self.status
        while True:
            try:
                found = open_it()
            except away as error:
                reason, now = name_reason(error), time.monotonic()
                log_failure("open-failed", error)
                # Dead letters go to the brokers of the source; only their topic is their own.
                of_source = what == "dead-letters" and reason != "topic-missing"
                if retry.what != (stalled := "source" if of_source else what):
                    status.show(retry.note_success(now))
                    retry = Retry(stalled)
                status.count_failure(stalled, reason)
                status.show(retry.note_failure(now, reason))
            else:
                status.show(retry.note_success(time.monotonic()))
                if hasattr(found, "close"):
                    self.until_end.callback(found.close)
                return found
            while retry.waits(time.monotonic()):
                status.beat()
                time.sleep(TICK_SECONDS)

    def letters(self) -> Letters:
        """Open the topic for rejected records, if there is one, as soon as it is there."""
        settings, topic = self.settings, self.settings.dead_letters.topic
        sink = self.wait_for("dead-letters", lambda: open_letters(topic, settings.kafka))
        return Letters(sink, self.status, settings)

    def run(self, rules: Rules, letters: Letters, open_run: Callable[[], Run]) -> int:
        """Run the daemon to its end; return its exit code."""
        daemon = Daemon(rules, open_run, self.status, flush=letters.try_to_flush)
        code = daemon.run(open_run())
        if code == exit_codes.DATA:
            letters.keep_note()
        return code


def run(settings: RunSettings) -> int:
    """Run a daemon in the foreground; return its exit code.

    If it cannot start it raises, and nothing has been read or spent.
    """
    watch_signals(end_at_once, late=lambda: None)
    log("info", "settings-checked", memory=check(settings))
    assert settings.output.folder is not None
    with ExitStack() as until_end:
        status, snapshots = make_status(settings), Snapshots(settings.output.folder)
        serve(settings.http, status, snapshots, until_end, private=settings.private)
        opened = DaemonParts(settings, status, snapshots, until_end)
        shared = settings.source.kind == "kafka" and settings.kafka.partitions == GROUP
        return _run_shared(opened) if shared else _run_alone(opened)


def _run_alone(parts: DaemonParts) -> int:
    """Learn all that the source has; return the exit code."""
    settings, status, snapshots, until_end = parts
    folder, output = settings.checkpoint.folder, settings.output
    store: Store = parts.wait_for(
        "checkpoint", lambda: Store.open(folder, file=output.file, keep=output.keep), OSError
    )
    parts.wait_for(
        "output", lambda: store.open_snapshots(snapshots, private=settings.private), OSError
    )
    status.note_snapshot(store.newest_summary())
    letters = parts.letters()
    letters.read_note(store)
    ledger = parts.wait_for(
        "output",
        lambda: open_ledger(
            *(settings, until_end, store),
            lambda ended: log("warning", "release-cut-short", outcome=ended),
        ),
    )

    first: list[OpenedRun] = []

    def open_run() -> Run:
        found = open_pipeline(
            *(settings, store, ledger),
            warn=lambda message: log("warning", "opening", message=message),
        )
        if not first:
            first.append(found)
        for problem in () if found.checkpoint is None else found.checkpoint.skipped:
            log("error", "checkpoint-skipped", message=problem)
        if found.checkpoint is not None:
            log("info", "checkpoint-restored", generation=found.checkpoint.generation)
        if found.slots_to_skip:
            log("warning", "records-of-a-release-skipped", records=found.slots_to_skip)

        def open_source(position: Position | None) -> Source:
            source = found.begin_source(position, letters.on_rejected)
            letters.begin(source.position())
            return source

        pipeline, private = found.pipeline, {"ledger": ledger, "unstored": found.released}
        started = StartDone(
            time.monotonic(),
            pipeline.due,
            unsaved=found.released is not None,
            since_release=pipeline.since_release,
            unfinished=pipeline.progress.unfinished,
            has_words=pipeline.has_words,
        )
        make_worker = partial(Worker, pipeline, store, status, **private)
        return Run(open_source, make_worker, started)

    code = parts.run(make_rules(settings), letters, open_run)
    if code and (message := first[0].spending):
        log("warning", "budget", message=message)
    return code


def _run_shared(parts: DaemonParts) -> int:
    """Learn the partitions that are ours, as they come and go; return the exit code."""
    settings, status, snapshots, _ = parts
    path = settings.checkpoint.folder
    assert path is not None
    folder = parts.wait_for("checkpoint", lambda: open_shared_folder(path), OSError)
    letters = parts.letters()
    lease = Lease(settings, folder, status, snapshots)
    lease.start()
    _wait_for_beginning(folder, lease, status)
    partitions = Partitions(
        *(settings, folder, check_beginning(settings, folder), lease),
        on_account=lambda reason: status.count_failure("account", reason),
        on_open=letters.read_note,
    )

    def open_run() -> Run:
        return Run(
            # Each state has its own position.
            lambda position: SharedSource(settings, partitions, status, letters),
            partial(PartitionsWorker, partitions, status),
            StartDone(time.monotonic(), NEVER_BY_ITSELF),
        )

    # Snapshots are made from checkpoints, and not by what learns.
    rules = replace(make_rules(settings), snapshot_seconds=None, release_at_end=False)
    return parts.run(rules, letters, open_run)


def _wait_for_beginning(folder: Path, lease: Lease, status: Status) -> None:
    """Wait until what daemons share is there: made here, by whoever has the lease, or given."""
    retry = Retry("beginning")
    while not (folder / PROJECTION).exists():
        lease.check()
        reason = (lease.prevented or "made-here") if lease.is_held else "made-by-another"
        status.show(retry.note_stall(time.monotonic(), reason))
        status.beat()
        time.sleep(TICK_SECONDS)
    status.show(retry.note_success(time.monotonic()))


def make_status(settings: RunSettings) -> Status:
    """Return the status of a daemon that starts."""
    limit = get_memory_limit()
    return Status(private=settings.private, stream=name_stream(settings), memory_limit_bytes=limit)


def serve(
    http: HttpSettings, status: Status, snapshots: Snapshots, until_end: ExitStack, *, private: bool
) -> None:
    """Begin to answer over HTTP, if there is a port."""
    if not http.port:
        return
    from streamlda.service.http import Server, make_app

    token, operator_token = (
        None if secret is None else secret.reveal() for secret in (http.token, http.operator_token)
    )
    tokens = {"token": token, "operator_token": operator_token}
    app = make_app(status, snapshots, private=private, host=http.host, **tokens)
    server = Server(app, http.host, http.port)
    until_end.callback(server.stop)
    shown = f"[{http.host}]" if ":" in http.host else http.host
    log("info", "http", address=f"http://{shown}:{server.port}/")


def wait_for_signal(code: int, reason: str, settings: RunSettings | HttpSettings) -> NoReturn:
    """Serve what is published, and why nothing is read; end with the code at the first signal.

    Compose and Kubernetes restart a container whatever its exit code says: after 65 and 78 it would
    read the same records again and again. Refused settings have those of HTTP alone.
    """
    watch_signals(lambda number: leave(code), late=lambda: None)
    log("error", "waits-after-refusal", code=code, reason=reason)
    if isinstance(settings, RunSettings):
        status, http, private = make_status(settings), settings.http, settings.private
        folder = settings.output.folder
    else:
        # Nothing is shown of what no settings are known of.
        status, http, private = Status(private=True, stream="refused"), settings, True
        folder = None
    with ExitStack() as opened:
        folder = folder or opened.enter_context(TemporaryDirectory())
        status.note(phase="refused", not_ready=reason)
        serve(http, status, Snapshots(folder), opened, private=private)
        while True:
            status.beat()
            time.sleep(TICK_SECONDS)
