"""The engine: documents in, topics out whenever asked, in memory that does not grow.

It goes through rounds (Wang & Anandkumar 2016, Algorithm 2, made general)::

    warm-up    The first documents are kept (at most `warmup_documents` of them) and give the
               first map W by a few power steps on their own second moment.
    round 1    Sums are taken through W over the warm-up documents and all that follow.
    round 2..  When a round has seen `round_growth` times the documents behind its W, its sums
               give a better W and the next round begins. The last finished round is kept.

Topics come from the larger of the two kept rounds, averaged with the other where they agree. The
engine does no input or output and never looks at a clock; equal documents give equal topics.

An engine that is given a *shared map* has neither warm-up nor rounds: all documents add to one set
of sums through that W. Engines with the same one can be merged (`streamlda.storage.merge` says
why).

`streamlda.engine.refining` goes on from these topics by likelihood; `new_engine` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.moments import Moments
from streamlda.spectral.topics import (
    RoundMoments,
    SpectralTopics,
    average_rounds,
    diagnostics,
    recover_topics,
)
from streamlda.spectral.whitening import (
    centred_pairs,
    next_projection,
    random_projection,
    word_scale,
)
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import one_blas_thread

Arrays = dict[str, NDArray[Any]]

#: Power steps that sharpen the first map on the warm-up documents.
WARMUP_POWER_STEPS = 3

#: The warm-up also ends at this many stored counts (12 bytes each), however few the documents.
WARMUP_MAX_ENTRIES = 4_000_000

#: Settings that have no effect on sums through a shared map.
_WITHOUT_EFFECT = ("refine", "warmup_documents")

#: The other kept round is averaged in when it has at least this share of the larger one.
LEAST_AVERAGED_SHARE = 0.1


class Engine:
    """Learns topics from batches of documents; see the module's description.

    Parameters
    ----------
    settings : EngineSettings
    shared_map : ndarray of shape (d, m), optional
        W for all documents, never replaced; for the solver ``"whitened-tensor"``. Kept by
        reference. `streamlda.storage.projection.load_projection` reads one.

    Raises
    ------
    InvalidSettingError
        If the shared map has another shape than the settings imply, or is not finite, or the
        solver makes maps of its own, or a refinement is asked for beside it.

    Attributes
    ----------
    settings : EngineSettings
    documents_seen : int
        Documents with at least 3 tokens, which the topics are made of.
    documents_skipped : int
        Documents passed over because they are shorter.
    tokens_seen : int
        Tokens of all documents.
    rounds_finished : int
        How often the map was replaced by a better one.

    Notes
    -----
    Memory: `EngineSettings.state_bytes`, and the warm-up documents while the first round lasts;
    half of it with a shared map.
    Time: O(nnz m + t^3 / 3) a document; `snapshot` O(d t^2 + t^3 K + K^4).
    """

    def __init__(
        self, settings: EngineSettings, *, shared_projection: NDArray[np.float64] | None = None
    ) -> None:
        self.settings = settings
        self.documents_seen = 0
        self.documents_skipped = 0
        self.tokens_seen = 0
        self.rounds_finished = 0
        self._warmup: list[DocumentBatch] = []
        self._warmup_documents = 0
        self._warmup_entries = 0
        self._current: Moments | None = None
        self._finished: Moments | None = None
        # Documents behind the map of the current round.
        self._behind_map = 0
        self._map_is_shared = shared_projection is not None
        if shared_projection is not None:
            _check_shared_map(shared_projection, settings)
            self._current = Moments(shared_projection, settings.n_triple_columns)

    @property
    def shared_projection(self) -> NDArray[np.float64] | None:
        """The map that is never replaced, shape (d, m); None if the engine makes its own."""
        return self._current.whitening if self._map_is_shared and self._current else None

    @property
    def refining(self) -> bool:
        """Whether the sums have made way for a refinement; never in this engine."""
        return False

    def add(self, batch: DocumentBatch) -> None:
        """Learn from a batch.

        Raises
        ------
        InvalidDocumentsError
            If it has another vocabulary size; nothing is learned then.
        """
        if batch.n_features != self.settings.n_features:
            raise InvalidDocumentsError(
                "documents must use the vocabulary of the engine, got "
                f"n_features={batch.n_features} expected={self.settings.n_features}"
            )
        start = 0
        with one_blas_thread():
            while start < batch.n_documents:
                stop = start + self._add_part(batch, start)
                usable = int(np.count_nonzero(batch.usable[start:stop]))
                self.documents_seen += usable
                self.documents_skipped += stop - start - usable
                self._part_counted()
                start = stop
        self.tokens_seen += int(batch.lengths.sum())

    def _part_counted(self) -> None:
        """Do what is due after the documents that were taken and counted."""

    def _add_part(self, batch: DocumentBatch, start: int) -> int:
        """Take documents from `start` up to the next change of phase; return how many."""
        if self._current is None:
            return self._keep(batch, start)
        if self._map_is_shared:
            self._current.add(batch)
            return batch.n_documents
        target = int(self.settings.round_growth * self._behind_map)
        part = batch.rows(start, start + max(1, target - self._current.documents))
        self._current.add(part)
        if self._current.documents >= target:
            self._next_round()
        return part.n_documents

    def _keep(self, batch: DocumentBatch, start: int) -> int:
        """Keep documents from `start` for the first map, until it can be made."""
        last_entry = batch.row_pointers[start] + WARMUP_MAX_ENTRIES - self._warmup_entries
        fitting = int(np.searchsorted(batch.row_pointers, last_entry, side="right")) - 1 - start
        room = self.settings.warmup_documents - self._warmup_documents
        part = batch.rows(start, start + min(room, max(1, fitting))).copy()
        self._warmup.append(part)
        self._warmup_documents += part.n_documents
        self._warmup_entries += len(part.counts)
        if (
            self._warmup_documents >= self.settings.warmup_documents
            or self._warmup_entries >= WARMUP_MAX_ENTRIES
        ):
            self._begin_rounds()
        return part.n_documents

    def _warmup_batch(self) -> DocumentBatch:
        """Return the kept documents as one batch: sums must not depend on how they came."""
        self._warmup = [DocumentBatch.joined(self._warmup)]
        return self._warmup[0]

    def _begin_rounds(self) -> None:
        if any(part.usable.any() for part in self._warmup):
            self._current = first_round(self._warmup_batch(), self.settings)
            self._behind_map = self._current.documents
        self._warmup.clear()
        self._warmup_documents = self._warmup_entries = 0

    def _next_round(self) -> None:
        assert self._current is not None
        # The memory of the round before the last serves the new one. It is made, and written to,
        # before the map is sought, so that every change of rounds takes as much as the next.
        spare = self._finished or Moments(self._current.whitening, self.settings.n_triple_columns)
        spare.restart(self._current.whitening)
        self._finished = self._current
        self.rounds_finished += 1
        self._behind_map = self._finished.documents
        spare.restart(_better_map(self._finished, self.settings))
        self._current = spare

    def better_projection(self) -> NDArray[np.float64]:
        """Return the map that a round begun now would have, shape (d, m); nothing is changed.

        Of the larger kept round. Time O(d m^2), and of the first map while the warm-up lasts.

        Raises
        ------
        InsufficientDataError
            As `topics`.
        InvalidSettingError
            If the solver makes maps of another kind.
        """
        _check_sums_tensor(self.settings)
        with one_blas_thread():
            return _better_map(self._rounds()[0], self.settings)

    def merge(self, other: Engine) -> None:
        """Add all that another engine has learned, as if its documents had come here.

        Sums differ from those of one engine over all documents by rounding alone. The halves
        that noise is measured by stay random halves, though not the same ones. Time
        O(d m + t^3), no memory of its own. Merging A into B gives the sums of B into A, bit for
        bit; with three or more the order matters by rounding.

        Parameters
        ----------
        other : Engine
            With equal settings and an equal shared map, of documents that are not in here
            already, which nothing can tell from sums. `refine` and `warmup_documents` may differ:
            sums do not depend on them. It is not changed.

        Raises
        ------
        InvalidSettingError
            If it is this same engine, or settings or maps differ, or one of the two has no
            shared map; nothing is added then.
        """
        _check_mergeable(self, other)
        assert self._current is not None
        assert other._current is not None
        self._current.merge(other._current)
        self.documents_seen += other.documents_seen
        self.documents_skipped += other.documents_skipped
        self.tokens_seen += other.tokens_seen

    def _rounds(self) -> list[Moments]:
        """Return the kept rounds that topics can be made of, the larger first."""
        if self.documents_seen < 2:
            raise InsufficientDataError(
                f"topics need at least 2 documents of at least {MIN_TOKENS} tokens, got "
                f"documents_seen={self.documents_seen} "
                f"documents_skipped={self.documents_skipped}; check the text field, the token "
                "pattern and the vocabulary"
            )
        current = self._current or first_round(self._warmup_batch(), self.settings)
        rounds = [part for part in (current, self._finished) if part and part.documents > 1]
        return sorted(rounds, key=lambda part: -part.documents)

    def topics(self) -> SpectralTopics:
        """Return topics from all that the kept rounds have seen.

        Raises
        ------
        InsufficientDataError
            If fewer than 2 documents had at least 3 tokens.
        """
        with one_blas_thread():
            return self._topics_of(self._rounds())

    def _topics_of(self, rounds: list[Moments]) -> SpectralTopics:
        return _topics_of(rounds, self.settings)

    def snapshot(
        self,
        vocabulary: Vocabulary | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> TopicModel:
        """Return a topic model of what has been learned so far; the engine is not changed.

        Parameters
        ----------
        vocabulary : Vocabulary, optional
            Stored with the model.
        settings : mapping, optional
            Further settings to record beside the engine's own.

        Raises
        ------
        InsufficientDataError
            As `topics`.
        """
        with one_blas_thread():
            rounds = self._rounds()
            found = self._topics_of(rounds)
        frequencies = np.sum([part.word_totals[:, 0] for part in rounds], axis=0)
        return TopicModel(
            components=found.proper(),
            alpha=found.alpha,
            background=frequencies / frequencies.sum(),
            vocabulary=vocabulary,
            settings={**asdict(self.settings), **(settings or {})},
            diagnostics={
                **diagnostics(found),
                "documents_skipped": self.documents_skipped,
                "rounds_finished": self.rounds_finished,
            },
            documents_seen=self.documents_seen,
            tokens_seen=self.tokens_seen,
        )

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return all that is needed to go on: arrays, and plain JSON values."""
        arrays: Arrays = {}
        for name, part in (("current", self._current), ("finished", self._finished)):
            if part is not None:
                arrays[f"{name}.whitening"] = part.whitening
                arrays |= {f"{name}.{key}": value for key, value in part.state().items()}
        if self._warmup:
            batch = self._warmup_batch()
            arrays["warmup.counts"] = batch.counts
            arrays["warmup.word_ids"] = batch.word_ids
            arrays["warmup.row_pointers"] = batch.row_pointers
        counters = {
            "documents_seen": self.documents_seen,
            "documents_skipped": self.documents_skipped,
            "tokens_seen": self.tokens_seen,
            "rounds_finished": self.rounds_finished,
            "behind_map": self._behind_map,
        }
        values = {"settings": asdict(self.settings), "counters": counters}
        # Only where it is so: states of other engines stay as they were.
        return arrays, values | {"shared_map": True} if self._map_is_shared else values

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Go on from what `state` returned, bit for bit.

        A state from before engines refined has no setting for it; it stays one of sums.
        """
        engine = cls(EngineSettings(**_settings_of(values)))
        for name, value in values["counters"].items():
            setattr(engine, "_behind_map" if name == "behind_map" else name, int(value))
        for name in ("current", "finished"):
            own = named(arrays, f"{name}.")
            if own:
                moments = Moments.from_state(own.pop("whitening"), own)
                setattr(engine, f"_{name}", moments)
        kept = named(arrays, "warmup.")
        if kept:
            d = engine.settings.n_features
            engine._warmup = [DocumentBatch(**kept, n_features=d, integral=False)]
            engine._warmup_documents = engine._warmup[0].n_documents
            engine._warmup_entries = len(engine._warmup[0].counts)
        engine._map_is_shared = bool(values.get("shared_map", False))
        if engine._map_is_shared:
            _check_shared_map(arrays["current.whitening"], engine.settings)
        return engine


def _settings_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a saved state, and what was meant before `refine` was one."""
    settings = dict(values["settings"])
    tensor = settings.get("solver", WHITENED_TENSOR) == WHITENED_TENSOR
    if tensor and "refine" not in settings and "refinement" not in values:
        settings["refine"] = False
    return settings


def projection_digest(whitening: NDArray[np.float64]) -> str:
    """Return 16 hex digits that tell maps apart by content. Time O(d m)."""
    data = np.ascontiguousarray(whitening, dtype="<f8").view(np.uint8).data
    return blake2b(data, digest_size=8).hexdigest()


def _check_sums_tensor(settings: EngineSettings) -> None:
    if settings.solver != WHITENED_TENSOR:
        raise InvalidSettingError(
            f"maps are shared by engines with solver={WHITENED_TENSOR!r} alone, got "
            f"solver={settings.solver!r}, which asks the stream through a map of its own; "
            "choose the other solver"
        )


def _check_shared_map(whitening: NDArray[np.float64], settings: EngineSettings) -> None:
    _check_sums_tensor(settings)
    if settings.refine:
        raise InvalidSettingError(
            "an engine with a shared map must keep its sums, which can be merged, got "
            "refine=True; leave it out"
        )
    expected = settings.n_features, settings.n_columns
    if whitening.shape != expected:
        raise InvalidSettingError(
            "a shared map must have a row for each word and K + oversampling columns, got "
            f"shape={whitening.shape} expected={expected}; use the vocabulary, n_components and "
            "oversampling that it was made with, or make another map"
        )


def _check_mergeable(mine: Engine, other: Engine) -> None:
    if other is mine:
        raise InvalidSettingError(
            "an engine must be merged with another one, got the same engine twice; "
            "its documents would count twice"
        )
    ours, theirs = asdict(mine.settings), asdict(other.settings)
    differing = [
        f"{n}={ours[n]!r},{theirs[n]!r}"
        for n in ours
        if ours[n] != theirs[n] and n not in _WITHOUT_EFFECT
    ]
    if differing:
        raise InvalidSettingError(
            f"engines must have equal settings to be merged, got {' '.join(differing)}; "
            "run all of them with the same settings"
        )
    one, another = mine.shared_projection, other.shared_projection
    if one is None or another is None:
        raise InvalidSettingError(
            "engines must sum through a shared map to be merged, got "
            f"shared_map={one is not None},{another is not None}; make a map file "
            "(streamlda map), and begin all engines with it"
        )
    if not np.array_equal(one, another):
        raise InvalidSettingError(
            "engines must share one map to be merged, got "
            f"map={projection_digest(one)},{projection_digest(another)}; "
            "begin all of them with the same map file"
        )


def _topics_of(rounds: list[Moments], settings: EngineSettings) -> SpectralTopics:
    """Return the topics of the first round, averaged with those of the others where they agree."""
    K, rng = settings.n_components, np.random.default_rng(settings.seed)
    found = recover_topics(RoundMoments.of(rounds[0]), K, settings.alpha_0, rng)
    for other in rounds[1:]:
        if other.documents >= LEAST_AVERAGED_SHARE * rounds[0].documents:
            seen = RoundMoments.of(other)
            near = found.proper()
            found = average_rounds(found, recover_topics(seen, K, found.alpha_0, rng, near))
    return found


def named(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays whose names begin with `prefix`, without it."""
    return {key[len(prefix) :]: arrays[key] for key in arrays if key.startswith(prefix)}


def first_projection(warmup: list[DocumentBatch], settings: EngineSettings) -> NDArray[np.float64]:
    """Find a map by power steps on the second moment of the warm-up documents."""
    W = random_projection(settings.n_features, settings.n_columns, settings.seed)
    for _ in range(WARMUP_POWER_STEPS):
        sketch = Moments(W, triple_columns=0)
        for part in warmup:
            sketch.add(part)
        W = _better_map(sketch, settings)
    return W


def first_round(warmup: DocumentBatch, settings: EngineSettings) -> Moments:
    """Find the first map, and sum the warm-up documents through it."""
    moments = Moments(first_projection([warmup], settings), settings.n_triple_columns)
    moments.add(warmup)
    return moments


def _better_map(moments: Moments, settings: EngineSettings) -> NDArray[np.float64]:
    first = moments.first_moment()
    # An unknown alpha_0 is taken as 1 here: the map only has to span the topics roughly.
    alpha_0 = 1.0 if settings.alpha_0 is None else settings.alpha_0
    pairs = centred_pairs(first, moments.pair_moment(), moments.whitening, alpha_0)
    return next_projection(pairs, moments.whitening, word_scale(first), settings.n_columns)
