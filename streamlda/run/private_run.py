"""Private runs: their terms, checks before anything is paid for, and how they resume.

A private run begins with a census of its files (`streamlda.run.census`), and resumes from its
checkpoints. A release may be on the disk while no checkpoint knows of it yet. Then the state before
it is restored, the records of the release are skipped unread, and its stored noisy sums are
accepted as if nothing had happened (`PrivateLearner.catch_up`). So no document is released twice,
and none is lost.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from streamlda.checks import Faults
from streamlda.container import sync_folder, whole_file
from streamlda.errors import InsufficientDataError, LedgerError, ModelFileError
from streamlda.privacy.events import Event, event_of_selection
from streamlda.privacy.ledger import Intent, Ledger
from streamlda.private.budget import (
    STATEMENTS,
    WordsAndDelta,
    check_first_price,
    words_and_delta,
)
from streamlda.private.learner import PrivateLearner
from streamlda.private.public_start import PublicTopics
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.run.census import UNSPENT, Census, make_provenance, take_census
from streamlda.run.parts import about_models, name_published_stream, name_stream, spell_source
from streamlda.settings.build import (
    make_analyzer,
    private_settings,
    public_topics,
    public_words,
    text_settings,
    word_documents,
    words_besides,
)
from streamlda.settings.rules import get_source_kind
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.seeds import SeedWords, read_seeds, seed_by_words
from streamlda.settings.setting import FIT
from streamlda.storage.checkpoint import OWNER_ONLY, Checkpoint
from streamlda.storage.store import Store
from streamlda.stream.pipeline import Pipeline, Released, Schedule
from streamlda.stream.vocabulary_choice import WORDS, PrivateVocabularySelection
from streamlda.text.vocabulary import Vocabulary

#: File in a folder of checkpoints that names the private run of that folder. The name stands in
#: each release of the run, so that one that no checkpoint knows of is known as its own.
RUN_FILE = "run"

#: Ending of the folder beside a ledger where private fits without a folder have checkpoints.
RUNS = ".runs"

FAULTS = Faults(
    {
        LedgerError: {
            "spent": "documents must not be in two releases, and too few of these were in none; "
            f"{UNSPENT}; what was released gives a model (budget --publish)",
            "behind": "a run must have the checkpoints that go with its ledger; bring the folder "
            "back, or begin with other documents",
            "no words": "a release of topics must come after that of the words; begin with other "
            "documents and a ledger of their own",
            "words": "a release of words must be that of this run; use the settings that it was "
            "made with, or begin with other documents",
        },
        InsufficientDataError: {
            "few slots": "a private snapshot needs a whole window of record slots, after those of "
            "the vocabulary; set snapshots.every (--snapshot-every) to at most the room, "
            "take fewer records for the vocabulary, or read more; nothing was spent",
        },
        ModelFileError: {
            "run file": "the file that names the run of checkpoints must be whole; restore it from "
            "a copy, or begin in an empty folder",
        },
    }
)

Warn = Callable[[str], None]


class PrivateTerms(NamedTuple):
    """Settings for the most words there can be, and the words, or their `choice`, of a run."""

    settings: PrivateSettings
    words: Vocabulary | None
    choice: WordsAndDelta | None
    public: PublicTopics | None = None
    seeds: Sequence[SeedWords] = ()
    besides: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: RunSettings) -> PrivateTerms:
        """Return the terms of the settings."""
        words, privacy = public_words(settings), settings.privacy
        seeds = read_seeds(settings.topics.seeds, settings.topics.count)
        if words is not None:
            public = public_topics(settings, words.n_features, words.words)
            asked = private_settings(settings, words.n_features, public=public)
            seed_by_words(asked, seeds, words)  # Raises before anything is paid for.
            return cls(asked, words, None, public, seeds)
        assert privacy.epsilon is not None
        assert privacy.delta is not None
        choice = words_and_delta(privacy.epsilon, privacy.delta, privacy.relation)
        asked = private_settings(settings, settings.vocabulary.size, choice.delta)
        return cls(asked, None, choice, seeds=seeds, besides=words_besides(settings, seeds))

    def digest(self, settings: RunSettings) -> str:
        """Return a digest of all settings but the place of documents; it is public."""
        return _digest(
            {
                "settings": asdict(self.settings),
                "text": text_settings(settings),
                "analyzer": make_analyzer(settings.vocabulary).metadata(),
                "words": None if self.words is None else self.words.fingerprint,
                "words_besides": self.besides,
                "seeds": self.seeds,
                "stream": name_published_stream(settings),
            }
        )


def _digest(values: object) -> str:
    return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def make_document_test(words: Vocabulary) -> Callable[[str], bool]:
    """Return a test that tells documents over some words from other texts."""
    return lambda text: bool(words.encode([text]).batch.usable[0])


def get_own_folder(settings: RunSettings) -> Path | None:
    """Return the folder of checkpoints of a private fit of files that names none.

    It belongs to settings and source, so that the same command resumes a fit that was cut short.
    """
    is_fit = settings.command == FIT and settings.cluster.dask is None
    resumes = is_fit and settings.private and settings.privacy.mode == "window"
    if not resumes or settings.checkpoint.folder or get_source_kind(settings) != "files":
        return None
    asked = PrivateTerms.of(settings).digest(settings)
    source = settings.source
    reading = [source.format, source.text_field, source.max_record, source.delimiter]
    reading += [] if source.include is None else [source.include]
    name = _digest([asked, spell_source(settings), reading])
    return Path(f"{settings.privacy.ledger}{RUNS}", name)


# Checks before anything is paid for.


def check_price(settings: RunSettings, ledger: Ledger, terms: PrivateTerms) -> None:
    """Refuse to begin a run that its ledger does not allow, before any document is read."""
    choice = terms.choice
    words_event = None if choice is None else event_of_selection(choice.selection)
    # Of other sources, names are all that is known before they are read.
    named = get_source_kind(settings) in ("stdin", "follow")
    stream = name_stream(settings) if named else None
    check_first_price(ledger, terms.settings, words_event, stream)


def check_slots(settings: RunSettings, terms: PrivateTerms, census: Census, warn: Warn) -> None:
    """Refuse to begin a run whose files cannot end in a model; nothing is spent."""
    words = 0 if terms.choice is None else word_documents(settings)
    window, least = terms.settings.documents_per_snapshot, terms.settings.least_slots
    # How many words there will be decides how a window is cut: a whole one always suffices.
    least = window if words else least
    found = {"slots": census.slots, "documents_per_snapshot": window}
    found |= {"vocabulary_documents": words} if words else {}
    enough = census.slots >= words + least
    see = f"streamlda budget {settings.privacy.ledger}"
    FAULTS.check(enough or not census.spent, "spent", released=census.spent, **found, see=see)
    FAULTS.check(enough, "few slots", **found, room=max(0, census.slots - words))
    census.check_has_document()
    most, here = settings.snapshots.most, (census.slots - words) // window
    shared = settings.privacy.unit == "user" or settings.privacy.mode == "prefix"
    if shared and most is not None and here < most:
        warn(
            f"the noise of each snapshot is for snapshots={most}, and the files have record slots "
            f"for {max(1, here)}; with fewer (snapshots.most) there is less noise"
        )


# From the ledger and the folder to a learner.


class RunRecord(NamedTuple):
    """A run, the ledger that pays for it, and how many releases that had when it began."""

    name: str
    ledger_id: str
    began: int


def find_run(store: Store | None, ledger: Ledger, *, saved: bool) -> tuple[RunRecord, int]:
    """Return the run that resumes in a folder, or a new one, and how many releases it has made."""
    fresh = RunRecord(secrets.token_hex(8), ledger.ledger_id, ledger.generation)
    if store is None or store.folder is None:
        return fresh, 0
    path = store.folder / RUN_FILE
    if path.exists():
        try:
            found = RunRecord(**json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise FAULTS.make("run file", path=str(path)) from error
        releases = [] if saved else ledger.report()["snapshots"]
        made = sum(each["run"] == found.name for each in releases)
        if found.ledger_id == ledger.ledger_id and (saved or made):
            return found, made
    with whole_file(path, OWNER_ONLY) as file:
        file.write(json.dumps(fresh._asdict()).encode("ascii"))
    sync_folder(store.folder)
    return fresh, 0


class ResumedReleaseManager(ReleaseManager):
    """Pays for a run that is under way, which may start when the budget is used up."""

    def check(self, event: Event) -> None:
        """Do nothing."""


class PrivateRun:
    """The private part of opening a run: the census, who pays, and what was released before."""

    def __init__(
        self,
        settings: RunSettings,
        store: Store | None,
        ledger: Ledger,
        saved: Checkpoint | None,
        warn: Warn,
        should_stop: Callable[[], bool],
    ) -> None:
        self._store, self._ledger, self._saved = store, ledger, saved
        ledger.warn = warn
        record, self._made = find_run(store, ledger, saved=saved is not None)
        fresh = saved is None and not self._made
        self.terms = PrivateTerms.of(settings)
        own = None if store is None or settings.checkpoint.folder else store.folder
        if fresh:
            check_price(settings, ledger, self.terms)
        elif own is not None:
            warn("a fit that was cut short resumes, and what it released is not paid again")
        words = self.terms.words or Vocabulary.hashed(1, make_analyzer(settings.vocabulary))
        self.census = take_census(
            settings,
            ledger.key,
            ledger.known_at(record.began),
            make_document_test(words),
            by_now=None if fresh else ledger.known,
            should_stop=should_stop,
        )
        if fresh and self.census is not None:
            self.census.check_new(ledger)
            check_slots(settings, self.terms, self.census, warn)
            if self.census.spent:
                warn(f"records={self.census.spent} were in earlier releases, and are left out")
        if fresh and own is not None:
            _remove_others(own)
        manage = ReleaseManager if fresh else ResumedReleaseManager
        self.manager = manage(
            ledger=ledger,
            stream=name_stream(settings),
            provenance=make_provenance(settings, ledger, self.census),
            run=record.name,
            asked=self.terms.digest(settings),
        )

    def catch_up(self, pipeline: Pipeline[PrivateLearner]) -> tuple[int, Released | None]:
        """Accept a release that no checkpoint knows of; return its record slots and its outcome."""
        saved, last = self._saved, self._ledger.last_intent
        behind = self._made if saved is None else saved.releases_behind
        if behind == 0:
            return 0, None
        assert last is not None
        assert self._store is not None
        if saved is None and last.description == WORDS:
            # Nothing is saved before the words are known: all releases so far were choices of
            # words, and each but the last was lost.
            behind = 1
        FAULTS.check(behind == 1, "behind", releases=behind, path=str(self._store.folder))
        if last.description == WORDS:
            return _accept_words(pipeline, self.manager, last)
        learner = pipeline.learner
        if learner is None:
            raise FAULTS.make("no words", release=last.number, description=last.description)
        before = learner.engine.snapshot
        skipped = learner.catch_up(last)
        model = learner.new_model(before, pipeline.vocabulary, pipeline.facts(skipped))
        return skipped, pipeline.resume_after(skipped, model)


def _remove_others(own: Path) -> None:
    """Remove checkpoints of other fits of a ledger, which cannot resume once this one begins."""
    for other in own.parent.iterdir():
        if other != own:
            shutil.rmtree(other)


def make_private_pipeline(
    settings: RunSettings,
    terms: PrivateTerms,
    manager: ReleaseManager,
    warn: Warn = lambda message: None,
) -> Pipeline[PrivateLearner]:
    """Return the pipeline of a private run that begins."""
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
            publish_useless=settings.privacy.publish_useless,
        )

    return Pipeline(
        words,
        make_learner,
        schedule=Schedule(every=asked.documents_per_snapshot),
        about=about_models(settings),
        reading=text_settings(settings),
        provenance=manager.provenance,
    )


def restore_private(pipeline: Pipeline[PrivateLearner], saved: Checkpoint) -> None:
    """Restore a pipeline from a checkpoint of its run."""
    learner = pipeline.begin(saved.vocabulary, int(saved.about["first_slot"]))
    saved.restore(learner)
    learner.resume(int(saved.about["stages"]))
    stage, slots = learner.engine.stage, learner.engine.slots
    begun = slots if stage is None else stage.first
    values = {**saved.about, "places": slots, "released_at": begun}
    pipeline.restore(saved.vocabulary, learner, values)


def _accept_words(
    pipeline: Pipeline[PrivateLearner], manager: ReleaseManager, intent: Intent
) -> tuple[int, Released]:
    """Accept a choice of words that no checkpoint knows of; return its record slots."""
    words, (first, last) = pipeline.words, intent.cohort.slots_of_run
    if (
        not isinstance(words, PrivateVocabularySelection)
        or pipeline.records
        or not manager.made(intent)
    ):
        raise FAULTS.make("words", release=intent.number, first=first)
    skipped = last - words.first_slot
    found = manager.stored(intent)
    if found is None:
        # Paid for and never drawn: the next records vote.
        words.first_slot = last
        pipeline.skip(skipped)
        return skipped, Released(None, "a choice of words was lost in a crash")
    try:
        chosen = words.read_words(found.arrays, found.metadata["selection"])
    except InsufficientDataError as error:
        raise InsufficientDataError(
            f"{error}; its record slots up to {last} are spent: begin after them, in another "
            "checkpoint.folder"
        ) from error
    pipeline.begin(chosen, last)
    pipeline.skip(skipped)
    return skipped, Released(None)
