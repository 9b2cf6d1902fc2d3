"""Work that one of the daemons of a shared folder does for all: the beginning, the snapshots."""

import json
import secrets
import time
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Any

from streamlda.engine.engine import Engine
from streamlda.engine.timeline import shares_since
from streamlda.errors import MISPLACED, SourceAwayError, StreamLDAError
from streamlda.model.topic_model import TopicModel
from streamlda.run.opening import check_same, open_pipeline
from streamlda.run.parts import name_stream, open_stream
from streamlda.service.logs import log, log_failure, name_reason
from streamlda.service.rules import Retry
from streamlda.service.status import Status
from streamlda.settings import build
from streamlda.settings.build import time_bins as time_bins_of
from streamlda.settings.table import RunSettings
from streamlda.storage import merge
from streamlda.storage.checkpoint import Checkpoint
from streamlda.storage.partitions import LOG, PROJECTION, TURNED, Agreement, count_saved, take_lease
from streamlda.storage.snapshots import Snapshots, unless_damaged
from streamlda.storage.store import Store
from streamlda.stream.pipeline import Pipeline
from streamlda.utils.lock import FileLock

#: How often it is looked whether the lease is free, or a snapshot is due, in seconds.
LOOK_SECONDS = 1.0

#: How often the records of all partitions are counted, for display, in seconds.
COUNT_SECONDS = 10.0

#: Records of a poll for the first documents.
POLL_RECORDS = 4096

#: Warm-ups of documents after which topics are as good as they will be.
SETTLING_WARMUPS = 6

#: Behind the end of all partitions, for how long more documents are waited for, and at most how
#: long it may take them to anneal topics as they came so far, in seconds.
IDLE_SECONDS, PATIENCE_SECONDS = 60.0, 600.0


def list_terms(settings: RunSettings) -> dict[str, Any]:
    """Return the settings in which all daemons of a folder must agree, as JSON has them."""
    engine = asdict(build.engine_settings(settings, build.most_words(settings.vocabulary)))
    # Of learned words there may be fewer; a projection has its own.
    del engine["n_features"]
    found: dict[str, Any] = json.loads(json.dumps({**engine, **build.text_settings(settings)}))
    return found


def check_beginning(settings: RunSettings, folder: Path) -> Agreement:
    """Return the agreement of the daemons of a folder; refuse other settings and words."""
    path = folder / PROJECTION
    shared, words = merge.load_projection(path), build.public_words(settings)
    assert shared.daemons is not None
    terms, saved = list_terms(settings), shared.daemons.settings
    check_same({name: (terms.get(name), saved.get(name)) for name in {**terms, **saved}})
    if words is not None:
        merge.check_same_words(shared.vocabulary, words, str(path))
    if settings.topics.projection_file is not None:
        own = merge.load_projection(settings.topics.projection_file)
        check_same({"projection": (own.digest, shared.digest)})
    return shared.daemons


class Lease(Thread):
    """Takes the lease as soon as it is free; with it, makes the beginning and then snapshots.

    It shows the newest snapshot, whoever made it.
    """

    def __init__(
        self, settings: RunSettings, folder: Path, status: Status, snapshots: Snapshots
    ) -> None:
        super().__init__(name="streamlda-lease", daemon=True)
        #: What is made here is of all partitions.
        kafka = replace(settings.kafka, partitions="all", group=None)
        self.settings, self._folder = replace(settings, kafka=kafka), folder
        self._status = status
        self._shown, self._snapshots = 0, snapshots
        self._lock: FileLock | None = None
        self._store: Store | None = None
        self._retry = Retry("output")
        self._made_at, self._count_at = time.monotonic(), 0.0
        #: The documents since the last turn that were tried last.
        self._tried = 0
        #: Why the beginning cannot be made yet; empty if nothing is known to prevent it.
        self.prevented = ""
        #: Snapshots that this daemon has published.
        self.snapshots = 0
        self._error: Exception | None = None

    @property
    def is_held(self) -> bool:
        """True if this process holds the lease."""
        return self._lock is not None

    def check(self) -> None:
        """Raise the error that has ended it."""
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Do due work until the process ends."""
        while self._error is None:
            if not self._retry.waits(time.monotonic()):
                try:
                    self._do()
                    self.prevented = ""
                    self._show_newest()
                except (StreamLDAError, OSError) as error:
                    self._report_failure(error)
                except Exception as error:
                    self._error = error
            time.sleep(LOOK_SECONDS)

    def _report_failure(self, error: StreamLDAError | OSError) -> None:
        log_failure("lease-failed", error)
        if not (self._folder / PROJECTION).exists():
            # All wait for it, and say so; what cannot be made is said by `check`.
            disk = not isinstance(error, (StreamLDAError, *MISPLACED))
            if disk or isinstance(error, SourceAwayError):
                self.prevented = name_reason(error)
                self._status.count_failure("checkpoint" if disk else "source", self.prevented)
                self._retry.again(time.monotonic())
            else:
                self._error = error
            return
        self._close_store()
        self._status.count_failure("output", name_reason(error))
        self._status.show(self._retry.note_failure(time.monotonic(), name_reason(error)))

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _do(self) -> None:
        if self._lock is None or not self._lock.in_place:
            self._close_store()
            self._lock = take_lease(self._folder)
            self._status.note_group(lease=self._lock is not None)
            if self._lock is None:
                # What was away here is for whoever has the lease.
                self._status.show(self._retry.note_success(time.monotonic()))
                return
            log("info", "lease-taken")
        if not (self._folder / PROJECTION).exists():
            make_beginning(self.settings, self._folder, self._status)
        if self._store is None:
            output = self.settings.output
            self._store = Store.open(output=output.folder, file=output.file, keep=output.keep)
        elif self._due():
            self._publish(self._store)
        self._status.show(self._retry.note_success(time.monotonic()))

    def _show_newest(self) -> None:
        newest = self._snapshots.latest() or 0
        if newest != self._shown:
            self._shown = newest
            self._status.note_snapshot(next(reversed(self._snapshots.summaries()), None))
        if time.monotonic() >= self._count_at:
            self._count_at = time.monotonic() + COUNT_SECONDS
            self._status.note_group(places=sum(count_saved(self._folder).values()))

    def _newest(self) -> TopicModel | None:
        """Return the newest snapshot, if it is whole and of this start."""
        newest = self._snapshots.latest()
        model = None if newest is None else unless_damaged(self._snapshots.model, newest)
        return model if model and model.settings.get("beginning") == self._id else None

    @cached_property
    def _id(self) -> str:
        daemons = merge.load_projection(self._folder / PROJECTION).daemons
        assert daemons is not None
        return daemons.id

    def _due(self) -> bool:
        newest = self._newest()
        before = 0 if newest is None else int(newest.settings["places"])
        now, every = sum(count_saved(self._folder).values()), build.snapshot_every(self.settings)
        seconds = self.settings.snapshots.seconds
        by_clock = seconds is not None and time.monotonic() - self._made_at >= seconds
        return now > before and (by_clock or (every is not None and now // every > before // every))

    def _publish(self, store: Store) -> None:
        """Publish the topics of all partitions, as their newest checkpoints have them."""
        folders = [*count_saved(self._folder)]
        merged = merge.merge_checkpoints(folders, merge.read_turned(self._folder), self._tried)
        self._tried = merged.tried
        if merged.turned is not None:
            terms = asdict(merged.engine.settings)
            turned = merge.SharedProjection(merged.turned, merged.vocabulary, terms)
            turned.save(self._folder / TURNED)
            log("info", "turn", documents=merged.tried, turn=merged.turned.turn)
        for checkpoint in merged.checkpoints:
            for problem in checkpoint.skipped:
                log("error", "checkpoint-skipped", message=problem)
        places = sum(int(checkpoint.about["places"]) for checkpoint in merged.checkpoints)
        facts = {"stream": name_stream(self.settings), "places": places, "beginning": self._id}
        model = merged.engine.snapshot(merged.vocabulary, facts)
        account = {"records": places, "passed": sum(map(_count_passed, merged.checkpoints))}
        model = replace(model, diagnostics={**model.diagnostics, "account": account})
        number = store.publish(self._since(model))
        self._made_at = time.monotonic()
        self.snapshots += 1
        log("info", "snapshot", number=number, topics=model.n_components)

    def _since(self, model: TopicModel) -> TopicModel:
        """Return a model whose interval is since the newest snapshot.

        Each partition was saved at its own moment, so that topics of the interval are known by the
        words of the two models alone.
        """
        interval, timeline, bins = model.interval, model.timeline, time_bins_of(self.settings)
        before = self._newest()
        shares = None if before is None else shares_since(model, before)
        if interval is not None and before is not None:
            interval = replace(
                interval,
                documents=model.documents_seen - before.documents_seen,
                tokens=model.tokens_seen - before.tokens_seen,
                prevalence=None if shares is None else tuple(shares.tolist()),
            )
        if timeline is not None and bins is not None:
            timeline = replace(timeline, unit=bins)
        return replace(model, interval=interval, timeline=timeline)


def _count_passed(checkpoint: Checkpoint) -> int:
    """Return the records that the position of a partition has passed since the partition began."""
    position, begins = checkpoint.position, checkpoint.about["account"]["begins"]
    offsets, gaps = (sum(position[name].values()) for name in ("offsets", "gaps"))
    return int(offsets - gaps - sum(begins.values()))


def make_beginning(settings: RunSettings, folder: Path, status: Status) -> None:
    """Make the shared start of a folder, and let all daemons begin; with the lease.

    The first documents of all partitions give the words and the projection, and nothing else: each
    is read once more, by whoever has its partition. Raises as `open_pipeline` and `open_stream`.
    """
    source, projection = open_stream(settings), folder / PROJECTION
    try:
        position, latest = source.position(), settings.kafka.start == "latest"
        daemons = Agreement(
            id=secrets.token_hex(8),
            settings=list_terms(settings),
            log={name: position[name] for name in LOG},
            offsets=position["offsets"] if latest else {},
        )
        if settings.topics.projection_file is None:
            pipeline: Pipeline[Engine] = open_pipeline(settings, releases=False).pipeline
            engine = _learn_beginning(pipeline, source, status)
            assert pipeline.vocabulary is not None
            merge.save_projection(projection, engine, pipeline.vocabulary, daemons=daemons)
            status.note(warmup=None)
            log("info", "beginning-learned", documents=engine.documents_seen)
        else:
            given = merge.load_projection(settings.topics.projection_file)
            replace(given, daemons=daemons).save(projection)
    finally:
        source.close()
    log("info", "beginning", projection=PROJECTION)


def _learn_beginning(pipeline: Pipeline[Engine], source: Any, status: Status) -> Engine:
    """Learn documents until an engine has a start for others: topics, or a projection.

    Topics are settled then, or all partitions were read to their end `IDLE_SECONDS` ago, and what
    comes is too little to settle them within `PATIENCE_SECONDS`.
    """
    ended_at, documents = None, 0
    while True:
        batch = source.poll(POLL_RECORDS, LOOK_SECONDS)
        pipeline.add(batch)
        pipeline.flush()
        engine = pipeline.learner
        if ended_at is None and not batch.n_records and source.at_end():
            ended_at = time.monotonic()
            documents = engine.documents_seen if engine else 0
        if engine is None or engine.warmup is not None:
            status.note(warmup=pipeline.progress.warmup)
            continue
        most = SETTLING_WARMUPS * engine.settings.warmup_documents
        seconds = 0.0 if ended_at is None else time.monotonic() - ended_at
        coming = (engine.documents_seen - documents) * PATIENCE_SECONDS
        missing = most - engine.documents_seen
        settled = missing <= 0 or not engine.refining
        if settled or (seconds >= IDLE_SECONDS and coming < missing * seconds):
            return engine
        status.note(warmup=(engine.documents_seen, most))
