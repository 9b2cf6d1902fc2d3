"""Follow a stream that turns: a challenger takes the place of topics that predict no longer.

The E-step of each block of documents says how well the topics predict them before they learn them
(the champion). Where the last 1, 2, 4, ... blocks are predicted worse than those before by `ERRORS`
standard errors, challengers are fitted to these blocks and, if that does not help, to all documents
kept. One takes over if it predicts a fifth of them, which it has not learned, better by as much.
After a turn challengers follow whenever its documents have doubled, until they are as many as are
kept. Documents that challengers learn are paid for, one for one, by those that the stream learned.

A theme of one document in a hundred hardly lowers the mean score. So where the last blocks have
too many documents with very low scores, these propose a topic (`streamlda.engine.birth`). Topics
that a challenger shares with the champion keep their rows and ids. Others get new ids, or the old
one where they are a topic that has retired (`streamlda.model.matching`).

A member of a shared start makes no challenger alone: it counts its documents since a turn. Whoever
merges the members makes one of the newest documents of all, and all begin again from it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.birth import born, low_score, worst_blocks
from streamlda.engine.fit import fit
from streamlda.engine.phase import Phase
from streamlda.engine.recent_documents import RecentDocuments
from streamlda.engine.refining import LEAST_DOCUMENTS, Refinement
from streamlda.engine.settings import EngineSettings
from streamlda.engine.turns import (
    ERRORS,
    JUDGING,
    Gain,
    Level,
    Scores,
    count_words,
    judge_by,
    score_by_words,
)
from streamlda.engine.warmup import WARMUP_MAX_ENTRIES
from streamlda.engine.watch import WarmUpWatch
from streamlda.errors import InsufficientDataError
from streamlda.model import MAX_DISTANCE
from streamlda.model.diagnostics import hellinger
from streamlda.model.hierarchy import permute_topics
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.schedule import STEPS_PER_WARMUP, stream_settings
from streamlda.refinement.shared_start import SharedStart
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import State, named, with_prefix

Array = NDArray[np.float64]

#: A member keeps this part of the documents that an engine alone keeps: there are several.
MEMBER_PART = 4


@dataclass(eq=False)
class Following:
    """State that shows a turn, and documents that challengers are made of; a pure state machine.

    Memory: the documents kept, 12 bytes a count, and 4 V K of topics that retired.
    """

    settings: EngineSettings
    #: Documents before the block that is being read, and those in it.
    recent: RecentDocuments
    block: list[DocumentBatch] = field(default_factory=list)
    #: Of all blocks since the champion began, before it learned them.
    scores: Scores = field(init=False)
    #: Documents since a turn, and of how many the next challenger is; None without a turn.
    since: tuple[int, int] | None = None
    #: Blocks that the next proposal of a topic is of, at least.
    proposing: int = 1
    #: Documents that challengers may still learn.
    credit: int = 0
    #: Id of the topic in each row, and ids given so far.
    ids: list[int] = field(default_factory=list)
    named: int = 0
    #: Topics that retired, K at most, with their ids and the documents seen by then, the oldest
    #: first; and their words, (n, V).
    retired: list[tuple[int, int]] = field(default_factory=list)
    retired_topics: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros((0, 0), dtype=np.float32)
    )
    #: Switches so far, and the last one.
    switches: int = 0
    last: dict[str, Any] | None = None
    #: Where the phase does not say how well it predicts: the topics that do.
    judge: StepwiseEM | None = None
    #: Whether it shares its start with others.
    member: bool = False

    def __post_init__(self) -> None:
        self.scores = Scores(max(1, self.settings.warmup_documents // self.size))

    @classmethod
    def begun(
        cls,
        settings: EngineSettings,
        documents: DocumentBatch,
        phase: Phase,
        watch: WarmUpWatch | None = None,
    ) -> Self:
        """Begin after the documents of a warm-up, with the phase that continues from them."""
        recent = RecentDocuments(settings.warmup_documents)
        recent.add(documents)
        made = cls(settings, recent, credit=settings.warmup_documents)
        if watch is not None:
            made.since, made.credit = watch.since, min(watch.credit, made.credit)
            made.switches, made.last = watch.switches, watch.last
        made.ids = [made._new_id() for _ in range(settings.n_components)]
        made.retired_topics = np.zeros((0, settings.n_features), dtype=np.float32)
        if not isinstance(phase, Refinement):
            made.judge = judge_by(phase.snapshot(), settings)
        return made

    @classmethod
    def of_member(cls, settings: EngineSettings, start: SharedStart) -> Self:
        """Begin with a start that others begin from as well, and its minibatches."""
        size = start.stepwise.settings.batch_documents
        settings = replace(settings, warmup_documents=size * STEPS_PER_WARMUP)
        most = settings.warmup_documents // MEMBER_PART, WARMUP_MAX_ENTRIES // MEMBER_PART
        made = cls(settings, RecentDocuments(*most), member=True)
        made.continue_from(start)
        return made

    def continue_from(self, start: SharedStart) -> None:
        """Take the topics of a start, with their ids."""
        (arrays, own), K, V = start.lineage, self.settings.n_components, self.settings.n_features
        self.ids, self.named = [*own.get("ids", range(K))], own.get("named", K)
        self.retired = [(each, seen) for each, seen in own.get("retired", [])]
        self.retired_topics = arrays.get("retired", np.zeros((0, V), dtype=np.float32)).copy()
        self.switches, self.last = own.get("switches", 0), own.get("last")
        self.scores.begin_again(np.empty(0))

    @property
    def since_turn(self) -> int:
        """Documents since a turn; 0 without one, and where they are more than a warm-up has."""
        return 0 if self.since is None else self.since[0]

    @property
    def lineage(self) -> State:
        """Ids of the topics, and topics that retired."""
        names = "ids", "named", "retired", "switches", "last"
        return {"retired": self.retired_topics}, {name: getattr(self, name) for name in names}

    def merge(self, other: Following, phase: Refinement) -> None:
        """Keep the newest documents of another member, if need be in place of own ones.

        Continue with the phase of both.
        """
        if not (self.recent.parts or self.block):
            self.scores, self.since, self.credit = deepcopy(other.scores), other.since, other.credit
        elif other.recent.parts or other.block:
            for part in (*self.block, *other.block):
                self.recent.add(part)
        for part in other.recent.parts:
            self.recent.add(part)
        self.block = phase.stepwise.waiting_parts

    def turned(self, phase: Refinement, newest: DocumentBatch) -> SharedStart | None:
        """Return the start that all members begin again from, if their newest documents give one.

        It must predict a fifth of these documents better, which the members have learned.
        """
        scores = judge_by(phase.snapshot(), self.settings).scored(newest)
        made, before = self._compared(phase, newest, scores), phase.shared
        if made is None or before is None:
            return None
        assert isinstance(made, Refinement)
        stepwise = made.stepwise.copy()
        # Those of the members alone are counted.
        stepwise.documents = 0
        return SharedStart(stepwise, made.start, before.turn + 1, before.origin, self.lineage)

    @property
    def size(self) -> int:
        """Documents of a block: those of a step."""
        return stream_settings(self.settings.warmup_documents).batch_documents

    def end(self, batch: DocumentBatch, start: int) -> int:
        """Return where the block ends that some documents of the batch belong to."""
        missing = self.size - sum(part.n_documents for part in self.block)
        return batch.find_end(missing, start, batch.known)

    def after(self, phase: Phase, part: DocumentBatch) -> Phase:
        """Return the phase that continues after documents that it has learned, up to `end`."""
        self.block.append(part.where(part.known).copy())
        if sum(each.n_documents for each in self.block) < self.size:
            return phase
        block = DocumentBatch.joined(self.block)
        self.block = []
        scores = self._scores(phase, block)
        self.recent.add(block)
        self.credit = min(self.credit + len(block), 4 * self.settings.warmup_documents)
        # Short documents are learned, but predict too little to tell a turn.
        return phase if scores is None else self._judged(phase, scores[block.usable])

    def _turned_at_once(self) -> int:
        """Return 1 where the words of the first block show a turn, whose scores are the first."""
        if self.scores.before.documents or len(self.scores.last) > 1:
            return 0
        kept = self.recent.latest()
        end = len(kept) - len(self.scores.last[0])
        words = count_words(kept.rows(0, end // 2))
        before = Level.of(score_by_words(words, kept.rows(end // 2, end)))
        return int(Level.of(score_by_words(words, kept.rows(end, len(kept)))).is_below(before))

    def _scores(self, phase: Phase, block: DocumentBatch) -> Array | None:
        """Return how well documents were predicted before they were learned, if that is known."""
        if isinstance(phase, Refinement):
            return phase.stepwise.scores
        judge = self.judge
        if judge is None:
            self.judge = judge_by(phase.snapshot(), self.settings)
        return None if judge is None else judge.scored(block)

    def _judged(self, phase: Phase, scores: Array) -> Phase:
        """Make challengers if it is time."""
        if self.member:
            self._count_since_turn(scores)
            return phase
        fallen = self.scores.add(scores) or self._turned_at_once()
        if self.since is not None:
            self.since = self.since[0] + len(scores), self.since[1]
        if fallen:
            self.since = fallen * self.size, fallen * self.size
        if self.since is None:
            return self._proposed(phase)
        if self.since[0] < self.since[1]:
            return phase
        most = self.settings.warmup_documents
        documents = min(self.since[0], most)
        switched = None
        for n in dict.fromkeys((documents, most)) if fallen else (documents,):
            if switched is None and self.credit >= n:
                switched = self._challenged(phase, n)
        self.since = None if documents == most else (self.since[0], 2 * documents)
        if switched is None:
            if fallen:
                # What these blocks are like is usual from now on.
                self.scores.begin_again(np.concatenate(self.scores.last[-fallen:]), usual=True)
            return phase
        return switched

    def _count_since_turn(self, scores: Array) -> None:
        if self.since is not None:
            n = self.since[0] + len(scores)
            self.since = (n, n) if n <= self.settings.warmup_documents else None
        if fallen := self.scores.add(scores):
            self.since = fallen * self.size, fallen * self.size
            # The next turn is one that is worse than this one.
            self.scores.begin_again(np.concatenate(self.scores.last[-fallen:]), usual=True)

    def _proposed(self, phase: Phase) -> Phase:
        """Let the documents that are predicted worst propose a topic if they are many."""
        scores = self.scores.last
        blocks = worst_blocks(scores, self.proposing, ERRORS)
        if not blocks:
            self.proposing = 1
            return phase
        last = np.concatenate(scores[-blocks:])
        self.proposing = 2 * blocks
        kept = self.recent.latest()
        kept = kept.rows(max(0, len(kept) - len(last)), len(kept))
        last = last[-len(kept) :]
        judging = np.zeros(len(kept), dtype=np.bool_)
        # Of a rare theme there must be some among those that judge.
        judging[::2] = True
        seeded = len(self.settings.seed_topics) == self.settings.n_components
        low = last < low_score(np.concatenate(scores[:-blocks]))
        if seeded or self.credit < len(kept) or not (low & ~judging).any():
            return phase
        self.credit -= len(kept)
        judges, model = kept.where(judging), phase.snapshot()
        before = judge_by(model, self.settings).scored(judges)
        if "refinement" not in model.diagnostics:
            # Topics were spectral until now.
            done = {"start_topics": [*range(model.n_components)]}
            model = replace(model, diagnostics={**model.diagnostics, "refinement": done})
        plan = replace(stream_settings(self.settings.warmup_documents), seeds=model.seeds)
        best = born(model, kept.where(low & ~judging), kept.where(~judging), plan)
        gain = Gain.of(judge_by(best, self.settings).scored(judges) - before)
        if not gain.is_sure:
            return phase
        made = Refinement.of_model(self.settings, phase.counters, best)
        return self._switched(phase, made, best, judges, gain)

    def _challenged(self, phase: Phase, documents: int) -> Phase | None:
        """Return the phase of a challenger of the last documents if it is better."""
        kept, scores = self.recent.latest(), np.concatenate(self.scores.last)
        kept = kept.rows(max(0, len(kept) - documents), len(kept))
        return self._compared(phase, kept, scores[-len(kept) :])

    def _compared(self, phase: Phase, kept: DocumentBatch, scores: Array) -> Phase | None:
        """Return the phase of a challenger of documents, of which the newest have scores."""
        judging = np.zeros(len(kept), dtype=np.bool_)
        judging[-len(scores) :: JUDGING] = True
        learned = kept.where(~judging)
        if len(learned) < LEAST_DOCUMENTS:
            return None
        self.credit -= len(kept)
        try:
            made, model = fit(self.settings, learned)
        except InsufficientDataError:
            return None
        if self.member and not isinstance(made, Refinement):
            return None
        judges = kept.where(judging)
        gain = Gain.of(judge_by(model, self.settings).scored(judges) - scores[::JUDGING])
        return self._switched(phase, made, model, judges, gain) if gain.is_sure else None

    def _switched(
        self,
        phase: Phase,
        made: Phase,
        model: TopicModel,
        judges: DocumentBatch,
        gain: Gain,
    ) -> Phase:
        """Let a challenger take over."""
        ended = phase.snapshot()
        if isinstance(made, Refinement):
            order = self._order(ended, model, phase.counters.documents_seen)
            model = permute_topics(model, order)
            made = Refinement.of_model(self.settings, made.counters, model)
            self.judge = None
        else:
            self.judge = judge_by(model, self.settings)
            self.ids = [self._new_id() for _ in self.ids]
        self.scores.begin_again(judge_by(model, self.settings).scored(judges))
        made.counters = phase.counters.after(made.counters)
        made.follow(judges)
        self.proposing = 1
        self.switches += 1
        self.last = {
            "documents_seen": phase.counters.documents_seen,
            "learned_from": model.documents_seen,
            **gain.diagnostics,
        }
        return made

    def _order(
        self, champion: TopicModel, challenger: TopicModel, documents_seen: int
    ) -> list[int]:
        """Return the topic of a challenger for each row; ids follow it."""
        K, seeded = self.settings.n_components, len(challenger.seeds)
        apart = hellinger(champion.components, challenger.components)
        apart[:seeded] = apart[:, :seeded] = 2.0
        apart[range(seeded), range(seeded)] = -float(K)
        rows, columns = scipy.optimize.linear_sum_assignment(np.minimum(apart, MAX_DISTANCE))
        stays = apart[rows, columns] <= MAX_DISTANCE
        order = [int(columns[row]) for row in np.argsort(rows)]
        gone = [int(row) for row in rows[~stays]]
        known = self.retired_topics
        for row in gone:
            self.retired.append((self.ids[row], documents_seen))
            known = np.vstack([known, champion.components[row].astype(np.float32)])
        back: dict[int, int] = {}
        older = len(self.retired) - len(gone)
        if older and gone:
            new = challenger.components[[order[row] for row in gone]]
            apart = hellinger(new, known[:older].astype(np.float64))
            pairs = zip(
                *scipy.optimize.linear_sum_assignment(np.minimum(apart, MAX_DISTANCE)), strict=True
            )
            back = {gone[i]: int(j) for i, j in pairs if apart[i, j] <= MAX_DISTANCE}
        for row in gone:
            self.ids[row] = self.retired[back[row]][0] if row in back else self._new_id()
        left = [j for j in range(len(self.retired)) if j not in back.values()][-K:]
        self.retired = [self.retired[j] for j in left]
        self.retired_topics = known[left]
        return order

    def _new_id(self) -> int:
        self.named += 1
        return self.named - 1

    def change_words(self, change: ColumnChange, *, begins: bool) -> None:
        """Forget words that left; a phase that `begins` here has learned nothing of the block."""
        if begins and self.block:
            self.recent.add(DocumentBatch.joined(self.block))
            self.block = []
        self.settings = replace(self.settings, n_features=change.after)
        self.recent.change_words(change)
        self.block = [change.documents(part) for part in self.block]
        words = change.rows(np.ascontiguousarray(self.retired_topics.T, dtype=np.float64))
        self.retired_topics = np.ascontiguousarray(words.T, dtype=np.float32)
        self.judge = None

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What a model says of it."""
        retired = [{"id": each, "documents_seen": seen} for each, seen in self.retired]
        return {
            "topic_ids": [*self.ids],
            "following": {"switches": self.switches, "last": self.last, "retired": retired},
        }

    def state(self) -> State:
        """Return all that is needed to continue."""
        retired, lineage = self.lineage
        arrays = self.recent.state("recent.") | retired
        if self.block:
            arrays |= with_prefix(DocumentBatch.joined(self.block).arrays, "block.")
        scores, before = self.scores.state()
        arrays |= scores
        values: dict[str, Any] = {
            **before,
            **lineage,
            "since": self.since,
            "credit": self.credit,
            "proposing": self.proposing,
            "judge": None,
        }
        if self.judge is not None:
            own, values["judge"] = self.judge.state()
            arrays |= with_prefix(own, "judge.")
        return with_prefix(arrays, "following."), {"following": values}

    @classmethod
    def from_state(
        cls, settings: EngineSettings, saved: State, start: SharedStart | None = None
    ) -> Self | None:
        """Resume from what `state` returned; None where nothing is followed."""
        arrays, values = saved
        if (own := values.get("following")) is None:
            return None
        arrays, d = named(arrays, "following."), settings.n_features
        if start is None:
            made = cls(settings, RecentDocuments(settings.warmup_documents))
        else:
            made = cls.of_member(settings, start)
        made.recent.restore(arrays, d, "recent.")
        if block := named(arrays, "block."):
            made.block = [DocumentBatch(**block, n_features=d, integral=False)]
        made.scores.restore(arrays, own)
        made.since = None if own["since"] is None else (own["since"][0], own["since"][1])
        made.credit, made.ids, made.named = own["credit"], [*own["ids"]], own["named"]
        made.switches, made.proposing = own["switches"], own["proposing"]
        made.retired = [(each, seen) for each, seen in own["retired"]]
        made.retired_topics, made.last = arrays["retired"].copy(), own["last"]
        if own["judge"] is not None:
            made.judge = StepwiseEM.from_state(named(arrays, "judge."), own["judge"])
        return made
