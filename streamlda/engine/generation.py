"""One generation of an online solver: a projection, sums, and a power method on the stream.

`streamlda.engine.power` says what generations are for. Here is one of them: it associates documents
with the probes of its power method round by round, keeps M1 and the pairs G over all of them, and
gives topics at any time.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.spectral.associations import DocumentAssociation
from streamlda.spectral.coordinates import (
    change_basis,
    inverse_root,
    is_orthogonal_eigenbasis,
    pairs_within,
    warm_start,
)
from streamlda.spectral.moments import Moments
from streamlda.spectral.online import OnlinePower
from streamlda.spectral.power import Components, DeflatedPower, SimultaneousPower
from streamlda.spectral.topics import SpectralTopics, topics_along
from streamlda.utils.arrays import Arrays, State, named, with_prefix

Array = NDArray[np.float64]

#: Documents of a round until all components are found, where the settings leave it open.
FIRST_ROUNDS = 1000

#: Documents of a round of refining over all before it, where the settings leave it open.
REFINING_GROWTH = 3

#: In a generation that ends, the trial of earlier topics takes at most a quarter of it.
TRIAL_PARTS = 4

#: And a search one of these parts of what is left. One component at a time needs long rounds, all
#: at once many short ones: of 40 streams whose topics changed (K = 4, generations of 10,000
#: documents), 2 and 0 had a topic wrong for a while with 4 and 2 parts for ``online-power``.
SEARCH_PARTS = {"online-power": 2, "simultaneous": 8}


class _Association(DocumentAssociation):
    """Keeps what a round ended with: `OnlinePower` begins the next one at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.values = self.noise = np.zeros(0)
        self.sound = False

    def spread(self) -> Array:
        spread = super().spread()
        images, self.values = self.answer()
        self.sound = images is not None and is_orthogonal_eigenbasis(self._probes, images)
        # One standard error of T(u, u, u), in each of the directions that u may turn to.
        self.noise = spread * np.sqrt(self.dimension / self.documents)
        return spread


class GenerationSnapshot(NamedTuple):
    """Sums and components of a generation, and how far they are to be relied on.

    `noise` is the sampling noise of each eigenvector, times its eigenvalue; `documents` are those
    of the round that the components come from, 0 until all have been found; `sound` is whether the
    last round found all of them where they were (`is_orthogonal_eigenbasis`); `messages` are the
    warnings of the power method, unless the components come from a round of refining.
    """

    moments: Moments
    found: Components
    noise: Array
    documents: int
    sound: bool
    messages: tuple[str, ...]

    def topics(self, settings: EngineSettings) -> SpectralTopics:
        """Return the topics that components stand for, ``mu_i ~ G_c N^-1 v_i``; time O(d K^2)."""
        moments, alpha_0 = self.moments, settings.working_alpha_0
        root = inverse_root(pairs_within(moments, alpha_0))
        return topics_along(
            moments.first_moment(),
            moments.pair_moment(),
            moments.whitening,
            self.found.eigenvalues,
            root @ root @ self.found.eigenvectors,
            self.noise,
            alpha_0,
            moments.documents,
        )

    def state(self) -> State:
        """Return all but the sums: arrays, and plain JSON values."""
        found = self.found
        arrays: Arrays = {
            "kept.eigenvalues": found.eigenvalues.copy(),
            "kept.eigenvectors": found.eigenvectors.copy(),
            "kept.finished": found.finished.astype(np.uint8),
            "kept.noise": self.noise.copy(),
        }
        numbers = {"documents": self.documents, "sound": self.sound}
        return arrays, {**numbers, "messages": list(self.messages)}

    @classmethod
    def from_state(cls, moments: Moments, saved: State) -> Self:
        """Return the snapshot that `state` was called on."""
        arrays, values = saved
        kept = {name: array.copy() for name, array in named(arrays, "kept.").items()}
        finished = kept["finished"].astype(np.bool_)
        found = Components(kept["eigenvalues"], kept["eigenvectors"], finished)
        documents, sound = int(values["documents"]), bool(values["sound"])
        return cls(moments, found, kept["noise"], documents, sound, tuple(values["messages"]))


class Generation:
    """Documents of one projection, and the power method that they answer.

    It begins with the sums of the warm-up documents through V, which it owns from then on, and with
    the topics of the generation `before`, which may spare it the search. Where the stream ends in
    the warm-up (`ending`), this is divided into the rounds it needs.

    Memory O(d (K + L)); time O(nnz (K + L)) a document, O(d K (K + L)) a round.
    """

    def __init__(
        self,
        settings: EngineSettings,
        moments: Moments,
        before: SpectralTopics | None = None,
        *,
        ending: bool = False,
    ) -> None:
        self.settings, self.moments = settings, moments
        self.length = generation_length(settings)
        #: Columns of V; fewer than `n_components` where the warm-up has fewer directions.
        self.dimension = moments.whitening.shape[1]
        #: Whether the power method turns all components at once.
        self.simultaneous = settings.solver == "simultaneous"
        #: Whether it has all documents that it may have.
        self.ended = False
        # Documents that are in the sums already while no round has taken them.
        self._ahead = moments.documents
        # Documents of the last whitening, and of the last round that ended.
        self._whitened_documents, self._round_documents = moments.documents, 0
        self._messages: list[str] = []
        self._sound = False
        method = self._new_method()
        self._on_trial = before is not None and len(before.topics) == self.dimension
        if before is not None and self._on_trial:
            method = self._restore(warm_start(method.state(), before, moments.whitening))
        self._noise = np.full(self.dimension, np.inf)
        n = self._first_round(ending=ending)
        self.power = OnlinePower(method, self._association(), n)

    @property
    def documents_missing(self) -> int:
        """Documents that rounds still need to find all components."""
        if self.power.finished:
            return 0
        rounds = rounds_needed(self.settings, self.dimension) - self.power.rounds
        return rounds * self.power.documents_per_round - self.power.association.documents

    def _new_method(self) -> DeflatedPower | SimultaneousPower:
        settings, k = self.settings, self.dimension
        if self.simultaneous:
            return SimultaneousPower(k, k, n_iterations=settings.n_iterations, seed=settings.seed)
        return DeflatedPower(
            *(k, k),
            n_restarts=settings.n_restarts,
            n_iterations=settings.n_iterations,
            seed=settings.seed,
        )

    def _first_round(self, *, ending: bool) -> int:
        """Return the documents of the first round: of the trial of earlier topics, or a search."""
        kept = self.moments.documents
        if self.settings.documents_per_round is None:
            if self._on_trial and self.length is not None:
                return min(max(FIRST_ROUNDS, kept), self.length // TRIAL_PARTS)
            if ending:
                rounds = rounds_needed(self.settings, self.dimension)
                return max(1, min(FIRST_ROUNDS, kept // rounds))
        return self._round_of_search()

    def _round_of_search(self) -> int:
        if self.length is None or self.settings.documents_per_round is not None:
            return self.settings.documents_per_round or FIRST_ROUNDS
        parts = SEARCH_PARTS[self.settings.solver] * rounds_needed(self.settings, self.dimension)
        return max(1, min(FIRST_ROUNDS, (self.length - self._taken) // parts))

    @property
    def _taken(self) -> int:
        """Documents that rounds have taken."""
        return self.moments.documents - self._ahead

    def _association(self) -> _Association:
        """Return an association through V, corrected by the moments so far."""
        moments, alpha_0 = self.moments, self.settings.working_alpha_0
        pairs = moments.whitening.T @ moments.pair_moment()
        return _Association(moments.whitening, alpha_0, moments.first_moment(), pairs)

    def end_of_round(self, batch: DocumentBatch, start: int) -> int:
        """Return the document after the last one that the running round takes of the batch."""
        return batch.end_of(self.power.remaining, start)

    def add(self, part: DocumentBatch) -> int:
        """Learn from documents, at most the rest of a round; return the rounds that ended."""
        self.moments.add(part)
        return self._take(part)

    def take_warmup(self, batch: DocumentBatch) -> int:
        """Let rounds take the documents that the sums began with; return how many ended."""
        ended = start = 0
        while start < batch.n_documents:
            stop = self.end_of_round(batch, start)
            rows = batch.rows(start, stop)
            self._ahead -= int(rows.usable.sum())
            ended += self._take(rows)
            start = stop
        return ended

    def _take(self, part: DocumentBatch) -> int:
        ends = int(part.usable.sum()) == self.power.remaining
        if ends:
            self._take_last(part)
        else:
            self.power.add(part)
        return int(ends)

    def _take_last(self, part: DocumentBatch) -> None:
        """End a round with these documents, and plan the next one."""
        power = self.power
        refining, association = power.finished, self._corrected()
        probes, before = power.method.probes, int(power.components().finished.sum())
        self._round_documents = power.documents_per_round
        power.association = association
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            power.add(part)
        self._messages += [str(each.message) for each in caught]
        if refining:
            self._messages = []
        found = power.components()
        if refining or self.simultaneous:
            self._noise = self._noise_of(association)
        elif int(found.finished.sum()) > before:
            # The probe that became the component is where its eigenvalue was measured.
            best = int(np.argmax(np.abs(probes.T @ found.eigenvectors[:, before])))
            self._noise[before] = self._noise_of(association)[best]
        self._sound = association.sound
        if self._on_trial and not self._sound:
            # The topics of the generation before are no longer there: a search begins.
            self._noise[:] = np.inf
            n = self._round_of_search()
            self.power = OnlinePower(self._new_method(), self._association(), n)
        self._on_trial = False
        if self.moments.documents >= 2 * self._whitened_documents:
            self._rewhiten()
        self._plan()

    def _plan(self) -> None:
        """Choose the documents of the next round; the generation ends where they do not fit."""
        taken, total, power = self._taken, self.moments.documents, self.power
        longer = power.finished and self.settings.documents_per_round is None
        if self.simultaneous and self.length is not None and not self._sound:
            # Not there yet: the short rounds go on, for a third of the generation.
            longer = longer and 3 * total >= self.length
        if longer:
            n = REFINING_GROWTH * total
            if self.length is not None:
                # The last round has a third of the generation or more, mostly half.
                half = self.length // 2 - taken
                n = min(n, half) if 3 * total < self.length else self.length - taken
            power.documents_per_round = n
        if self.length is not None:
            self.ended = taken + max(1, power.documents_per_round) > self.length

    def _corrected(self) -> _Association:
        """Return the running round with Dirichlet corrections from all documents so far."""
        association = self._association()
        only = self.power.method.wants_values_only
        association.begin(self.power.method.probes, values_only=only)
        association.restore(self.power.association.state())
        return association

    def _noise_of(self, association: _Association) -> Array:
        """Return the noise of a round in the order that its vectors have now."""
        # The simultaneous method sorts its vectors by the values they had.
        order = np.argsort(-association.values, kind="stable")
        return association.noise[order] if self.simultaneous else association.noise

    def _rewhiten(self) -> None:
        """Replace V by V N^(-1/2), and all that is in its coordinates."""
        moments = self.moments
        self._whitened_documents = moments.documents
        basis = inverse_root(pairs_within(moments, self.settings.working_alpha_0))
        moments.whitening = np.ascontiguousarray(moments.whitening @ basis)
        moments.pair_cross = np.ascontiguousarray(moments.pair_cross @ basis)
        state = self.power.state()
        state |= with_prefix(change_basis(named(state, "method."), basis), "method.")
        self.power = OnlinePower.from_state(state, self._restore, self._association())

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> DeflatedPower | SimultaneousPower:
        return (SimultaneousPower if self.simultaneous else DeflatedPower).from_state(state)

    def snapshot(self) -> GenerationSnapshot:
        """Return the components, by the running round when it is longer than the one before."""
        power, n = self.power, self._round_documents
        if self._on_trial or not power.finished:
            n = 0
        elif power.association.documents >= n:
            method, association = self._restore(power.method.state()), self._corrected()
            images, values = association.answer()
            association.spread()
            method.advance(images, values)
            sound, n = association.sound, association.documents
            noise = self._noise_of(association)
            if self.simultaneous and not sound:
                noise = np.full_like(noise, np.inf)
            return GenerationSnapshot(self.moments, method.components(), noise, n, sound, ())
        found = power.components()
        # Turned all at once, they are components only where none turns any more.
        there = found.finished & (self._sound or not self.simultaneous)
        noise = np.where(there, self._noise[: found.finished.size], np.inf)
        messages = tuple(self._messages)
        return GenerationSnapshot(self.moments, found, noise, n, self._sound, messages)

    def state(self) -> State:
        """Return all but the moments that is needed to go on: arrays, and plain JSON values."""
        arrays = with_prefix(self.power.state(), "power.")
        arrays["refining.noise"] = self._noise.copy()
        return arrays, {
            "messages": list(self._messages),
            "behind_components": self._round_documents,
            "behind_map": self._whitened_documents,
            "on_trial": self._on_trial,
            "sound": self._sound,
        }

    @classmethod
    def from_state(cls, settings: EngineSettings, moments: Moments, saved: State) -> Self:
        """Go on from what `state` returned, bit for bit."""
        arrays, values = saved
        generation = cls(settings, moments)
        # A warm-up is taken at once.
        generation._ahead = 0
        generation._messages = list(values["messages"])
        generation._round_documents = int(values["behind_components"])
        generation._whitened_documents = int(values["behind_map"])
        generation._on_trial = bool(values["on_trial"])
        generation._sound = bool(values["sound"])
        generation._noise = arrays["refining.noise"].copy()
        power, association = named(arrays, "power."), generation._association()
        generation.power = OnlinePower.from_state(power, generation._restore, association)
        return generation


def generation_length(settings: EngineSettings) -> int | None:
    """Return the most documents of a generation; None for one that never ends."""
    return None if settings.memory_documents is None else settings.memory_documents // 2


def rounds_needed(settings: EngineSettings, n_components: int) -> int:
    """Return the rounds that find all components."""
    R = settings.n_iterations
    return R if settings.solver == "simultaneous" else n_components * (R + 1)
