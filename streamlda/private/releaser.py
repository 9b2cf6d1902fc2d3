"""The rim of the private route: pays for a release, draws its noise, stores it, publishes topics.

What is due at the engine goes through the ledger's three steps: intent, noise and artefact, commit.
The artefact of a release is a file of its noisy sums (kind ``streamlda-release``, version 1), in a
folder beside the ledger: everything that ever left the raw sums is in these files, and topics can
be made from them again, with another alpha_0 say, at no further cost. Without a ledger nothing is
stored: the guarantee holds for the run, and nothing remembers it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamlda.container import ArraysFile, read_arrays, write_arrays
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidSettingError, LedgerError
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.events import Event
from streamlda.privacy.ledger import Cohort, DocumentRange, Intent, Ledger, LedgerTerms
from streamlda.privacy.noise import Noise, SecureNoise
from streamlda.privacy.statement import private_statement, seeded
from streamlda.private.engine import PREFIX, PrivateEngine
from streamlda.private.refinement import REFINED_NORM
from streamlda.private.settings import PrivateSettings
from streamlda.private.snapshot import PrivateSnapshot
from streamlda.spectral.topics import diagnostics
from streamlda.text.vocabulary import Vocabulary

RELEASE_FORMAT, RELEASE_VERSION = "streamlda-release", 1

#: A stream that ends within the last stage of a window gives a snapshot if at least this part of
#: the stage is filled.
LEAST_LAST_STAGE = 0.5

#: Rows of a batch where a clock ends stages: these end at multiples of it, whatever rows hold.
CLOCKED_ROWS = 64


def ledger_terms(settings: PrivateSettings) -> LedgerTerms:
    """Return the terms of a ledger for a run: what all its releases may cost one unit."""
    horizon = None
    if settings.mode == "prefix":
        assert settings.snapshots is not None
        horizon = settings.n_stages + settings.snapshots - 1
    return LedgerTerms(
        epsilon=settings.epsilon,
        delta=settings.delta_left,
        privacy_unit=settings.privacy_unit,
        neighboring_relation=settings.neighboring_relation,
        mode=settings.mode,
        horizon=horizon,
    )


def config_hash(settings: PrivateSettings, vocabulary: str) -> str:
    """Return a digest of all that bears on a release, but for documents, words and starts."""
    values = {name: value for name, value in asdict(settings).items() if name != "seed"}
    values["vocabulary"] = vocabulary
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


class ReleaseManager:
    """Pays for releases and draws their noise.

    Parameters
    ----------
    noise : Noise, optional
        `SecureNoise` by default; `SeededNoise` in tests, which makes nothing private.
    ledger : Ledger, optional
        Open for writing. Releases are stored in the folder ``NAME.releases`` beside it.
    stream : str
        Names the stream in which places count. Two runs that name the same documents differently
        spend on them twice without noticing.
    """

    def __init__(
        self, noise: Noise | None = None, ledger: Ledger | None = None, stream: str = "stream"
    ) -> None:
        self.noise = SecureNoise() if noise is None else noise
        self.ledger = ledger
        self.stream = stream
        if ledger is not None:
            self.folder = ledger.path.with_name(ledger.path.name + ".releases")

    @property
    def ledger_id(self) -> str | None:
        """Random name of the ledger; None without one."""
        return None if self.ledger is None else self.ledger.ledger_id

    def check(self, event: Event) -> None:
        """Raise `BudgetExceededError` if a release on new documents would; spend nothing."""
        if self.ledger is not None:
            self.ledger.check(event)

    def release(
        self,
        name: str,
        first: int,
        last: int,
        event: Event,
        draw: Callable[[Noise], dict[str, Any]],
        about: Mapping[str, Any],
        config: str = "",
    ) -> dict[str, Any]:
        """Pay for a release, draw it and store it; return its arrays.

        Parameters
        ----------
        name : str
            Of the stage.
        first, last : int
            Places of its documents, `last` not included.
        event : event
            The price.
        draw : callable of Noise
            Returns the noisy arrays; called once, after the price is on the disk.
        about : mapping
            Plain JSON values to store with the arrays.
        config : str, default ""
            `config_hash` of the run, for the ledger.

        Raises
        ------
        BudgetExceededError, LedgerError
            See `Ledger.begin` and `Ledger.publish`. After an error the price may be spent.
        """
        if self.ledger is None:
            return draw(self.noise)
        documents = (DocumentRange(self.stream, first, last),)
        cohort = Cohort(f"{self.stream}:{first}-{last}", documents, self.ledger.generation)
        intent = self.ledger.begin(cohort, event, config_hash=config, description=name)
        arrays = draw(self.noise)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        final = self._path(intent)
        temporary = final.with_name(final.name + ".new")
        stored = {"stage": name, "first": first, "last": last - 1, **about}
        stored["secure"] = self.noise.secure
        write_arrays(temporary, RELEASE_FORMAT, RELEASE_VERSION, arrays, stored)
        self.ledger.publish(intent, temporary, final)
        return arrays

    def _path(self, intent: Intent) -> Path:
        name = intent.description.replace(" ", "-")
        return self.folder / f"{intent.number:06d}-{name}.safetensors"

    def stored(self, intent: Intent) -> ArraysFile | None:
        """Return what a release gave, or None if it was lost.

        Raises
        ------
        LedgerError
            If something else lies in its place.
        ModelFileError
            If it is damaged.
        """
        assert self.ledger is not None
        path = self._path(intent)
        if not path.exists():
            return None
        self.ledger.check_target(path)
        return read_arrays(path, RELEASE_FORMAT, RELEASE_VERSION)


class PrivateLearner:
    """A private engine with somebody who pays: what an ingestion feeds in place of an `Engine`.

    Parameters
    ----------
    settings : PrivateSettings
    releaser : Releaser
    vocabulary : str
        Where the columns come from: one of `streamlda.privacy.statement.VOCABULARIES`.
    delta_of_words : float, default 0
        What a private selection of the words took off the total delta.
    first_place : int, default 0
        Place of the first row.
    on_snapshot : callable of PrivateSnapshot, optional
        Called after each snapshot.
    seconds_per_snapshot : float, optional
        Also end a window after this time: each stage after its share of it, by the clock alone,
        if it has a place. ``documents_per_snapshot`` stays the most. The clock is looked at behind
        every batch: their ends must not depend on what documents say, as with `CLOCKED_ROWS` rows
        each. A document that takes longer to process moves the border by timing, which the promise
        excludes.
    clock : callable, default time.monotonic
        In seconds.

    Raises
    ------
    BudgetExceededError
        If the budget does not cover a window; before any document is read.

    Attributes
    ----------
    settings : PrivateSettings
    engine : PrivateEngine
    releaser : Releaser
    vocabulary : str
    delta : float
        In all, that of the words included.
    first_place : int
    snapshots : list of PrivateSnapshot
        Those made so far, if nobody else takes them.
    missed : list of str
        Why windows gave no snapshot although they were paid for.
    """

    def __init__(
        self,
        settings: PrivateSettings,
        releaser: ReleaseManager,
        *,
        vocabulary: str,
        delta_of_words: float = 0.0,
        first_place: int = 0,
        on_snapshot: Callable[[PrivateSnapshot], None] | None = None,
        seconds_per_snapshot: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if seconds_per_snapshot is not None and not 0 < seconds_per_snapshot < math.inf:
            raise InvalidSettingError(
                "seconds_per_snapshot must be > 0 and finite, got "
                f"seconds_per_snapshot={seconds_per_snapshot}"
            )
        releaser.check(settings.event)
        self.settings = settings
        state_noise = releaser.noise if settings.noise_in_state else None
        self.engine = PrivateEngine(settings, state_noise, first_place)
        self.snapshots: list[PrivateSnapshot] = []
        self.releaser = releaser
        self.vocabulary = vocabulary
        self.delta = settings.delta + delta_of_words
        self.first_place = first_place
        self._on_snapshot = on_snapshot or self.snapshots.append
        self.missed: list[str] = []
        self._seconds, self._clock = seconds_per_snapshot, clock
        self._stage_began = clock()

    @property
    def documents_seen(self) -> int:
        """Places read so far, which are public; the number of documents is not."""
        return self.engine.places - self.first_place

    @property
    def finished(self) -> bool:
        """Whether no snapshot is left to come."""
        return self.engine.stage is None

    def add(
        self, batch: DocumentBatch, users: Sequence[str | bytes | None] | None = None, /
    ) -> None:
        """Take rows, and make the releases that fall due on the way.

        Rows after the last snapshot are dropped.
        """
        start = 0
        while start < batch.n_documents and not self.finished:
            rest = batch.rows(start, batch.n_documents)
            start += self.engine.add(rest, None if users is None else users[start:])
            self.settle()
            self.tick()

    def tick(self) -> None:
        """End the running stage if its time is over; call it while no documents come, too."""
        stage = self.engine.stage
        if self._seconds is None or stage is None or stage.places == 0:
            return
        share = self.settings.stages.get(stage.name, 1.0)
        if self._clock() - self._stage_began >= share * self._seconds:
            self.engine.end_stage()
            self.settle()

    def finish(self) -> None:
        """Take the end of the stream: a last stage that is half full gives a snapshot.

        The end is a place, and so public. What was summed in an unfinished window is dropped.
        """
        stage = self.engine.stage
        if stage is None or stage.name not in (list(self.settings.stages)[-1], PREFIX):
            return
        if stage.places >= LEAST_LAST_STAGE * (stage.last - stage.first):
            self.engine.end_stage()
            self.settle()

    def settle(self) -> None:
        """Make the release that is due, if one is.

        Raises
        ------
        BudgetExceededError, LedgerError
            As `ReleaseManager.release`.
        """
        due = self.engine.due
        if due is None:
            return
        self._stage_began = self._clock()
        before = self.engine.snapshot
        about = {"settings": _plain(self.settings), "stddevs": due.stddevs}
        released = self.releaser.release(
            *(due.stage, due.first, due.last, due.event, due.release, about),
            config_hash(self.settings, self.vocabulary),
        )
        self._accept(released, before)

    def _accept(self, released: Mapping[str, Any], before: PrivateSnapshot | None) -> None:
        try:
            self.engine.accept(dict(released))
        except InsufficientDataError as error:
            # The window is lost, and paid for; the next one may do better.
            self.missed.append(str(error))
        if self.engine.snapshot is not None and self.engine.snapshot is not before:
            self._on_snapshot(self.engine.snapshot)

    def catch_up(self, intent: Intent) -> int:
        """Go on behind a release that a restored state, saved before it, does not know of.

        A crash between a release and the next checkpoint leads here. None of the documents of that
        release is released again: what the state has of their raw sums is dropped, and their
        noisy sums are taken from where the release was stored. If it was lost, so is its window.

        Parameters
        ----------
        intent : Intent
            The last one of the ledger.

        Returns
        -------
        int
            Records that the caller must pass over unread, before the next row.

        Raises
        ------
        LedgerError
            If the release is not the next one of this state, or belongs to prefix sums, whose
            noise went with the state that was lost.
        """
        engine, stage = self.engine, self.engine.stage
        (documents,) = intent.cohort.documents
        found = (documents.stream, documents.start, intent.description)
        wanted = stage and (self.releaser.stream, stage.first, stage.name)
        # A clock or the end of the stream may have ended the stage before its last place.
        ends = stage is not None and engine.places <= documents.stop <= stage.last
        alike = intent.config_hash == config_hash(self.settings, self.vocabulary)
        released = self.releaser.stored(intent)
        lost_prefix = self.settings.mode == "prefix" and released is None
        no_prefix = found[-1] != PREFIX and not lost_prefix
        if stage is None or not (found == wanted and ends and alike and no_prefix):
            raise LedgerError(
                "a state can go on behind the one release that comes next, made with the same "
                f"settings, and not in prefix sums, got release={found} stop={documents.stop} of "
                f"the state={wanted} places={engine.places} same_settings={alike} "
                f"mode={self.settings.mode}; drop the state and begin anew with other documents "
                "and a budget of their own"
            )
        left = documents.stop - engine.places
        self._stage_began = self._clock()
        if released is None:
            engine.abandon_window(documents.stop)
            return left
        if left:
            engine.skip(left)
        if stage.open_places:
            engine.end_stage()
        self._accept(released.arrays, engine.snapshot)
        return left

    def snapshot(
        self,
        vocabulary: Vocabulary | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> TopicModel:
        """Return the model of the last snapshot.

        Parameters
        ----------
        vocabulary : Vocabulary, optional
            Stored with the model: public, or chosen privately.
        settings : mapping, optional
            Further settings to record.

        Raises
        ------
        InsufficientDataError
            If no window was finished yet.
        """
        snapshot = self.engine.snapshot
        if snapshot is None:
            if self.missed:
                raise InsufficientDataError(self.missed[-1])
            raise InsufficientDataError(
                "a private snapshot needs a whole window of places, got "
                f"places={self.documents_seen} "
                f"documents_per_snapshot={self.settings.documents_per_snapshot}; take smaller "
                "windows, or read more"
            )
        return self.model_of(snapshot, vocabulary, settings)

    def model_of(
        self,
        snapshot: PrivateSnapshot,
        vocabulary: Vocabulary | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> TopicModel:
        """Return a snapshot as a model with its privacy statement."""
        found = snapshot.topics
        places = sum(stage.last + 1 - stage.first for stage in snapshot.stages)
        asked = self.settings.n_components
        notes = diagnostics(found.spectral)
        warnings = notes["warnings"]
        assert isinstance(warnings, list)
        notes["mixed_with_background"] = found.mixed.tolist()
        notes["topics_asked"] = asked
        if len(found.components) < asked:
            notes["warnings"] = [
                *warnings,
                f"{len(found.components)} of {asked} topics stand above the noise and are "
                "published; more documents per snapshot or a larger epsilon would show more",
            ]
        return TopicModel(
            components=found.components,
            alpha=found.alpha,
            background=found.background,
            vocabulary=vocabulary,
            settings={**_plain(self.settings), **(settings or {})},
            diagnostics=notes,
            documents_seen=places,
            privacy=self.statement(snapshot),
        )

    def statement(self, snapshot: PrivateSnapshot) -> dict[str, Any]:
        """Return the privacy statement of a snapshot."""
        if not self.releaser.noise.secure:
            return seeded()
        settings, bounds = self.settings, snapshot.bounds
        clip_bounds = {
            name: (getattr(bounds, name), bounds.source) for name in ("first", "pair", "triple")
        }
        if settings.n_refinement_rounds:
            clip_bounds["shares"] = REFINED_NORM, "fixed"
        horizon = ledger_terms(settings).horizon
        return private_statement(
            epsilon=settings.epsilon,
            delta=self.delta,
            stages=snapshot.stages,
            clip_bounds=clip_bounds,
            vocabulary=self.vocabulary,
            secure=True,
            ledger=self.releaser.ledger_id,
            privacy_unit=settings.privacy_unit,
            documents_per_user=settings.documents_per_user,
            neighboring_relation=settings.neighboring_relation,
            mode=settings.mode,
            horizon=horizon,
        )


def open_ledger(path: str | os.PathLike[str], settings: PrivateSettings) -> Ledger:
    """Open the ledger of a run for writing, or make it.

    A release that a crash cut short is ended first.
    """
    ledger = Ledger.open(Path(path), ledger_terms(settings), create=True)
    try:
        ledger.recover()
    except BaseException:
        ledger.close()
        raise
    return ledger


def _plain(settings: PrivateSettings) -> dict[str, Any]:
    values = asdict(settings)
    if isinstance(settings.clipping, ClipBounds):
        values["clipping"] = asdict(settings.clipping)
    return values
