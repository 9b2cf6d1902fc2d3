"""The engine that goes on by likelihood: spectral topics first, then every document moves them.

::

    start      The first `warmup_documents` documents give spectral topics as in
               `streamlda.engine.engine`. As many of the latest documents are kept.
    choice     If the documents follow the model (`follows_model`), spectral topics are consistent
               and stay: the engine goes on in rounds, as `Engine` does.
    refining   Else a `StepwiseEM` starts from them, goes over the kept documents, and from there
               every minibatch of new ones moves the topics. Sums and maps are let go of; what they
               say of the data stays with every model, as of the start.
    annealed   After 100 steps, of a twentieth of the warm-up each, the topics are annealed. No
               document is kept from here on.

A snapshot before the start refines a copy over the documents at hand, as many passes as they need
(`streamlda.refinement.refine`); one while topics are still annealed ends the annealing in a copy,
over the latest documents. The engine itself stays as it is. So a short stream gets refined topics
too, and a long one the better ones of a slow annealing: on 195,000 abstracts with K = 50,
held-out perplexity after so many documents was

=================================== ====== ====== ====== ======= =======
documents                           20,000 30,000 50,000 100,000 195,000
=================================== ====== ====== ====== ======= =======
annealed over the warm-up alone       1701   1633   1568    1498    1457
annealed over 100,000 documents       1997   1809   1616    1454    1404
the same, ended in a copy             1701   1615   1535    1454    1404
=================================== ====== ====== ====== ======= =======

with 2003 for the spectral topics of the first 20,000. Where documents follow the model it is the
other way round: mean-field inference has an error that no number of documents removes. With five
topics over 50 words it is 0.03 after 100,000 of them, and 0.005 for spectral topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Arrays, Engine, named
from streamlda.engine.recent_documents import PART_DOCUMENTS, RecentDocuments
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.refine import passes_for, refined
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.spectral.moments import Moments
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import one_blas_thread

Array = NDArray[np.float64]

#: Steps of a stream that one warm-up makes, and the fewest and most documents of one.
STEPS_PER_WARMUP = 20
FEWEST_DOCUMENTS, MOST_DOCUMENTS = 30, 1000

#: Topics of a stream; it is annealed over 100 steps. Three sweeps of a document in place of five,
#: and a start that is half as flat, made topics more coherent (NPMI 0.178 in place of 0.172 at the
#: end of the table) in four fifths of the time, for 0.8 % of perplexity.
STEPWISE = StepwiseEMSettings(sweeps=3, start_flatness=0.5, annealing=0.8, annealing_steps=100)

#: Steps that end the annealing in a copy, half of them annealed.
ENDING_STEPS = 80

#: Fewer documents do not make the steps that a refinement needs, however often it sees them.
LEAST_DOCUMENTS = 200

#: Of documents that follow the model, `alpha_fit` is 1 and the topics mix to the word frequencies.
#: Planted ones, from 2000 documents on and with all topics supported, kept within 0.02 and 0.05 of
#: that (five settings of 4 to 50 topics); three corpora of text with 5 to 50 topics were at 0.04 or
#: more for the one and at 0.10 or more for the other.
ALPHA_FIT_TOLERANCE, MIX_TOLERANCE = 0.03, 0.07

#: Where alpha_0 is estimated, `alpha_fit` is 1 whatever documents are. Planted ones with 4 to 20
#: topics kept within 0.013 of the word frequencies then; the three corpora were at 0.044 or more.
ESTIMATED_MIX_TOLERANCE = MIX_TOLERANCE / 2


class RefiningEngine(Engine):
    """Learns topics by sums and then by likelihood; what `Engine` says holds but for the rounds.

    Equal documents give equal topics, to the last bit, however they are cut into batches, with
    whatever number of threads, snapshots and resumptions. Only where 4 million counts end the
    warm-up before its last document, or documents follow the model, the sums that go on differ by
    rounding between one cut and another.

    Parameters
    ----------
    settings : EngineSettings
        With ``refine`` left open or True.

    Raises
    ------
    InvalidSettingError
        If the settings do not ask for a refinement.

    Notes
    -----
    Memory: `EngineSettings.state_bytes` and the kept documents (at most `warmup_documents`, and 4
    million counts of 12 bytes) until the refinement begins; then ``refining_bytes``, the kept
    documents while topics are annealed, and 16 K V + 32 MiB for a step.
    Time: as `Engine` until the refinement begins, then O(nnz K) a document and O(K V) a step. A
    snapshot goes over the kept documents, and takes O(K V) once topics are annealed.
    """

    def __init__(self, settings: EngineSettings) -> None:
        if not settings.refines:
            raise InvalidSettingError(
                "this engine must be asked for a refinement, got "
                f"refine={settings.refine} solver={settings.solver!r}; take new_engine(settings)"
            )
        super().__init__(settings)
        self._kept = RecentDocuments(settings.warmup_documents)
        self._refinement: StepwiseEM | None = None
        self._follows = False
        self._start: dict[str, Any] = {}
        # Sum of word frequencies over documents, once the moments no longer hold it.
        self._frequencies = np.zeros(0)

    @property
    def refining(self) -> bool:
        """Whether the sums have made way for a refinement."""
        return self._refinement is not None

    @property
    def _documents_of_start(self) -> int:
        return max(2, self.settings.warmup_documents)

    @property
    def _step_documents(self) -> int:
        size = self.settings.warmup_documents // STEPS_PER_WARMUP
        return min(max(size, FEWEST_DOCUMENTS), MOST_DOCUMENTS)

    def _add_part(self, batch: DocumentBatch, start: int) -> int:
        if self._refinement is not None:
            return self._refine(batch.rows(start, start + PART_DOCUMENTS))
        if self._follows:
            return super()._add_part(batch, start)
        usable = np.flatnonzero(batch.usable[start:])
        missing = self._documents_of_start - self.documents_seen
        stop = start + int(usable[missing - 1]) + 1 if missing <= len(usable) else len(batch)
        part = batch.rows(start, stop)
        summing = self._current is not None
        taken = super()._add_part(part, 0)
        if summing:
            self._kept.add(part.rows(0, taken))
        return taken

    def _part_counted(self) -> None:
        chosen = self._follows or self._refinement is not None
        if not chosen and self.documents_seen >= self._documents_of_start:
            self._choose()

    def _begin_rounds(self) -> None:
        self._kept.add(self._warmup_batch())
        super()._begin_rounds()

    def _choose(self) -> None:
        """Begin the refinement, unless documents follow the model."""
        rounds = self._rounds()
        model = super().snapshot()
        if follows_model(model):
            self._follows = True
            self._kept.clear()
            return
        earlier = [f"before refinement: {text}" for text in model.diagnostics["warnings"]]
        self._start = {**model.diagnostics, "warnings": earlier}
        self._frequencies = np.sum([part.word_totals[:, 0] for part in rounds], axis=0)
        settings = replace(STEPWISE, batch_documents=self._step_documents)
        self._refinement = StepwiseEM(model.components, model.alpha, model.background, settings)
        self._current = self._finished = None
        self._refinement.add(self._kept.latest())

    def _refine(self, part: DocumentBatch) -> int:
        assert self._refinement is not None
        documents = part.where(part.usable)
        if self._refinement.flatness:
            self._kept.add(documents)
        else:
            self._kept.clear()
        self._refinement.add(documents)
        shares = documents.counts / np.repeat(documents.lengths, np.diff(documents.row_pointers))
        # One after the other, so that it does not matter how the stream was cut.
        np.add.at(self._frequencies, documents.word_ids, shares)
        return part.n_documents

    def _rounds(self) -> list[Moments]:
        if self._refinement is not None:
            raise InvalidSettingError(
                "sums must be there to be read, got an engine that refines, which let go of them: "
                f"documents_seen={self.documents_seen} "
                f"warmup_documents={self.settings.warmup_documents}; take a snapshot, or learn "
                "with refine=False (of a daemon: topics.refine = false)"
            )
        return super()._rounds()

    def snapshot(
        self,
        vocabulary: Vocabulary | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> TopicModel:
        """Return a topic model of what has been learned so far; as `Engine.snapshot`.

        Its diagnostics hold ``refinement``, what was done; all else is about the spectral topics
        that it began with, in the order of the topics.
        """
        if self._refinement is not None:
            with one_blas_thread():
                return self._snapshot_of(self._annealed(), vocabulary, settings)
        model = super().snapshot(vocabulary, settings)
        if self._follows:
            return model
        kept = self._warmup_batch() if self._warmup else self._kept.latest()
        passes = needed_passes(model, int(np.count_nonzero(kept.usable)))
        return refined(model, kept, passes=passes, seed=self.settings.seed % 2**63)

    def _annealed(self) -> StepwiseEM:
        """Return the refinement with its last documents, its annealing ended, in a copy."""
        assert self._refinement is not None
        copy = StepwiseEM.from_state(*self._refinement.state())
        copy.flush()
        flatness = copy.flatness
        if not flatness:
            return copy
        kept = self._kept.latest()
        n, most = kept.n_documents, copy.settings.batch_documents
        size = min(max(n // ENDING_STEPS, min(FEWEST_DOCUMENTS, most)), most)
        passes = -(-ENDING_STEPS * size // n)
        # The line that falls from the flatness of now to 0 in half of the steps.
        half = ENDING_STEPS // 2
        settings = replace(
            copy.settings,
            batch_documents=size,
            annealing=min(1.0, flatness * (copy.steps + half) / half),
            annealing_steps=copy.steps + half,
        )
        arrays, values = copy.state()
        copy = StepwiseEM.from_state(arrays, {**values, "settings": asdict(settings)})
        for _ in range(passes):
            copy.add(kept)
        copy.flush()
        return copy

    def _snapshot_of(
        self,
        found: StepwiseEM,
        vocabulary: Vocabulary | None,
        settings: Mapping[str, Any] | None,
    ) -> TopicModel:
        assert self._refinement is not None
        frequencies = self._frequencies
        done = {
            "documents": self.documents_seen,
            "start_documents": self._start["documents_behind_topics"],
            "steps": found.steps,
            "batch_documents": self._refinement.settings.batch_documents,
            "annealing_left": self._refinement.flatness,
            "start_topics": list(range(self.settings.n_components)),
        }
        return TopicModel(
            components=found.components,
            alpha=found.alpha,
            background=frequencies / frequencies.sum(),
            vocabulary=vocabulary,
            settings={**asdict(self.settings), **(settings or {})},
            diagnostics={
                **self._start,
                "documents_skipped": self.documents_skipped,
                "refinement": done,
            },
            documents_seen=self.documents_seen,
            tokens_seen=self.tokens_seen,
        )

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return all that is needed to go on: arrays, and plain JSON values."""
        arrays, values = super().state()
        values["refinement"] = {"follows": self._follows, "start": self._start, "stepwise": None}
        if self._refinement is not None:
            more, stepwise = self._refinement.state()
            # JSON has no form for infinity, and no setting is None.
            finite = {k: None if v == np.inf else v for k, v in stepwise["settings"].items()}
            values["refinement"]["stepwise"] = {**stepwise, "settings": finite}
            arrays |= {f"refinement.{name}": array for name, array in more.items()}
            arrays["frequencies"] = self._frequencies
        annealed = self._refinement is not None and not self._refinement.flatness
        if self._kept.parts and not annealed:
            kept = self._kept.latest()
            names = ("counts", "word_ids", "row_pointers")
            arrays |= {f"kept.{name}": getattr(kept, name) for name in names}
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Go on from what `state` returned, bit for bit."""
        engine = super().from_state(arrays, values)
        saved = values["refinement"]
        engine._follows, engine._start = bool(saved["follows"]), dict(saved["start"])
        if saved["stepwise"] is not None:
            stepwise = saved["stepwise"]
            asked = {k: np.inf if v is None else v for k, v in stepwise["settings"].items()}
            engine._refinement = StepwiseEM.from_state(
                named(arrays, "refinement."), {**stepwise, "settings": asked}
            )
            engine._frequencies = np.array(arrays["frequencies"])
        kept = named(arrays, "kept.")
        if kept:
            d = engine.settings.n_features
            engine._kept.add(DocumentBatch(**kept, n_features=d, integral=False))
        return engine

    @classmethod
    def of_model(cls, settings: EngineSettings, model: TopicModel) -> Self:
        """Go on from a refined model, as an engine that has read the same documents would.

        The topics weigh as much as those of a stream after as many steps, and are annealed.

        Parameters
        ----------
        settings : EngineSettings
        model : TopicModel
            From `streamlda.refinement.refine.refined`, of at least one document.
        """
        engine = cls(settings)
        engine._start = {k: v for k, v in model.diagnostics.items() if k != "refinement"}
        engine.documents_seen = n = model.documents_seen
        engine.tokens_seen = model.tokens_seen
        engine.documents_skipped = int(model.diagnostics["documents_skipped"])
        engine._frequencies = model.background * n
        done = model.diagnostics["refinement"]
        size = int(done.get("batch_documents", engine._step_documents))
        # Without passes, as many as one would have made.
        steps = max(1, int(done.get("steps", n // size)))
        asked = replace(STEPWISE, batch_documents=size, annealing_steps=0)
        # What a sum of minibatches of this size tends to, see `streamlda.refinement.stepwise_em`.
        weight = (asked.step_offset + steps) ** asked.step_exponent
        tokens = model.tokens_seen / n * asked.batch_documents * weight
        totals = (model.alpha / model.alpha.sum() * tokens)[:, None] * model.components
        arrays = {
            "totals": np.ascontiguousarray(totals.T),
            "alpha": model.alpha,
            "background": model.background,
        }
        counters = {"steps": steps, "documents": n}
        engine._refinement = StepwiseEM.from_state(
            arrays, {"settings": asdict(asked), "counters": counters}
        )
        return engine


def follows_model(model: TopicModel) -> bool:
    """Return whether the documents behind a spectral model look like draws from a topic model.

    Then every topic stands above sampling noise, the eigenvalues give Dirichlet parameters that sum
    to alpha_0, and topics mixed by these parameters are the word frequencies. Of real text the
    last two do not hold. Where alpha_0 is estimated, it is chosen so that the parameters sum to
    it, which says little: half the tolerance is left for the mixture then. Time O(K V).
    """
    found = model.diagnostics
    if found["directions_supported"] < model.n_components or not all(found["topic_supported"]):
        return False
    mixed = model.alpha @ model.components / model.alpha.sum()
    off = float(np.abs(mixed - model.background).sum())
    estimated = model.settings["alpha_0"] is None
    most = ESTIMATED_MIX_TOLERANCE if estimated else MIX_TOLERANCE
    return abs(found["alpha_fit"] - 1) < ALPHA_FIT_TOLERANCE and off < most


def needed_passes(model: TopicModel, documents: int) -> int:
    """Return how many passes over so many documents refine a spectral model of them.

    0 where spectral topics are the better ones: if the documents follow the model, or are too few.
    """
    if documents < LEAST_DOCUMENTS or follows_model(model):
        return 0
    return passes_for(documents)
