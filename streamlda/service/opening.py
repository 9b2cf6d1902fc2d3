"""From settings to the parts of a daemon: source, words, engine, ledger, and where to go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Ledger
from streamlda.private.budget import check_first_price, run_terms, words_and_delta
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.service.memory import engine_settings, private_settings
from streamlda.service.private_work import PrivateWork, ResumedReleaseManager
from streamlda.service.work import PublicWork, Released
from streamlda.settings.table import Settings
from streamlda.storage.checkpoint import Checkpoint, Checkpoints
from streamlda.storage.projection import load_projection
from streamlda.stream.source import Source, open_source
from streamlda.stream.vocabulary_choice import WORDS, PrivateVocabularySelection, VocabularyLearner
from streamlda.text.analysis import LETTERS, TextAnalyzer
from streamlda.text.vocabulary import Vocabulary

#: Gets each rejected record and its reason, where the source has whole records to give.
OnReject = Callable[[Any, str], None]


@dataclass(slots=True)
class Restored:
    """An engine, and where its stream goes on.

    Attributes
    ----------
    work : PublicWork or PrivateWork
    checkpoint : Checkpoint or None
        None to begin at the beginning.
    places_to_pass : int
        Records behind the checkpoint that a release has used, to be passed over.
    released : Released or None
        What that release gave.
    """

    work: PublicWork | PrivateWork
    checkpoint: Checkpoint | None
    slots_to_skip: int = 0
    released: Released | None = None


def stream_name(settings: Settings) -> str:
    """Return the name of the stream in ledger and models: ``source.stream``, or the source."""
    if settings["source.stream"]:
        return str(settings["source.stream"])
    if settings["source.kind"] == "kafka":
        return f"kafka:{settings['kafka.topic']}/{settings['kafka.partitions']}"
    return " ".join(
        name if "://" in name else str(Path(name).resolve()) for name in settings["source.files"]
    )


def open_stream(settings: Settings, on_reject: OnReject | None = None) -> Source:
    """Open the source that the settings name, at its beginning.

    Raises
    ------
    SourceError, MissingExtraError, InvalidSettingError
        As the connectors.
    """
    of = settings.__getitem__
    shared = {"text_field": of("source.text_field"), "user_field": of("source.user_field")}
    shared["max_document_bytes"] = of("source.max_document")
    if of("source.kind") == "kafka":
        return open_source(
            "kafka",
            of("kafka.topic"),
            bootstrap_servers=of("kafka.bootstrap"),
            partitions=_partitions(of("kafka.partitions")),
            start=of("kafka.start"),
            group=of("kafka.group"),
            format=of("source.format"),
            allow_gaps=of("source.allow_gaps"),
            security=security(settings),
            on_reject=on_reject,
            **shared,
        )
    names = list(of("source.files"))
    if of("source.kind") == "follow":
        gaps = of("source.allow_gaps")
        return open_source("follow", names, format=of("source.format"), allow_gaps=gaps, **shared)
    formats = {"json": "jsonl"}
    return open_source(
        "files", names, format=formats.get(of("source.format"), of("source.format")), **shared
    )


def security(settings: Settings) -> dict[str, Any]:
    """Return how to connect to Kafka; secrets are named, and read at each connection."""
    of = settings.__getitem__
    found = {
        "protocol": of("kafka.protocol"),
        "mechanism": of("kafka.mechanism"),
        "username": of("kafka.username"),
        "ca_file": of("kafka.ca_file"),
        "certificate_file": of("kafka.certificate_file"),
        "key_file": of("kafka.key_file"),
    }
    for name in ("password", "key_password"):
        secret = of(f"kafka.{name}")
        if secret is not None:
            place = ("env", secret.variable) if secret.file is None else ("file", secret.file)
            found[f"{name}_{place[0]}"] = place[1]
    return {name: value for name, value in found.items() if value is not None}


def _partitions(chosen: str) -> str | list[int]:
    numbers = chosen.split(",")
    return [int(number) for number in numbers] if all(map(str.isdecimal, numbers)) else chosen


def analyzer(settings: Settings) -> TextAnalyzer:
    """Return how texts are split into words."""
    stop = settings["words.stop_words"]
    return TextAnalyzer(
        token_pattern=settings["words.token_pattern"] or LETTERS,
        stop_words=None if stop == "none" else stop,
    )


def given_words(settings: Settings) -> Vocabulary | None:
    """Return the words if they are known from the start, else None."""
    kind = settings["words.kind"]
    if kind == "given":
        return Vocabulary.from_file(settings["words.file"], analyzer(settings))
    if kind == "hashed":
        return Vocabulary.hashed(settings["words.hash_bits"], analyzer(settings))
    return None


def open_ledger(settings: Settings, opened: ExitStack) -> tuple[Ledger | None, str]:
    """Open the ledger of a private run or make it, and end a release that a crash cut short.

    Returns
    -------
    ledger : Ledger or None
        None if the run is not private.
    ended : str
        What became of that release; empty if there was none.
    """
    if not settings.private:
        return None, ""
    asked, selecting = _private_settings(settings)
    terms = run_terms(asked, words=selecting)
    ledger = opened.enter_context(Ledger.open(settings["privacy.ledger"], terms, create=True))
    ended = ledger.recover()
    return ledger, "" if ended is None else ended.outcome


def _private_settings(settings: Settings) -> tuple[PrivateSettings, bool]:
    words = given_words(settings)
    if words is not None:
        return private_settings(settings, words.n_features), False
    delta = words_and_delta(
        settings["privacy.epsilon"], settings["privacy.delta"], settings["privacy.relation"]
    ).delta
    return private_settings(settings, settings["words.size"], delta), True


def open_work(settings: Settings, store: Checkpoints, ledger: Ledger | None) -> Restored:
    """Make the engine, and take it to where the newest checkpoint and the ledger say.

    Raises
    ------
    LedgerError
        If the ledger knows releases that the checkpoints cannot go on behind, or does not allow
        the first one.
    InvalidSettingError
        If the checkpoints were made with other settings.
    ModelFileError
        If no checkpoint is whole.
    """
    if ledger is not None:
        return _open_private(settings, store, ledger)
    work = _public_work(settings)
    saved = store.newest()
    if saved is not None:
        work.restore(saved)
    return Restored(work, saved)


def _public_work(settings: Settings) -> PublicWork:
    words: Vocabulary | VocabularyLearner | None = given_words(settings)
    shared = None
    if settings["topics.map_file"]:
        found = load_projection(settings["topics.map_file"])
        shared, words = found.whitening, found.vocabulary
    if words is None:
        words = VocabularyLearner(
            size=settings["words.size"],
            documents=settings["words.documents"],
            analyzer=analyzer(settings),
        )
    n_features = words.n_features if isinstance(words, Vocabulary) else settings["words.size"]
    return PublicWork(
        engine_settings(settings, n_features),
        words,
        every=settings["snapshots.every"],
        most=settings["snapshots.most"],
        about={"stream": stream_name(settings)},
        shared_projection=shared,
    )


def _open_private(settings: Settings, store: Checkpoints, ledger: Ledger) -> Restored:
    saved = store.newest(ledger, catch_up=True)
    stream, last = stream_name(settings), ledger.last_intent
    fresh = last is None or all(d.stream != stream for d in last.cohort.documents)
    releaser = (ReleaseManager if fresh else ResumedReleaseManager)(ledger=ledger, stream=stream)
    asked, selecting = _private_settings(settings)
    words: Vocabulary | PrivateVocabularySelection | None = given_words(settings)
    event = None
    if words is None:
        chosen = words_and_delta(
            settings["privacy.epsilon"], settings["privacy.delta"], settings["privacy.relation"]
        )
        event = chosen.selection.event
        words = PrivateVocabularySelection(
            chosen.selection,
            size=settings["words.size"],
            slots=settings["words.documents"],
            analyzer=analyzer(settings),
            release=releaser.release,
        )
    if saved is None and fresh:
        n_words = settings["words.documents"] if selecting else 0
        check_first_price(ledger, releaser.stream, asked, n_words, event)
    work = PrivateWork(
        asked,
        words,
        releaser,
        delta=settings["privacy.delta"],
        about={"stream": releaser.stream},
    )
    if saved is not None:
        work.restore(saved)
    behind = 0 if saved is None else saved.releases_behind
    if saved is None and not fresh:
        behind = _releases_of(ledger, releaser.stream)
    if behind == 0:
        return Restored(work, saved)
    assert last is not None
    if saved is None and last.description == WORDS:
        # Nothing is saved before the words are known: all releases so far were choices of words,
        # and each but the last was lost.
        behind = 1
    if behind > 1:
        raise LedgerError(
            "a daemon must have the checkpoints that go with its ledger, got "
            f"releases={behind} and no checkpoint in path={str(store.folder)!r}; bring the folder "
            "back, or begin anew with other documents and a ledger of their own"
        )
    passed, released = work.catch_up(last)
    return Restored(work, saved, passed, released)


def _releases_of(ledger: Ledger, stream: str) -> int:
    """Return how many releases were of this stream; a ledger may be that of several."""
    releases = ledger.report()["snapshots"]
    return sum(any(name == stream for name, *_ in each["documents"]) for each in releases)
