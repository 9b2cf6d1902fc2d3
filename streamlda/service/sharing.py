"""A daemon that shares the partitions of a topic with others."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from streamlda.learner import NEVER_BY_ITSELF
from streamlda.run.parts import RejectsFile
from streamlda.service import messages as m
from streamlda.service.daemon import TICK_SECONDS, Daemon, Run
from streamlda.service.lease import Lease, check_beginning
from streamlda.service.opening import Letters
from streamlda.service.partitions import Partitions, PartitionsWorker
from streamlda.service.rules import Retry, Rules
from streamlda.service.shared_source import SharedSource
from streamlda.service.status import Status
from streamlda.service.worker import Committed
from streamlda.settings.rules import GROUP
from streamlda.settings.run_settings import RunSettings
from streamlda.storage.partitions import Beginning
from streamlda.stream.source import Position, Source


def shares_partitions(settings: RunSettings) -> bool:
    """Return whether a daemon keeps a state for each partition, for others to resume from."""
    chosen = settings.kafka.partitions
    return settings.source.kind == "kafka" and (chosen == GROUP or "/" in chosen)


def run_shared(
    settings: RunSettings,
    rules: Rules,
    folder: Path,
    lease: Lease,
    status: Status,
    letters: Letters,
    opened: ExitStack,
) -> int:
    """Learn the partitions that are ours, as they come and go; return the exit code."""
    # Snapshots are made from checkpoints, and not by what learns.
    rules = replace(rules, snapshot_seconds=None, release_at_end=False)
    lease.start()
    beginning = _wait_for_beginning(folder, lease, status)
    check_beginning(settings, folder, beginning)
    rejects = settings.source.rejects
    file = None if rejects is None else opened.enter_context(RejectsFile(rejects, append=True))
    partitions = Partitions(
        *(settings, folder, beginning, lease, None if file is None else file.write),
        on_account=lambda reason: status.count_failure("account", reason),
    )
    workers: list[PartitionsWorker] = []

    def worker_of(tell: Callable[[m.Event], None], commit: Committed) -> PartitionsWorker:
        committed = commit if settings.kafka.group else lambda position, note: None
        workers.append(PartitionsWorker(partitions, status, tell, committed))
        return workers[0]

    def open_source(position: Position | None) -> Source:
        found: Any = SharedSource(
            *(settings, partitions, status, workers[0].in_order),
            letters=letters,
            show=status.show,
        )
        return cast("Source", found)

    def open_run() -> Run:
        return Run(open_source, worker_of, m.Started(time.monotonic(), NEVER_BY_ITSELF))

    daemon = Daemon(
        rules,
        open_run,
        status,
        flush=letters.try_to_flush,
    )
    return daemon.run(open_run())


def _wait_for_beginning(folder: Path, lease: Lease, status: Status) -> Beginning:
    """Wait until what daemons share is there: made here, by whoever has the lease, or given."""
    retry = Retry("beginning")
    while (found := Beginning.read(folder)) is None:
        lease.check()
        reason = (lease.prevented or "made-here") if lease.held else "made-by-another"
        status.show(retry.stalled(time.monotonic(), reason))
        status.beat()
        time.sleep(TICK_SECONDS)
    status.show(retry.done(time.monotonic()))
    return found
