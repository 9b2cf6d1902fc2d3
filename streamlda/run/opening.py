"""One path from settings to a running pipeline, for a fit, a daemon and its parts.

1. `open_store` opens the folders of checkpoints and snapshots, `open_ledger` the ledger.
2. `open_pipeline` makes the pipeline of words, learner and schedule. A private run begins with a
   census of its files (`streamlda.run.census`), before anything is paid for.
3. It restores the newest checkpoint, if there is one. A private release may be on the disk while no
   checkpoint knows of it yet: then its records are skipped unread, and its stored noisy sums are
   accepted as if nothing had happened. So no document is released twice, and none is lost.
4. `OpenedRun.begin_source` opens the source where the pipeline resumes.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

from streamlda.container import sync_folder, whole_file
from streamlda.engine.engine import Engine
from streamlda.engine.members import digest_of
from streamlda.engine.settings import EngineSettings
from streamlda.errors import Faults, InsufficientDataError, LedgerError, SourceAwayError, require
from streamlda.model.representatives import CandidateDocuments
from streamlda.privacy.events import event_of_selection
from streamlda.privacy.ledger import Evidence, Ledger, Release
from streamlda.private import budget, release_manager
from streamlda.private.learner import PrivateLearner
from streamlda.private.ledger_model import describe_spending
from streamlda.private.public_start import PublicTopics
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.run import parts
from streamlda.run.census import UNSPENT, Census, UnspentSource, make_provenance, take_census
from streamlda.run.parts import OnRejected
from streamlda.settings import build
from streamlda.settings.rules import get_source_kind
from streamlda.settings.table import RunSettings
from streamlda.storage.checkpoint import OWNER_ONLY, Checkpoint, PendingCheckpoint
from streamlda.storage.merge import load_projection
from streamlda.storage.store import Store
from streamlda.stream.counts import check_has_document
from streamlda.stream.pipeline import Pipeline, ReleaseResult
from streamlda.stream.source import Behind, Log, Position, Source, stand
from streamlda.stream.vocabulary_choice import WORDS, PrivateVocabularySelection
from streamlda.text.vocabulary import Vocabulary

Warn = Callable[[str], None]

#: Message of a run about a release that it has ended.
CUT_SHORT = "a release was interrupted earlier, and stays paid: "

#: File in a folder of checkpoints that names the private run of that folder. The name stands in
#: each release of the run, so that one that no checkpoint knows of is known as its own.
RUN_FILE = "run"

FAULTS = Faults(
    {
        LedgerError: {
            "spent": "documents would be in two releases, and too few are new; "
            f"{UNSPENT}; what was released gives a model (budget --publish)",
            "behind": "the checkpoints do not go with the ledger; bring their folder back, or "
            "begin with other documents",
            "other release": "the release is not of this run, or not of its words; use the "
            "settings that it was made with, or begin with other documents",
            "run file": "the file that names the private run of the checkpoints is missing or "
            "damaged; bring it back, or begin with other documents in an empty folder",
            "begins": "the run begins before releases of its log end, or skips more than its own; "
            "bring the folder of checkpoints back, or take later records: use an empty folder and "
            "kafka.start=latest",
        },
        InsufficientDataError: {
            "few slots": "the record slots after those of the vocabulary make no whole window; "
            "set snapshots.every (--snapshot-every) to at most the room, "
            "take fewer records for the vocabulary, or read more; nothing was spent",
        },
        SourceAwayError: {
            "silent": "the source does not answer while records of a release are skipped; wait, or "
            "check that it runs",
        },
    }
)


@dataclass(slots=True)
class OpenedRun:
    """A pipeline, and where its stream resumes.

    `slots_to_skip` are records after the checkpoint that a release has used; `released` is its
    outcome. The ledger had the releases up to `generation` before the run.
    """

    settings: RunSettings
    pipeline: Pipeline[Any]
    checkpoint: Checkpoint | None = None
    slots_to_skip: int = 0
    released: ReleaseResult | None = None
    census: Census | None = None
    ledger: Ledger | None = None
    generation: int = 0
    #: A record is skipped once, however often the source is away meanwhile.
    _skipped: int = field(default=0, init=False)

    @property
    def spending(self) -> str:
        """Message about what the run has spent without a model, if it is private."""
        return "" if self.ledger is None else describe_spending(self.ledger, self.generation)

    def begin_source(
        self, position: Position | None = None, on_rejected: OnRejected | None = None
    ) -> Source:
        """Open the source at a position; without one, where the run resumes.

        It may be called again after `SourceAwayError`.
        """
        source = self.open_source(on_rejected)
        try:
            if position is not None:
                source.seek(position)
            else:
                self.resume_after_releases(source)
                self.skip(source)
        except BaseException:
            source.close()
            raise
        return source

    def open_source(self, on_rejected: OnRejected | None = None) -> Source:
        """Open the source, without what was spent before the run began."""
        source = parts.open_stream(self.settings, on_rejected)
        if self.pipeline.provenance is not None:
            names = {location: log.name for location, log in _logs(source).items()}
            self.pipeline.provenance.names = names
        # What is spent, or was not met, is left out.
        return source if self.census is None else UnspentSource(source, self.census.containers)

    def resume_after_releases(self, source: Source) -> None:
        """Take the source to where the run resumes, before the slots to skip; check the ledger."""
        if self.ledger is not None:
            where = f"the offsets of kafka.group={self.settings.kafka.group!r}"
            shown = (Evidence.of_note(note, where) for note in getattr(source, "notes", list)())
            self.ledger.check_evidence(each for each in shown if each is not None)
        if self._skipped and self.pipeline.position is not None:
            # The source was away: it stands where skipping came to.
            source.seek(self.pipeline.position)
        elif self.checkpoint is not None:
            source.seek(self.checkpoint.position)
        if self.ledger is not None:
            self._check_unspent(source, self.ledger)
        self.pipeline.begin_at(stand(source))

    def skip(self, source: Source) -> None:
        """Take the source behind records of a release."""

        def on_poll(n_records: int) -> None:
            self._skipped += n_records
            silent = source.silent() if hasattr(source, "silent") else None
            FAULTS.check(not silent, "silent", silent_seconds=silent)

        parts.skip_records(source, self.slots_to_skip - self._skipped, self.pipeline, on_poll)

    def _check_unspent(self, source: Source, ledger: Ledger) -> None:
        """Refuse logs that continue before what was in a release, or too far after it."""
        behind = _logs(source, self.slots_to_skip - self._skipped)
        for location, log in _logs(source).items():
            released, offset = ledger.records.reach(log.name), behind[location].next
            continues = offset == released if offset > log.next else offset >= released
            found = {"source": location, "begins": log.next, "spent": released}
            FAULTS.check(continues, "begins", **found)


def _logs(source: Source, ahead: int = 0) -> Mapping[str, Log]:
    """Return the logs of a source by location, `ahead` records on; none without logs."""
    return source.logs(ahead) if hasattr(source, "logs") else {}


def open_store(settings: RunSettings, *, checkpoints: bool = True) -> Store:
    """Open the folders of checkpoints and snapshots of the settings."""
    output, folder = settings.output, settings.checkpoint.folder if checkpoints else None
    more: dict[str, Any] = {"output": output.folder, "file": output.file, "keep": output.keep}
    return Store.open(folder, private=settings.private, **more)


def open_ledger(
    settings: RunSettings, stack: ExitStack, store: Store, on_recovery: Warn
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
        evidence=store.evidence(),
    )
    return stack.enter_context(ledger)


def open_pipeline(
    settings: RunSettings,
    store: Store | None = None,
    ledger: Ledger | None = None,
    *,
    warn: Warn = lambda message: None,
    releases: bool = True,
) -> OpenedRun:
    """Make the pipeline of settings, and take it to where its last process came to.

    Without `releases` none is ever due. A private run over files reads them once before, to count
    what is spent and what is left.
    """
    if ledger is not None:
        return _open_private(settings, store, ledger, warn)
    saved, topics, candidates = None if store is None else store.newest(), settings.topics, None
    shared = None if topics.projection_file is None else load_projection(topics.projection_file)
    sums = None if shared is None else not shared.refines
    given = build.public_words(settings) if shared is None else shared.vocabulary
    words = given or build.words_to_learn(settings)
    most = words.n_features if isinstance(words, Vocabulary) else words.size
    build.engine_settings(settings, most, sums)  # raises before anything is read
    seeds = build.read_seeds(topics.seeds, topics.count)
    if n := topics.representative_documents:
        how = topics.count, topics.seed
        candidates = CandidateDocuments(n, *how, texts=topics.representative_texts)

    def ask(vocabulary: Vocabulary) -> EngineSettings:
        n, left_out = vocabulary.n_features, vocabulary.too_frequent
        asked = build.engine_settings(settings, n, sums, left_out, keeps=shared is None)
        return build.seed_by_words(asked, seeds, vocabulary, warn)

    def make(vocabulary: Vocabulary, _: object) -> Engine:
        return Engine(ask(vocabulary)) if shared is None else shared.engine(ask(vocabulary))

    pipeline: Pipeline[Engine] = Pipeline(
        words,
        make,
        every=build.snapshot_every(settings) if releases else None,
        most=settings.snapshots.most if releases else None,
        about=_about_models(settings),
        text_settings=build.text_settings(settings),
        candidates=candidates,
        time_bins=build.time_bins(settings),
        most_ahead_seconds=settings.source.most_ahead,
    )
    if saved is not None:
        _check_text(pipeline, saved)
        engine = saved.restore()
        assert isinstance(engine, Engine)
        wanted, found = asdict(ask(saved.vocabulary)), asdict(engine.settings)
        digest = None if shared is None else shared.digest
        differing = {name: (wanted[name], found[name]) for name in wanted}
        differing["memory.kept or source.kind"] = differing.pop("kept_entries")
        check_same({**differing, "projection": (digest, digest_of(engine.beginning))})
        pipeline.restore(saved.vocabulary, engine, saved.about, saved.rows, saved.beside)
        pipeline.behind = Behind(saved.position, {})
    return OpenedRun(settings, pipeline, saved)


def _about_models(settings: RunSettings) -> dict[str, Any]:
    """Return what all models of a run say of it."""
    found: dict[str, Any] = {"stream": parts.name_published_stream(settings)}
    return found | ({"relevance": r} if (r := settings.topics.relevance) != 1 else {})


def _check_text(pipeline: Pipeline[Any], checkpoint: Checkpoint) -> None:
    """Raise `InvalidSettingError` unless words, and how text is read, are those of a checkpoint."""
    given, before = pipeline.vocabulary, checkpoint.about["reading"]
    if given is not None:
        check_same({"words": (given.fingerprint, checkpoint.vocabulary.fingerprint)})
    check_same({name: (value, before.get(name)) for name, value in pipeline.reading.items()})


def check_same(values: dict[str, tuple[Any, Any]]) -> None:
    """Raise `InvalidSettingError` naming the values that differ from the saved ones."""
    differing = [f"{name}={a!r} (saved: {b!r})" for name, (a, b) in values.items() if a != b]
    require(
        not differing,
        f"settings differ from those of the checkpoints, got {', '.join(differing)}",
        remedy="use the saved ones, or begin in an empty checkpoint.folder",
    )


def capture(pipeline: Pipeline[Any], store: Store) -> PendingCheckpoint | None:
    """Copy the content of a checkpoint; None while there are only records to read again."""
    pipeline.check_account()
    if pipeline.learner is None:
        return None
    assert pipeline.vocabulary is not None
    assert pipeline.position is not None
    return store.capture(
        *(pipeline.learner, pipeline.position, pipeline.vocabulary),
        *(pipeline.values(), pipeline.blocks.waiting, pipeline.beside()),
    )


# Private runs.


class PrivateTerms(NamedTuple):
    """Settings for the most words there can be, and the words, or their `choice`, of a run."""

    settings: PrivateSettings
    words: Vocabulary | None = None
    choice: budget.WordsAndDelta | None = None
    public: PublicTopics | None = None
    seeds: Sequence[build.SeedWords] = ()

    @classmethod
    def of(cls, settings: RunSettings) -> Self:
        """Return the terms of the settings."""
        words, privacy = build.public_words(settings), settings.privacy
        if words is not None:
            seeds = build.read_seeds(settings.topics.seeds, settings.topics.count)
            public = build.public_topics(settings, words.n_features, words.words)
            asked = build.private_settings(settings, words.n_features, public=public)
            build.seed_by_words(asked, seeds, words)  # Raises before anything is paid for.
            return cls(asked, words, None, public, seeds)
        assert privacy.epsilon is not None
        assert privacy.delta is not None
        choice = budget.words_and_delta(privacy.epsilon, privacy.delta, privacy.relation)
        asked = build.private_settings(settings, settings.vocabulary.size, choice.delta)
        return cls(asked, choice=choice)


def _open_private(
    settings: RunSettings, store: Store | None, ledger: Ledger, warn: Warn
) -> OpenedRun:
    """Make or restore the pipeline of a private run, and accept what it has released since."""
    ledger.warn = warn
    saved = None if store is None else store.newest(ledger, catch_up=True)
    run = _name_run(store, saved is not None)
    terms, stream = PrivateTerms.of(settings), parts.name_stream(settings)
    made, before = ledger.releases_of(run)
    begins = saved is None and not made
    if begins:
        choice = terms.choice
        words_event = None if choice is None else event_of_selection(choice.selection)
        # Of other sources, names are all that is known before they are read.
        named = get_source_kind(settings) in ("stdin", "follow")
        budget.check_first_price(ledger, terms.settings, words_event, stream if named else None)
    words = terms.words or Vocabulary.hashed(1, build.make_analyzer(settings.vocabulary))
    census = take_census(settings, ledger, words, before)
    if begins and census is not None:
        census.check_new()
        _check_slots(settings, terms, census)
        if census.spent:
            warn(f"records={census.spent} were in earlier releases, and are left out")
    provenance = make_provenance(settings, ledger, census)
    manager = ReleaseManager(
        ledger=ledger, stream=stream, provenance=provenance, run=run, resumes=not begins
    )
    pipeline = make_private_pipeline(settings, terms, manager, warn)
    generation = ledger.generation if saved is None else 0
    found = OpenedRun(settings, pipeline, saved, 0, None, census, ledger, generation)
    if saved is not None:
        _check_text(pipeline, saved)
        learner = pipeline.begin(saved.vocabulary, int(saved.about["first_slot"]))
        saved.restore(learner)
        stage, slots = learner.stage, learner.slots
        begun = slots if stage is None else stage.first
        values = {**saved.about, "places": slots, "released_at": begun}
        pipeline.restore(saved.vocabulary, learner, values)
        pipeline.behind = Behind(saved.position, {})
    behind, last = made if saved is None else saved.releases_behind, ledger.last_release
    if behind:
        assert last is not None
        # Nothing is saved before the words are known: all releases so far were choices of words,
        # and each but the last was lost.
        is_choice = saved is None and last.description == WORDS
        path = str(store and store.folder)
        FAULTS.check(behind == 1 or is_choice, "behind", releases=behind, path=path)
        found.slots_to_skip, found.released = _catch_up(pipeline, manager, last)
    return found


def _name_run(store: Store | None, begun: bool) -> str:
    """Return the random name of the run of a folder of checkpoints, and keep it there."""
    if store is None or store.folder is None:
        return secrets.token_hex(8)
    path = store.folder / RUN_FILE
    if not (begun or path.exists()):
        with whole_file(path, OWNER_ONLY) as file:
            file.write(secrets.token_hex(8).encode("ascii"))
        sync_folder(store.folder)
    name = path.read_text("ascii", "replace") if path.exists() else ""
    FAULTS.check(re.fullmatch("[0-9a-f]{16}", name), "run file", path=str(path))
    return name


def _check_slots(settings: RunSettings, terms: PrivateTerms, census: Census) -> None:
    """Refuse to begin a run whose files cannot end in a model; nothing is spent."""
    words = 0 if terms.choice is None else build.word_documents(settings)
    window, least = terms.settings.documents_per_snapshot, terms.settings.least_slots
    # How many words there will be decides how a window is cut: a whole one always suffices.
    enough = census.slots >= words + (window if words else least)
    found = {"slots": census.slots, "documents_per_snapshot": window}
    found |= {"vocabulary_documents": words} if words else {}
    see = f"streamlda budget {settings.privacy.ledger}"
    FAULTS.check(enough or not census.spent, "spent", released=census.spent, **found, see=see)
    FAULTS.check(enough, "few slots", **found, room=max(0, census.slots - words))
    check_has_document(census.has_document, census.slots)


def make_private_pipeline(
    settings: RunSettings,
    terms: PrivateTerms,
    manager: ReleaseManager,
    warn: Warn = lambda message: None,
) -> Pipeline[PrivateLearner]:
    """Return the pipeline of a private run that begins."""
    asked, delta, choice = terms.settings, settings.privacy.delta, terms.choice
    assert delta is not None
    words: Any = terms.words
    if choice is not None:
        words = PrivateVocabularySelection(
            choice.selection,
            size=settings.vocabulary.size,
            slots=build.word_documents(settings),
            analyzer=build.make_analyzer(settings.vocabulary),
            release=manager.release,
        )

    def make_learner(vocabulary: Vocabulary, first_slot: int) -> PrivateLearner:
        own = replace(asked, n_features=vocabulary.n_features)
        return PrivateLearner(
            build.seed_by_words(own, terms.seeds, vocabulary, warn),
            manager,
            vocabulary=budget.STATEMENTS[vocabulary.kind],
            delta_of_words=delta - asked.delta,
            first_slot=first_slot,
            public=terms.public,
            publish_useless=settings.privacy.publish_useless,
        )

    return Pipeline(
        words,
        make_learner,
        every=asked.documents_per_snapshot,
        about=_about_models(settings),
        text_settings=build.text_settings(settings),
        provenance=manager.provenance,
    )


def _catch_up(
    pipeline: Pipeline[PrivateLearner], manager: ReleaseManager, last: Release
) -> tuple[int, ReleaseResult]:
    """Accept a release that no checkpoint knows of; return its record slots and its outcome."""
    if (learner := pipeline.learner) is not None:
        before = learner.last
        skipped = learner.catch_up(last)
        model = learner.new_model(before, pipeline.vocabulary, pipeline.facts(skipped))
        pipeline.skip(skipped)
        return skipped, pipeline.make_released(model)
    words, (_, end) = pipeline.words, last.cohort.slots
    own = manager.is_of_run(last) and last.description == WORDS
    if not (own and isinstance(words, PrivateVocabularySelection)):
        raise FAULTS.make("other release", release=last.number)
    skipped, found = end - words.first_slot, manager.read_stored(last)
    pipeline.skip(skipped)
    if found is None:
        # Paid for and never drawn: the next records vote.
        words.first_slot = end
        return skipped, ReleaseResult(None, "a choice of words was lost in a crash")
    try:
        pipeline.begin(words.read_words(found.arrays, found.metadata["selection"]), end)
    except InsufficientDataError as error:
        raise InsufficientDataError(
            f"{error}; its record slots up to {end} are spent: begin after them, in another "
            "checkpoint.folder"
        ) from error
    return skipped, ReleaseResult(None)
