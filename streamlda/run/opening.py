"""A run from its settings: ledger, pipeline and source, where the run begins or resumes.

A run resumes in one of two ways, and no document is released twice, none is lost:

- From checkpoints. A release may be on the disk while no checkpoint knows of it yet. Then the state
  before that release is restored, the rest of its records is skipped unread, and the stored noisy
  sums are accepted as if nothing had happened (`PrivateLearner.catch_up`).
- From the ledger alone, for a private run over files that had no checkpoints (`find_cut_short`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from streamlda.checks import require
from streamlda.engine.engine import Engine
from streamlda.engine.members import digest_of
from streamlda.engine.settings import EngineSettings
from streamlda.errors import LedgerError, SourceAwayError
from streamlda.model.representatives import CandidateDocuments
from streamlda.privacy.events import Event
from streamlda.privacy.ledger import Intent, Ledger
from streamlda.privacy.ledger.evidence import Evidence
from streamlda.private import release_manager
from streamlda.private.budget import STATEMENTS
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.released import spent
from streamlda.run.census import Census, make_provenance, take_census
from streamlda.run.parts import (
    OnRejected,
    name_published_stream,
    name_stream,
    open_stream,
    skip_records,
)
from streamlda.run.private_terms import PrivateTerms, check_price, check_slots
from streamlda.run.resumption import catch_up, find_cut_short, find_run, skip_paid
from streamlda.settings.build import (
    engine_settings,
    make_analyzer,
    most_words,
    public_words,
    snapshot_every,
    text_settings,
    time_bins,
    word_documents,
    words_to_learn,
)
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.seeds import read_seeds, seed_by_words
from streamlda.storage.checkpoint import Checkpoint, PendingCheckpoint
from streamlda.storage.merge import SharedProjection, load_projection
from streamlda.storage.store import Store
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.schedule import Released, Schedule
from streamlda.stream.source import Behind, Log, Position, Reject, Source, stand
from streamlda.stream.vocabulary_choice import (
    WORDS,
    PrivateVocabularySelection,
)
from streamlda.text.vocabulary import Vocabulary

OnReject = Callable[[Reject], None]

#: Message of a run about a release that it has ended.
CUT_SHORT = "a release was interrupted earlier, and stays paid: "


@dataclass(slots=True)
class OpenedRun:
    """A pipeline, and where its stream resumes.

    `checkpoint` is None at the beginning; `slots_to_skip` are records after it that a release has
    used, and `released` is the outcome of that release; `paid` are releases of a run that resumes
    without a checkpoint, whose records are skipped. `census` is what a private run has found in
    files that are read to their end, and `ledger` pays for it.
    """

    pipeline: Pipeline[Any]
    checkpoint: Checkpoint | None = None
    slots_to_skip: int = 0
    released: Released | None = None
    census: Census | None = None
    ledger: Ledger | None = None
    paid: tuple[Intent, ...] = ()
    #: Releases of the ledger before this run.
    _released_before: int = field(default=0, init=False)
    #: A record is skipped once, however often the source is away meanwhile.
    _left_to_skip: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._left_to_skip = self.slots_to_skip
        if self.ledger is not None and not self.resumed:
            self._released_before = self.ledger.generation

    @property
    def resumed(self) -> bool:
        """Tell whether an earlier process began the run."""
        return self.checkpoint is not None or bool(self.paid)

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

        That is after the checkpoint, and after records that a release has used since. Raises
        `SourceAwayError` for what may be there later, and this may be called again then; other
        errors as `go_on` and `skip`.
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
        """Take the source to where the run resumes, before the slots to skip.

        Raises `LedgerError`, before a document is read, if documents of a log from there on were in
        a release, or its consumer group shows that the ledger was further; `SourceError` if the
        source does not hold what comes next.
        """
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
        """Take the source behind records that releases have used.

        `skipped_to` is where an earlier try came to. Raises `SourceError` where the source does not
        hold the records, `SourceAwayError` where it does not answer; errors as `skip_paid`.
        """
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
        if self.paid:
            skip_paid(source, self.paid, self.pipeline)

    def _check_unspent(self, source: Source, ledger: Ledger) -> None:
        """Refuse logs that go on before what was in a release, or too far after it."""
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
    """Open the folders of checkpoints and snapshots that the settings name."""
    output, private = settings.output, settings.private
    return Store.open(
        settings.checkpoint.folder if checkpoints else None,
        output=output.folder,
        file=output.file,
        private=private,
        keep=output.keep,
    )


def open_ledger(
    settings: RunSettings,
    opened: ExitStack,
    store: Store,
    on_recovery: Callable[[str], None],
) -> Ledger | None:
    """Open the ledger of a private run as `streamlda.private` does; None without privacy.

    Snapshots in the store must have been made with it.
    """
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
    warn: Callable[[str], None] = lambda message: None,
    should_stop: Callable[[], bool] = lambda: False,
    schedule: Schedule | None = None,
    known: Vocabulary | None = None,
) -> OpenedRun:
    """Make the pipeline of settings, and take it to where its last process came to.

    1. Words, learner and schedule are those of the settings; `schedule` and `known` words replace
       theirs. A private run over files reads them once, to count what is spent and what is left.
    2. The newest checkpoint of the store is restored, if there is one.
    3. A private run accepts what was released since, by the ledger (see the module).

    `OpenedRun.begin_source` opens the source there.

    Raises `LedgerError` if the ledger knows releases that the checkpoints cannot go on after, or
    does not allow the first one, or documents of the files; `InsufficientDataError` if these have
    too few slots; `InvalidSettingError` if the checkpoints were made with other settings;
    `ModelFileError` if none is whole; `SourceError` if files cannot be read.
    """
    if ledger is not None:
        return _open_private(settings, store, ledger, warn, should_stop)
    shared: SharedProjection | None = None
    if settings.topics.projection_file is not None:
        shared = load_projection(settings.topics.projection_file)
        known = shared.vocabulary
    sums = None if shared is None else not shared.refines
    words = known or public_words(settings) or words_to_learn(settings)
    most = words.n_features if isinstance(words, Vocabulary) else most_words(settings.vocabulary)
    engine_settings(settings, most, sums)  # raises before anything is read
    topics, candidates = settings.topics, None
    seeds = read_seeds(topics.seeds, topics.count)
    if topics.representative_documents:
        candidates = CandidateDocuments(
            *(topics.representative_documents, topics.count, topics.seed),
            texts=topics.representative_texts,
        )

    def make(vocabulary: Vocabulary, _: object) -> Engine:
        n, left_out = vocabulary.n_features, vocabulary.too_frequent
        own = engine_settings(settings, n, sums, left_out, keeps=shared is None)
        own = seed_by_words(own, seeds, vocabulary, warn)
        return Engine(own) if shared is None else shared.engine(own)

    pipeline: Pipeline[Engine] = Pipeline(
        words,
        make,
        schedule=schedule or Schedule(every=snapshot_every(settings), most=settings.snapshots.most),
        about={"stream": name_published_stream(settings)},
        reading=text_settings(settings),
        on_reject=on_reject,
        candidates=candidates,
        time_bins=time_bins(settings),
        most_ahead_seconds=settings.source.most_ahead,
    )
    saved = None if store is None else store.newest()
    if saved is not None:
        n = saved.vocabulary.n_features
        asked = engine_settings(settings, n, sums, keeps=shared is None)
        asked = seed_by_words(asked, seeds, saved.vocabulary, warn)
        _restore(pipeline, saved, asked, shared)
    return OpenedRun(pipeline, saved)


def capture(pipeline: Pipeline[Any], store: Store) -> PendingCheckpoint | None:
    """Copy what a checkpoint holds; None while there is nothing but records to read again.

    Raises `AccountError` where the state has not each record before its position once.
    """
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
        pipeline.waiting,
        pipeline.beside(),
    )


def _restore(
    pipeline: Pipeline[Engine],
    saved: Checkpoint,
    asked: EngineSettings,
    shared: SharedProjection | None,
) -> None:
    _check_text(pipeline, saved)
    engine = saved.restore()
    assert isinstance(engine, Engine)
    wanted, found = asdict(asked), asdict(engine.settings)
    differing = {name: (wanted[name], found[name]) for name in wanted}
    if shared is not None:
        engine.go_on_from(shared.beginning)
    digest = None if shared is None else shared.digest
    check_same({**differing, "projection": (digest, digest_of(engine.beginning))})
    pipeline.restore(saved.vocabulary, engine, saved.about, saved.rows, saved.beside)
    pipeline.behind = Behind(saved.position, {})


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
        f"a run must go on with the settings of its checkpoints, got {', '.join(differing)}",
        remedy="use those, or begin in an empty checkpoint.folder",
    )


# Private runs.


class ResumedReleaseManager(ReleaseManager):
    """Pays for a run that is under way, and lets it start when the budget is used up.

    Its snapshots are still served then, and its last release may be one that a crash cut short.
    What is left was asked before the first document, and is asked again at each release.
    """

    def check(self, event: Event) -> None:
        """Do nothing."""


def _open_private(
    settings: RunSettings,
    store: Store | None,
    ledger: Ledger,
    warn: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> OpenedRun:
    paid = None
    if store is not None and store.folder is None:
        paid = find_cut_short(settings, ledger, store)
    saved = None if store is None else store.newest(ledger, catch_up=True)
    run, made = find_run(store, ledger, saved=saved is not None)
    if paid is not None:
        run, made = paid.record, len(paid.releases)
        warn(f"a run was cut short before, and its releases={made} are taken up, not paid again")
    fresh = saved is None and not made
    terms = PrivateTerms.of(settings)
    if fresh:
        check_price(settings, ledger, terms)
        if ledger.known.unmarked:
            warn(
                "the ledger holds releases whose documents are known by the name of their source "
                "alone: see that none of these was in one, got "
                f"sources={sorted(ledger.known.unmarked)[:5]}"
            )
    known = ledger.known_at(run.began)
    by_now = None if fresh else ledger.known
    is_document = terms.is_document(settings)
    census = take_census(
        settings, ledger.key, known, is_document, by_now=by_now, should_stop=should_stop
    )
    if fresh and census is not None:
        check_slots(settings, terms, census, warn)
        if census.spent:
            warn(f"records={census.spent} were in earlier releases, and are left out")
    if census is not None:
        ledger.known.compared.add(run.name)
    provenance = make_provenance(settings, ledger, census)
    manage = ReleaseManager if fresh else ResumedReleaseManager
    manager = manage(
        ledger=ledger,
        stream=name_stream(settings),
        provenance=provenance,
        run=run.name,
        asked=terms.digest(settings),
    )
    pipeline = _private_pipeline(settings, terms, manager, warn)
    if saved is not None:
        _check_text(pipeline, saved)
        learner = pipeline.begin(saved.vocabulary, int(saved.about["first_place"]))
        saved.restore(learner)
        learner.resume(int(saved.about["stages"]))
        stage, slots = learner.engine.stage, learner.engine.slots
        begun = slots if stage is None else stage.first
        values = {**saved.about, "places": slots, "released_at": begun}
        pipeline.restore(saved.vocabulary, learner, values)
        pipeline.behind = Behind(saved.position, {})
    if paid is not None:
        released = Released(None)
        for release in paid.releases:
            _, released = catch_up(pipeline, manager, release)
        return OpenedRun(
            pipeline, released=released, census=census, ledger=ledger, paid=paid.releases
        )
    behind, last = made if saved is None else saved.releases_behind, ledger.last_intent
    if behind == 0:
        return OpenedRun(pipeline, saved, census=census, ledger=ledger)
    assert last is not None
    assert store is not None
    if saved is None and last.description == WORDS:
        # Nothing is saved before the words are known: all releases so far were choices of words,
        # and each but the last was lost.
        behind = 1
    require(
        behind == 1,
        "a run must have the checkpoints that go with its ledger",
        error=LedgerError,
        releases=behind,
        path=str(store.folder),
        remedy="bring the folder back, or begin with other documents",
    )
    skipped, released = catch_up(pipeline, manager, last)
    return OpenedRun(pipeline, saved, skipped, released, census, ledger)


def _private_pipeline(
    settings: RunSettings,
    terms: PrivateTerms,
    manager: ReleaseManager,
    warn: Callable[[str], None] = lambda message: None,
) -> Pipeline[PrivateLearner]:
    asked, delta = terms.settings, settings.privacy.delta
    assert delta is not None
    words: Vocabulary | PrivateVocabularySelection | None = terms.words
    if words is None:
        assert terms.choice is not None
        words = PrivateVocabularySelection(
            terms.choice.selection,
            size=settings.vocabulary.size,
            slots=word_documents(settings),
            public=terms.besides,
            analyzer=make_analyzer(settings.vocabulary),
            release=manager.release,
        )

    def make_learner(vocabulary: Vocabulary, first_slot: int) -> PrivateLearner:
        own = replace(asked, n_features=vocabulary.n_features)
        return PrivateLearner(
            seed_by_words(own, terms.seeds, vocabulary, warn),
            manager,
            vocabulary=STATEMENTS[vocabulary.kind],
            delta_of_words=delta - asked.delta,
            first_slot=first_slot,
            public=terms.public,
        )

    return Pipeline(
        words,
        make_learner,
        schedule=Schedule(every=asked.documents_per_snapshot),
        about={"stream": name_published_stream(settings)},
        reading=text_settings(settings),
        provenance=manager.provenance,
    )
