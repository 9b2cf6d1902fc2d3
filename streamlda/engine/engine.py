"""The engine: documents in, topics out at any time, in memory that does not grow.

An engine is in one *phase* at a time (`streamlda.engine.phase`)::

    warm-up     The first documents are kept and give the first topics.
    refining    Topics continue from there by likelihood (`streamlda.engine.refining`), and begin
                again where the stream turns (`streamlda.engine.following`).
    rounds      Where the settings do not refine, or refined topics predict held-out documents no
                better: sums through a projection W, which a full round replaces by a better one
                (`streamlda.engine.rounds`, `streamlda.engine.power`).

With a *shared projection* all documents add to one set of sums through that W; with a *shared
start* topics are refined from there. Engines of one such beginning can be merged
(`streamlda.engine.members`). The engine does no input or output and never looks at a clock.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.fit import fit
from streamlda.engine.following import Follower, Newest
from streamlda.engine.measures import Measures, of_one_interval
from streamlda.engine.members import Beginning, begin_member, get_beginning, merge, new_beginning
from streamlda.engine.new_words import divide_words
from streamlda.engine.phase import Counters, Phase, learn_rows
from streamlda.engine.power import OnlineRounds
from streamlda.engine.refining import LEAST_DOCUMENTS, Refinement
from streamlda.engine.rounds import Rounds, SharedSums
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import WarmUp
from streamlda.learner import Learner, LearnerProgress, Users
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.refine import refine_model
from streamlda.refinement.schedule import Passes
from streamlda.refinement.shared_start import SharedStart
from streamlda.text.columns import ColumnChange
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import State, Tree, join_state, split_state
from streamlda.utils.process import return_freed_memory
from streamlda.utils.progress import progress
from streamlda.utils.threads import one_blas_thread


class Engine(Learner):
    """Learns topics from batches of documents; equal documents give equal topics.

    Parameters
    ----------
    settings : EngineSettings
    shared_projection : ndarray of shape (d, m), optional
        W for all documents, never replaced; for the solver ``"whitened-tensor"``. Not copied.
    shared_start : SharedStart, optional
        In its place, topics that the engine refines from its first document on.

    Notes
    -----
    Memory: `EngineSettings.state_bytes` (half of it with a shared projection), and the warm-up
    documents while they are kept: at most 4 million counts of 12 bytes. An engine that refines
    keeps as many recent documents, with 8 (d K + 2 d + K) bytes in place of the sums.
    Time: O(nnz m + t^3 / 3) a document; `snapshot` O(d t^2 + t^3 K + K^4). Refining O(nnz K) a
    document and O(K V) a step.
    """

    #: Whether the source has ended after the documents that it has.
    _ended = False
    #: What shows that the stream turns, if that is followed.
    following: Follower | None

    def __init__(
        self,
        settings: EngineSettings,
        *,
        shared_projection: NDArray[np.float64] | None = None,
        shared_start: SharedStart | None = None,
    ) -> None:
        beginning = shared_projection if shared_start is None else shared_start
        if beginning is None:
            self._begin(WarmUp(settings, Counters(), settings.refines))
        else:
            self._begin(begin_member(settings, Counters(), beginning))
        if shared_start is not None:
            self.following = Follower.of_member(settings, shared_start)

    def _begin(self, phase: Phase, measures: Measures | None = None) -> Self:
        self._phase, self.settings, self.counters = phase, phase.settings, phase.counters
        self.measures = Measures() if measures is None else measures
        self.following = None
        return self

    @classmethod
    def of_phase(cls, phase: Phase, measures: Measures | None = None) -> Self:
        """Return an engine that continues with a phase, such as sums that were taken elsewhere."""
        return cls.__new__(cls)._begin(phase, measures)

    @classmethod
    def of_model(
        cls, settings: EngineSettings, model: TopicModel, measures: Measures | None = None
    ) -> Self:
        """Return an engine that refines a model further; its documents may be measured already."""
        counters = Counters(
            documents_seen=model.documents_seen,
            documents_skipped=int(model.diagnostics["documents_skipped"]),
            tokens_seen=model.tokens_seen,
        )
        made = cls.of_phase(Refinement.of_model(settings, counters, model), measures)
        made.measures.restart()
        return made

    @classmethod
    def fit(
        cls, settings: EngineSettings, documents: DocumentBatch, passes: Passes = None
    ) -> tuple[Self, TopicModel]:
        """Return an engine that continues from documents in memory, and their topics.

        If the settings refine, topics are those of `streamlda.engine.fit`. If not, the model alone
        is refined, by the passes that are given; the engine continues from spectral ones.
        """
        if not settings.refines:
            engine = cls(settings)
            engine.add(documents)
            model = engine.snapshot()
            engine.measures.restart()
            given = 0 if isinstance(passes, str) or passes is None else passes
            model = refine_model(model, documents, passes=given)
            return engine, of_one_interval(model)

        @cache
        def measures() -> Measures:
            # Only when topics are ready to be measured: samples take memory.
            return_freed_memory()
            return Measures.of(documents, short=settings.refines)

        early = documents.n_documents < settings.warmup_documents
        # As a warm-up that is read.
        samples = None if early else lambda: measures().samples
        phase, model = fit(settings, documents, passes, samples)
        if "refinement" not in model.diagnostics:
            model = measures().complete(model)
            if early:
                # More documents may still make a refinement worth while.
                with one_blas_thread():
                    phase = learn_rows(WarmUp(settings, Counters(), settings.refines), documents)
        engine = cls.of_phase(phase, measures())
        if not isinstance(phase, WarmUp):
            engine.following = Follower.begin(settings, documents, turned=False)
        engine.measures.restart()
        return engine, of_one_interval(model)

    @property
    def learns_short(self) -> bool:
        """True if a refinement learns from documents of one and two tokens; moments take none."""
        return self.settings.refines

    @property
    def documents_seen(self) -> int:
        """Documents with at least 3 tokens, which the topics begin from."""
        return self.counters.documents_seen

    @property
    def beginning(self) -> Beginning | None:
        """Projection or start that the engine began with, if others can begin with it."""
        return get_beginning(self._phase)

    @property
    def progress(self) -> LearnerProgress:
        """Progress of the engine; a start or a projection that was given is a finished round."""
        begun = isinstance(self._phase, Refinement | SharedSums)
        return LearnerProgress(
            self.counters.rounds_finished + begun,
            self.warmup,
            self.measures.bins.late,
            isinstance(self._phase, WarmUp) and self._phase.has_rest and not self._ended,
        )

    @property
    def warmup(self) -> tuple[int, int] | None:
        """Documents kept for the first topics, and how many it takes; None after the warm-up."""
        if not isinstance(self._phase, WarmUp) or self._phase.has_rest:
            return None
        return self._phase.n_documents, self.settings.warmup_documents

    @property
    def refining(self) -> bool:
        """True if topics move by likelihood, and the sums are gone."""
        return isinstance(self._phase, Refinement)

    def add(self, batch: DocumentBatch, users: Users | None = None, /) -> int:
        """Learn from a batch; return its rows. `users` is ignored without privacy.

        Raises
        ------
        InvalidDocumentsError
            If it has another vocabulary size; nothing is learned then.
        """
        batch.check_features(self.settings.n_features, "engine")
        start, self._ended = 0, False
        with one_blas_thread(), progress("documents", batch.n_documents) as advance:
            while start < batch.n_documents:
                stop = batch.n_documents
                if self.following is not None:
                    stop = self.following.end(batch, start)
                elif isinstance(self._phase, WarmUp):
                    stop = self._phase.end(batch, start)
                part = batch.rows(start, stop)
                self.measures.add(part, short=self.settings.refines)
                self._learn(part)
                advance(stop - start)
                start = stop
        return batch.n_documents

    def _learn(self, part: DocumentBatch) -> None:
        """Learn documents that are of one warm-up or one block."""
        following, before = self.following, self._phase
        self._phase = learn_rows(before, part)
        if following is not None:
            switches = following.switches
            self._phase = following.after(self._phase, part)
            if following.switches > switches:
                self.measures.begin_again(following.recent.latest())
        elif isinstance(before, WarmUp) and before is not self._phase and before.refines:
            newer = before.newer
            begun = Follower.begin(self.settings, before.batch, turned=newer is not None)
            self.following, start = begun, 0
            while newer is not None and start < len(newer):
                stop = begun.end(newer, start)
                self._learn(newer.rows(start, stop))
                start = stop

    def change_words(self, change: ColumnChange, documents: DocumentBatch | None = None) -> bool:
        """Continue with other words in some columns; topics keep their rows and prevalence. O(V K).

        `documents` over the columns from now on, if any, divide the words that enter among topics
        (`streamlda.engine.new_words`); that takes the time of a start.

        False, and nothing changed, before topics are refined or known to stay spectral, and where
        they are not to be refined or share a start. Topics that stayed spectral are refined from
        here on: sums through a projection cannot take a word that it does not know.
        """
        with one_blas_thread():
            phase = self._phase
            if isinstance(phase, Rounds) and self.settings.refines:
                phase = Refinement.of_model(self.settings, self.counters, phase.snapshot())
            # The columns of a shared start are those of others.
            if not isinstance(phase, Refinement) or phase.shared is not None:
                return False
            if documents is not None:
                documents = documents.where(documents.usable)
                if documents.n_documents >= LEAST_DOCUMENTS:
                    asked = replace(self.settings, n_features=change.after)
                    found = fit(asked, documents)[1]
                    parts = divide_words(found, change, phase.components, documents)
                    change = replace(change, parts=parts)
            phase.change_words(change)
            if self.following is not None:
                self.following.change_words(change, begins=phase is not self._phase)
        self._phase, self.settings = phase, phase.settings
        self.measures.change_words(change)
        return True

    def new_beginning(self) -> Beginning:
        """Return a beginning for other engines: a start if topics are refined, or a projection."""
        with one_blas_thread():
            return new_beginning(self._phase)

    def merge(self, other: Self) -> None:
        """Add all that another engine has learned, as if its documents had come here.

        Through a shared projection, sums differ from those of one engine by rounding alone; merging
        A into B gives the sums of B into A, bit for bit. From a shared start, every document counts
        as in one engine, with topics as they were there (`streamlda.refinement.shared_start`).

        Parameters
        ----------
        other : Engine
            With equal settings (but for `refine` and `warmup_documents`) and an equal beginning,
            of documents that are not in here already, which nothing can tell from sums.
        """
        with one_blas_thread():
            before, phase = self._phase, merge(self._phase, other._phase)
        if self.following is not None and other.following is not None:
            assert isinstance(before, Refinement)
            assert isinstance(phase, Refinement)
            self.following.merge(other.following, phase)
            if phase.shared is not None and phase.shared is not before.shared:
                self.following.continue_from(phase.shared)
        self._phase = phase
        self.measures.merge(other.measures)
        self.counters.documents_seen += other.documents_seen
        self.counters.documents_skipped += other.counters.documents_skipped
        self.counters.tokens_seen += other.counters.tokens_seen

    def turn(self, members: Sequence[Newest], since: int) -> SharedStart | None:
        """Return a start from the newest documents of all members, if it predicts them better.

        They are those `since` a turn; 0 asks them for a new topic alone. The engine begins again
        from it.
        """
        phase, following = self._phase, self.following
        assert isinstance(phase, Refinement)
        assert following is not None
        with one_blas_thread():
            start = following.find_start(phase, members, since)
        if start is not None:
            self.begin_again(start)
            self.measures.begin_again(DocumentBatch.joined([each.documents for each in members]))
        return start

    def begin_again(self, start: SharedStart) -> bool:
        """Continue from a later start of all members; return False where it is not later.

        Documents learned so far stay counted. Those that the start was not made of, and that have
        left their minibatch, are in no topic.
        """
        phase, following = self._phase, self.following
        if following is None or not isinstance(phase, Refinement) or phase.shared is None:
            return False
        if not start.follows(phase.shared):
            return False
        self._phase = Refinement.of_start(self.settings, self.counters, start, following.block)
        following.continue_from(start)
        if following.recent.parts:
            self.measures.begin_again(following.recent.latest())
        return True

    def snapshot(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel:
        """Return a topic model of what has been learned so far; the engine is not changed.

        Diagnostics of a refined one hold ``refinement``; all else is about the spectral topics that
        it began with, in the order of the topics. `settings` are recorded beside the engine's own.
        Raises `InsufficientDataError` before there are topics.
        """
        phase, read = self._phase, self._phase.snapshot
        if isinstance(phase, WarmUp) and self._ended:
            read = partial(phase.whole, lambda: self.measures.samples)
        model = self._publish(read)
        recorded = {**model.settings, **(settings or {})}
        return replace(model, vocabulary=vocabulary, settings=recorded)

    def latest(self) -> TopicModel:
        """Return the topics of now, to be read often: `snapshot`, but for a warm-up.

        There `snapshot` goes over all documents. This does so where they have doubled since, and
        goes once over new ones in between: topics depend a little on when they were read.
        """
        phase = self._phase
        if isinstance(phase, WarmUp) and not self._ended:
            return self._publish(phase.latest)
        return self.snapshot()

    def _publish(self, read: Callable[[], TopicModel]) -> TopicModel:
        """Return the model that a phase gives, measured in the documents."""
        with one_blas_thread():
            model = self.measures.complete(read())
        if self.following is None or "refinement" not in model.diagnostics:
            return model
        known = {**model.diagnostics, **self.following.diagnostics}
        return replace(model, diagnostics=known)

    def end(self) -> None:
        """Note that the source has ended: `snapshot` fits all documents, if they are kept."""
        self._ended = True

    def release(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel:
        """Return the topics of now, as `snapshot`; the next interval begins."""
        model = self.snapshot(vocabulary, settings)
        self.measures.restart()
        return model

    def state(self) -> State:
        """Return all that is needed to continue: arrays, and plain JSON values."""
        own: Tree = {"settings": asdict(self.settings), "counters": asdict(self.counters)}
        own |= {"ended": self._ended, "measures": self.measures.state(), **self._phase.state()}
        if self.following is not None:
            own["following"] = self.following.state()
        return split_state(own)

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Resume from what `state` returned, bit for bit."""
        saved = join_state(arrays, values)
        settings, counters = EngineSettings(**saved["settings"]), Counters(**saved["counters"])
        phase = _restore_phase(settings, counters, saved)
        made = cls.of_phase(phase, Measures.from_state(saved["measures"], settings.n_features))
        made._ended, made.following = saved["ended"], None
        if "following" in saved:
            start = phase.shared if isinstance(phase, Refinement) else None
            made.following = Follower.from_state(settings, saved["following"], start)
        return made


def _restore_phase(settings: EngineSettings, counters: Counters, state: Tree) -> Phase:
    """Return the phase of a saved state."""
    if "online" in state:
        return OnlineRounds.from_state(settings, counters, state)
    if "shared_map" in state:
        return SharedSums.from_state(settings, counters, state)
    if "refinement" in state:
        return Refinement.from_state(settings, counters, state)
    if "current" in state:
        return Rounds.from_state(settings, counters, state)
    warmup = WarmUp(settings, counters, refines=state["warmup"]["refines"])
    warmup.restore(state["warmup"])
    return warmup
