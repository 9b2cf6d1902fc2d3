"""The engine: documents in, topics out whenever asked, in memory that does not grow.

It goes through rounds (Wang & Anandkumar 2016, Algorithm 2, made general)::

    warm-up    The first documents are kept (at most `warmup_documents` of them) and give the
               first map W by a few power steps on their own second moment.
    round 1    Sums are taken through W over the warm-up documents and all that follow.
    round 2..  When a round has seen `round_growth` times the documents behind its W, its sums
               give a better W and the next round begins. The last finished round is kept.

Topics come from the larger of the two kept rounds, averaged with the other where they agree. The
engine does no input or output and never looks at a clock; equal documents give equal topics.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.model import TopicModel
from streamlda.moments import Moments
from streamlda.threads import one_blas_thread
from streamlda.topics import (
    Seen,
    SpectralTopics,
    average_rounds,
    diagnostics,
    recover_topics,
)
from streamlda.vocabulary import Vocabulary
from streamlda.whitening import centred_pairs, next_map, random_map, word_scale

Arrays = dict[str, NDArray[Any]]

#: The default way from documents to topics: sum a small tensor, decompose it when asked.
WHITENED_TENSOR = "whitened-tensor"

#: Ways from documents to topics; the last two ask the stream anew at each power iteration
#: (`streamlda.power_engine`).
SOLVERS = (WHITENED_TENSOR, "online-power", "simultaneous")

#: Power steps that sharpen the first map on the warm-up documents.
WARMUP_POWER_STEPS = 3

#: Columns beyond K that the triple moment is taken through: on 200,000 abstracts 20 gave the
#: perplexity of 50, at a third of the time.
TRIPLE_OVERSAMPLING = 20

#: The warm-up also ends at this many stored counts (12 bytes each), however few the documents.
WARMUP_MAX_ENTRIES = 4_000_000

#: The other kept round is averaged in when it has at least this share of the larger one.
LEAST_AVERAGED_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine is asked to do; fixed for its life.

    Parameters
    ----------
    n_components : int
        K, topics.
    n_features : int
        d, words of the vocabulary. Topics beyond its rank repeat the corpus frequencies.
    alpha_0 : float or None, default 1.0
        Sum of the Dirichlet parameters; None estimates it from the eigenvalues.
    warmup_documents : int, default 10000
        Documents kept to find the first map.
    oversampling : int, default 50
        Columns of W beyond K for the pair moment. More of them give better maps and cost memory
        and time in proportion.
    round_growth : float, default 5.0
        Documents of a round over those behind its map; above 1.
    seed : int, default 0
        Of the random map and the restarts; 0 <= seed < 2^64.
    solver : str, default "whitened-tensor"
        How topics come from documents: one of `SOLVERS`; see `new_engine`.
    documents_per_round : int or None, default None
        n, fresh documents of each power iteration of the online solvers. None begins with 1000 and
        lets rounds of refining grow with the stream, so that topics sharpen for ever.
    n_restarts : int, default 10
        L, random starts of each component; for ``online-power``.
    n_iterations : int, default 5
        R, rounds that find a component, or all of them for ``simultaneous``; later rounds refine.
    """

    n_components: int
    n_features: int
    alpha_0: float | None = 1.0
    warmup_documents: int = 10_000
    oversampling: int = 50
    round_growth: float = 5.0
    seed: int = 0
    solver: str = WHITENED_TENSOR
    documents_per_round: int | None = None
    n_restarts: int = 10
    n_iterations: int = 5

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise InvalidSettingError(
                f"the solver must be one of {', '.join(SOLVERS)}, got solver={self.solver!r}"
            )
        if self.documents_per_round is not None:
            _at_least("documents_per_round", self.documents_per_round, 1)
        _at_least("n_restarts", self.n_restarts, 1)
        _at_least("n_iterations", self.n_iterations, 1)
        _at_least("n_components", self.n_components, 1)
        _at_least("n_features", self.n_features, 1)
        _at_least("warmup_documents", self.warmup_documents, 1)
        _at_least("oversampling", self.oversampling, 0)
        if self.alpha_0 is not None and not 0 < self.alpha_0 < float("inf"):
            raise InvalidSettingError(
                f"alpha_0 must be > 0 and finite, got alpha_0={self.alpha_0}; "
                "1.0 suits most text, None estimates it"
            )
        if not 1 < self.round_growth < float("inf"):
            raise InvalidSettingError(
                f"round_growth must be > 1 and finite, got round_growth={self.round_growth}"
            )
        if not 0 <= operator.index(self.seed) < 2**64:
            raise InvalidSettingError(f"a seed must lie in 0..2^64-1, got seed={self.seed}")

    @property
    def n_columns(self) -> int:
        """Columns m of the maps."""
        return min(self.n_features, self.n_components + self.oversampling)

    @property
    def n_triple_columns(self) -> int:
        """Leading columns t of the maps that the triple moment is taken through."""
        return min(self.n_columns, self.n_components + TRIPLE_OVERSAMPLING)

    @property
    def state_bytes(self) -> int:
        """Bytes of the two kept rounds with maps: 2 x 8 (3 d + 2 d m + d t + 2 t^2 + 2 t^3).

        Of an online solver the one round and what it asks: 8 (d (3 + 2 K + L) + 3 K^2 + 3 K L),
        with L = K for ``simultaneous``, else the larger of K and `n_restarts`.
        """
        d, m, t = self.n_features, self.n_columns, self.n_triple_columns
        if self.solver != WHITENED_TENSOR:
            K = self.n_components
            L = K if self.solver == "simultaneous" else max(K, self.n_restarts)
            return 8 * (d * (3 + 2 * K + L) + 3 * K**2 + 3 * K * L)
        return 2 * 8 * (3 * d + 2 * d * m + d * t + 2 * t**2 + 2 * t**3)


class Engine:
    """Learns topics from batches of documents; see the module's description.

    Parameters
    ----------
    settings : EngineSettings

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
    Memory: `EngineSettings.state_bytes`, and the warm-up documents while the first round lasts.
    Time: O(nnz m + t^3 / 3) a document; `snapshot` O(d t^2 + t^3 K + K^4).
    """

    def __init__(self, settings: EngineSettings) -> None:
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
        usable = int(batch.usable.sum())
        start = 0
        with one_blas_thread():
            while start < batch.n_documents:
                start += self._add_part(batch, start)
        self.documents_seen += usable
        self.documents_skipped += batch.n_documents - usable
        self.tokens_seen += int(batch.lengths.sum())

    def _add_part(self, batch: DocumentBatch, start: int) -> int:
        """Take documents from `start` up to the next change of phase; return how many."""
        if self._current is None:
            return self._keep(batch, start)
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

    def _begin_rounds(self) -> None:
        if any(part.usable.any() for part in self._warmup):
            self._current = first_round(self._warmup, self.settings)
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

    def _rounds(self) -> list[Moments]:
        """Return the kept rounds that topics can be made of, the larger first."""
        if self.documents_seen < 2:
            raise InsufficientDataError(
                f"topics need at least 2 documents of at least {MIN_TOKENS} tokens, got "
                f"documents_seen={self.documents_seen} "
                f"documents_skipped={self.documents_skipped}; check the text field, the token "
                "pattern and the vocabulary"
            )
        current = self._current or first_round(self._warmup, self.settings)
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
            batch = _joined(self._warmup)
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
        return arrays, {"settings": asdict(self.settings), "counters": counters}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Go on from what `state` returned, bit for bit."""
        engine = cls(EngineSettings(**values["settings"]))
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
        return engine


def _topics_of(rounds: list[Moments], settings: EngineSettings) -> SpectralTopics:
    """Return the topics of the first round, averaged with those of the others where they agree."""
    K, rng = settings.n_components, np.random.default_rng(settings.seed)
    found = recover_topics(Seen.of(rounds[0]), K, settings.alpha_0, rng)
    for other in rounds[1:]:
        if other.documents >= LEAST_AVERAGED_SHARE * rounds[0].documents:
            seen = Seen.of(other)
            near = found.proper()
            found = average_rounds(found, recover_topics(seen, K, found.alpha_0, rng, near))
    return found


def named(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays whose names begin with `prefix`, without it."""
    return {key[len(prefix) :]: arrays[key] for key in arrays if key.startswith(prefix)}


def _joined(parts: list[DocumentBatch]) -> DocumentBatch:
    """Return the documents of several batches as one."""
    lengths = np.concatenate([np.diff(part.row_pointers) for part in parts])
    return DocumentBatch(
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.word_ids for part in parts]),
        np.concatenate([[0], np.cumsum(lengths)]),
        parts[0].n_features,
        integral=False,
    )


def first_map(warmup: list[DocumentBatch], settings: EngineSettings) -> NDArray[np.float64]:
    """Find a map by power steps on the second moment of the warm-up documents."""
    W = random_map(settings.n_features, settings.n_columns, settings.seed)
    for _ in range(WARMUP_POWER_STEPS):
        sketch = Moments(W, triple_columns=0)
        for part in warmup:
            sketch.add(part)
        W = _better_map(sketch, settings)
    return W


def first_round(warmup: list[DocumentBatch], settings: EngineSettings) -> Moments:
    """Find the first map, and sum the warm-up documents through it."""
    moments = Moments(first_map(warmup, settings), settings.n_triple_columns)
    for part in warmup:
        moments.add(part)
    return moments


def _better_map(moments: Moments, settings: EngineSettings) -> NDArray[np.float64]:
    first = moments.first_moment()
    # An unknown alpha_0 is taken as 1 here: the map only has to span the topics roughly.
    alpha_0 = 1.0 if settings.alpha_0 is None else settings.alpha_0
    pairs = centred_pairs(first, moments.pair_moment(), moments.whitening, alpha_0)
    return next_map(pairs, moments.whitening, word_scale(first), settings.n_columns)


def _at_least(name: str, value: int, least: int) -> None:
    if operator.index(value) < least:
        raise InvalidSettingError(f"{name} must be >= {least}, got {name}={value}")
