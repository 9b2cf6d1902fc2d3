"""One path from settings to a running pipeline, for a fit, a daemon and its parts.

1. `open_store` opens the folders of checkpoints and snapshots, `open_ledger` the ledger.
2. `open_pipeline` makes the pipeline of words, learner and schedule.
3. It restores the newest checkpoint, if there is one, and accepts what a private run has released
   since (`streamlda.run.private_run`).
4. `OpenedRun.begin_source` opens the source where the pipeline resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from streamlda.checks import require
from streamlda.engine.engine import Engine
from streamlda.engine.members import digest_of
from streamlda.engine.settings import EngineSettings
from streamlda.errors import LedgerError, SourceAwayError
from streamlda.model.representatives import CandidateDocuments
from streamlda.privacy.ledger import Ledger
from streamlda.privacy.ledger.evidence import Evidence
from streamlda.private import release_manager
from streamlda.private.released import spent
from streamlda.run.census import Census
from streamlda.run.parts import (
    OnRejected,
    about_models,
    name_published_stream,
    open_stream,
    skip_records,
)
from streamlda.run.private_run import (
    PrivateRun,
    PrivateTerms,
    get_own_folder,
    make_private_pipeline,
    restore_private,
)
from streamlda.settings.build import (
    engine_settings,
    most_words,
    public_words,
    snapshot_every,
    text_settings,
    time_bins,
    words_to_learn,
)
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.seeds import read_seeds, seed_by_words
from streamlda.storage.checkpoint import Checkpoint, PendingCheckpoint
from streamlda.storage.merge import load_projection
from streamlda.storage.store import Store
from streamlda.stream.pipeline import Pipeline, Released, Schedule
from streamlda.stream.source import Behind, Log, Position, Reject, Source, stand
from streamlda.text.vocabulary import Vocabulary

OnReject = Callable[[Reject], None]
Warn = Callable[[str], None]

#: Message of a run about a release that it has ended.
CUT_SHORT = "a release was interrupted earlier, and stays paid: "


@dataclass(slots=True)
class OpenedRun:
    """A pipeline, and where its stream resumes.

    `slots_to_skip` are records after the checkpoint that a release has used; `released` is its
    outcome.
    """

    pipeline: Pipeline[Any]
    checkpoint: Checkpoint | None = None
    slots_to_skip: int = 0
    released: Released | None = None
    census: Census | None = None
    ledger: Ledger | None = None
    #: Releases of the ledger before this run.
    _released_before: int = field(default=0, init=False)
    #: A record is skipped once, however often the source is away meanwhile.
    _left_to_skip: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._left_to_skip = self.slots_to_skip
        if self.ledger is not None and self.checkpoint is None:
            self._released_before = self.ledger.generation

    @property
    def spending(self) -> str:
        """Message about what the run has spent without a model, if it is private."""
        return "" if self.ledger is None else spent(self.ledger, self._released_before)

    def begin_source(
        self,
        settings: RunSettings,
        position: Position | None = None,
        on_rejected: OnRejected | None = None,
    ) -> Source:
        """Open the source at a position; without one, where the run resumes.

        It may be called again after `SourceAwayError`.
        """
        source = self.open_source(settings, on_rejected)
        try:
            if position is not None:
                source.seek(position)
            else:
                skipped_to = self.pipeline.position
                self.go_on(source, settings.kafka.group)
                self.skip(source, skipped_to)
        except BaseException:
            source.close()
            raise
        return source

    def open_source(self, settings: RunSettings, on_rejected: OnRejected | None = None) -> Source:
        """Open the source, without what was spent before the run began."""
        source = open_stream(settings, on_rejected)
        if self.pipeline.provenance is not None:
            logs = _logs(source).items()
            self.pipeline.provenance.names = {location: log.name for location, log in logs}
        return source if self.census is None else self.census.unspent(source)

    def go_on(self, source: Source, group: str | None) -> None:
        """Take the source to where the run resumes, before the slots to skip; check the ledger."""
        if self.ledger is not None:
            where = f"the offsets of kafka.group={group!r}"
            shown = (Evidence.of_note(note, where) for note in getattr(source, "notes", list)())
            self.ledger.check_evidence(each for each in shown if each is not None)
        if self.checkpoint is not None:
            source.seek(self.checkpoint.position)
        if self.ledger is not None:
            self._check_unspent(source, self.ledger)
        self.pipeline.begin_at(stand(source))

    def skip(self, source: Source, skipped_to: Position | None = None) -> None:
        """Take the source behind records of a release; an earlier try came to `skipped_to`."""
        if self._left_to_skip < self.slots_to_skip:
            assert skipped_to is not None
            source.seek(skipped_to)
            self.pipeline.begin_at(stand(source))

        def on_poll(n_records: int) -> None:
            self._left_to_skip -= n_records
            silent = source.silent() if hasattr(source, "silent") else None
            require(
                not silent,
                "a source must answer while records of a release are skipped",
                error=SourceAwayError,
                silent_seconds=silent,
                remedy="wait, or check that it runs",
            )

        skip_records(source, self._left_to_skip, self.pipeline, on_poll)

    def _check_unspent(self, source: Source, ledger: Ledger) -> None:
        """Refuse logs that continue before what was in a release, or too far after it."""
        behind = _logs(source, self.slots_to_skip)
        for location, log in _logs(source).items():
            spent = ledger.known.reach.get(log.name, 0)
            goes_on = behind[location].next
            require(
                goes_on == spent if goes_on > log.next else goes_on >= spent,
                "a run must begin after all releases of its log, and skip none but its own",
                error=LedgerError,
                source=location,
                begins=log.next,
                spent=spent,
                remedy="bring the folder of checkpoints back, or take later records: use an empty "
                "folder and kafka.start=latest",
            )


def _logs(source: Source, ahead: int = 0) -> Mapping[str, Log]:
    """Return the logs of a source by location, `ahead` records on; none without logs."""
    logs = getattr(source, "logs", None)
    found: Mapping[str, Log] = {} if logs is None else logs(ahead)
    return found


def open_store(settings: RunSettings, *, checkpoints: bool = True) -> Store:
    """Open the folders of checkpoints and snapshots of the settings."""
    output, folder = settings.output, settings.checkpoint.folder
    own = get_own_folder(settings) if checkpoints else None
    if own is not None:
        own.parent.mkdir(mode=0o700, exist_ok=True)
        folder = str(own)
    return Store.open(
        folder if checkpoints else None,
        output=output.folder,
        file=output.file,
        private=settings.private,
        keep=output.keep,
    )


def open_ledger(
    settings: RunSettings, opened: ExitStack, store: Store, on_recovery: Warn
) -> Ledger | None:
    """Open the ledger of a private run, which made all snapshots in the store; None without."""
    if not settings.private:
        return None
    asked = PrivateTerms.of(settings)
    assert settings.privacy.ledger is not None
    ledger = release_manager.open_ledger(
        settings.privacy.ledger,
        asked.settings,
        words=asked.choice,
        on_recovery=on_recovery,
        evidence=store.evidence(name_published_stream(settings)),
    )
    return opened.enter_context(ledger)


def open_pipeline(
    settings: RunSettings,
    store: Store | None = None,
    ledger: Ledger | None = None,
    on_reject: OnReject | None = None,
    *,
    warn: Warn = lambda message: None,
    should_stop: Callable[[], bool] = lambda: False,
    schedule: Schedule | None = None,
    known: Vocabulary | None = None,
) -> OpenedRun:
    """Make the pipeline of settings, and take it to where its last process came to.

    `schedule` and `known` words replace those of the settings. A private run over files reads them
    once before, to count what is spent and what is left.
    """
    saved = None if store is None else store.newest(ledger, catch_up=ledger is not None)
    if ledger is None:
        pipeline = _open_public(settings, saved, on_reject, warn, schedule, known)
        return OpenedRun(pipeline, saved)
    private = PrivateRun(settings, store, ledger, saved, warn, should_stop)
    learning = make_private_pipeline(settings, private.terms, private.manager, warn)
    if saved is not None:
        _check_text(learning, saved)
        restore_private(learning, saved)
        learning.behind = Behind(saved.position, {})
    skipped, released = private.catch_up(learning)
    return OpenedRun(learning, saved, skipped, released, private.census, ledger)


def _open_public(
    settings: RunSettings,
    saved: Checkpoint | None,
    on_reject: OnReject | None,
    warn: Warn,
    schedule: Schedule | None,
    known: Vocabulary | None,
) -> Pipeline[Engine]:
    """Make the pipeline of a run without privacy, or restore it."""
    topics, candidates = settings.topics, None
    shared = None if topics.projection_file is None else load_projection(topics.projection_file)
    sums = None if shared is None else not shared.refines
    known = known if shared is None else shared.vocabulary
    words = known or public_words(settings) or words_to_learn(settings)
    most = words.n_features if isinstance(words, Vocabulary) else most_words(settings.vocabulary)
    engine_settings(settings, most, sums)  # raises before anything is read
    seeds = read_seeds(topics.seeds, topics.count)
    if topics.representative_documents:
        candidates = CandidateDocuments(
            *(topics.representative_documents, topics.count, topics.seed),
            texts=topics.representative_texts,
        )

    def ask(vocabulary: Vocabulary) -> EngineSettings:
        n, left_out = vocabulary.n_features, vocabulary.too_frequent
        asked = engine_settings(settings, n, sums, left_out, keeps=shared is None)
        return seed_by_words(asked, seeds, vocabulary, warn)

    def make(vocabulary: Vocabulary, _: object) -> Engine:
        return Engine(ask(vocabulary)) if shared is None else shared.engine(ask(vocabulary))

    pipeline: Pipeline[Engine] = Pipeline(
        words,
        make,
        schedule=schedule or Schedule(every=snapshot_every(settings), most=settings.snapshots.most),
        about=about_models(settings),
        reading=text_settings(settings),
        on_reject=on_reject,
        candidates=candidates,
        time_bins=time_bins(settings),
        most_ahead_seconds=settings.source.most_ahead,
    )
    if saved is None:
        return pipeline
    _check_text(pipeline, saved)
    engine = saved.restore()
    assert isinstance(engine, Engine)
    wanted, found = asdict(ask(saved.vocabulary)), asdict(engine.settings)
    digest = None if shared is None else shared.digest
    differing = {name: (wanted[name], found[name]) for name in wanted}
    check_same({**differing, "projection": (digest, digest_of(engine.beginning))})
    pipeline.restore(saved.vocabulary, engine, saved.about, saved.rows, saved.beside)
    pipeline.behind = Behind(saved.position, {})
    return pipeline


def _check_text(pipeline: Pipeline[Any], saved: Checkpoint) -> None:
    """Raise `InvalidSettingError` unless words, and how text is read, are those of a checkpoint."""
    given, before = pipeline.vocabulary, saved.about["reading"]
    if given is not None:
        check_same({"words": (given.fingerprint, saved.vocabulary.fingerprint)})
    check_same({name: (value, before.get(name)) for name, value in pipeline.reading.items()})


def check_same(values: dict[str, tuple[Any, Any]]) -> None:
    """Raise `InvalidSettingError` naming the values that differ from the saved ones."""
    differing = [f"{name}={a!r} (saved: {b!r})" for name, (a, b) in values.items() if a != b]
    require(
        not differing,
        f"a run must continue with the settings of its checkpoints, got {', '.join(differing)}",
        remedy="use those, or begin in an empty checkpoint.folder",
    )


def capture(pipeline: Pipeline[Any], store: Store) -> PendingCheckpoint | None:
    """Copy what a checkpoint holds; None while there is nothing but records to read again."""
    pipeline.check_account()
    if pipeline.learner is None:
        return None
    assert pipeline.vocabulary is not None
    assert pipeline.position is not None
    return store.capture(
        pipeline.learner,
        pipeline.position,
        pipeline.vocabulary,
        pipeline.values(),
        pipeline.blocks.waiting,
        pipeline.beside(),
    )
