"""Follow a stream that turns: a challenger takes the place of topics that predict no longer.

The E-step of each block of documents says how well the topics predict them before they learn them
(the champion). Where the last 1, 2, 4, ... blocks are predicted worse than those before by `ERRORS`
standard errors, a challenger is fitted to these blocks. It takes over if it predicts a fifth of
them, which it has not learned, better by as much. After a turn challengers follow whenever its
documents have doubled, until they are as many as are kept. There is none while those in vain have
learned more than one document for every `VAIN` of the stream.

A theme of one document in a hundred hardly lowers the mean score. So where the last blocks have
many documents with very low scores, they propose a topic (`streamlda.engine.new_topic`). Topics
that a challenger shares with the champion keep their rows and ids (`streamlda.engine.lineage`).

A member of a shared start makes no challenger alone: it counts its documents since a turn. Whoever
merges the members makes one of the newest documents of all, or lets these propose a topic where
there is no turn; all begin again from it.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine import turns
from streamlda.engine.fit import fit
from streamlda.engine.lineage import Lineage
from streamlda.engine.new_topic import Birth, low_score, make_birth, worst_blocks
from streamlda.engine.phase import Counters, Phase
from streamlda.engine.projections import WARMUP_MAX_ENTRIES
from streamlda.engine.recent_documents import RecentDocuments
from streamlda.engine.refining import LEAST_DOCUMENTS, Refinement
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError
from streamlda.model.hierarchy import permute_topics
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.schedule import STEPS_PER_WARMUP, stream_settings
from streamlda.refinement.shared_start import SharedStart
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Array, Tree

#: A member keeps this part of the documents that an engine alone keeps: there are several.
MEMBER_PART = 4

#: Documents of the stream for one that a challenger learns in vain.
VAIN = 4


class Newest(NamedTuple):
    """Scores of the last blocks of a member, and the newest documents that it keeps."""

    scores: list[Array]
    documents: DocumentBatch

    def latest(self, blocks: int) -> tuple[Array, DocumentBatch]:
        """Return the scores of these last blocks, and their documents, as far as they are kept."""
        scores = np.concatenate(self.scores[-blocks:])
        kept = self.documents.rows(max(0, len(self.documents) - len(scores)), len(self.documents))
        return scores[-len(kept) :], kept


@dataclass(eq=False)
class Follower:
    """State that shows a turn, and documents that challengers are made of; a pure state machine.

    Memory: the documents kept, 12 bytes a count, and 4 V K of topics that retired.
    """

    settings: EngineSettings
    #: Documents before the block that is being read, and those in it.
    recent: RecentDocuments
    lineage: Lineage
    block: list[DocumentBatch] = field(default_factory=list)
    #: Of all blocks since the champion began, before it learned them.
    scores: turns.Scores = field(init=False)
    #: Documents since a turn, and of how many the next challenger is; None without a turn.
    since: tuple[int, int] | None = None
    #: Blocks that the next proposal of a topic is of, at least.
    proposing: int = 1
    #: Documents that challengers may still learn in vain.
    credit: float = 0.0
    #: Switches so far, and the last one.
    switches: int = 0
    last: dict[str, Any] | None = None
    #: Whether it shares its start with others.
    member: bool = False

    def __post_init__(self) -> None:
        self.scores = turns.Scores(max(1, self.settings.warmup_documents // self.size))

    @classmethod
    def begin(cls, settings: EngineSettings, documents: DocumentBatch, *, turned: bool) -> Self:
        """Begin after the documents of a warm-up, which a turn may have ended."""
        recent = RecentDocuments(settings.warmup_documents)
        recent.add(documents)
        lineage = Lineage.begin(settings.n_components, settings.n_features)
        made = cls(settings, recent, lineage, credit=len(documents) / VAIN)
        made.since = (0, made.size) if turned else None
        return made

    @classmethod
    def of_member(cls, settings: EngineSettings, start: SharedStart) -> Self:
        """Begin with a start that others begin from as well, and its minibatches."""
        size = start.stepwise.settings.batch_documents
        settings = replace(settings, warmup_documents=size * STEPS_PER_WARMUP)
        most = settings.warmup_documents // MEMBER_PART, WARMUP_MAX_ENTRIES // MEMBER_PART
        lineage = Lineage.begin(settings.n_components, settings.n_features)
        made = cls(settings, RecentDocuments(*most), lineage, member=True)
        made.continue_from(start)
        return made

    def continue_from(self, start: SharedStart) -> None:
        """Take the topics of a start, with their ids."""
        if own := start.lineage:
            self.lineage = Lineage.from_state(own["lineage"])
            self.switches, self.last = own["switches"], own["last"]
        self.scores.begin_again(np.empty(0))

    @property
    def newest(self) -> Newest | None:
        """Newest documents of a member, for a merge; None if it has learned nothing."""
        if not (self.member and self.recent.parts):
            return None
        return Newest([*self.scores.last], self.recent.latest())

    @property
    def since_turn(self) -> int:
        """Documents since a turn; 0 without one, and where they are more than a warm-up has."""
        return 0 if self.since is None else self.since[0]

    def merge(self, other: Self, phase: Refinement) -> None:
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

    def find_start(
        self, phase: Refinement, members: Sequence[Newest], since: int
    ) -> SharedStart | None:
        """Return the start that all members begin again from, if their newest documents give one.

        Documents `since` a turn make a challenger, which must predict a fifth of them better;
        without a turn the worst predicted ones propose a topic.
        """
        before, made = phase.shared, None
        if since:
            most = max(1, self.settings.warmup_documents // len(members))
            kept = [each.documents for each in members]
            newest = [each.rows(max(0, len(each) - min(since, most)), len(each)) for each in kept]
            documents = DocumentBatch.joined(newest)
            scores = turns.judge_by(phase.snapshot(), self.settings).score(documents)
            made = self._challenge(phase, documents, scores)
        else:
            n = min(len(each.scores) for each in members)
            blocks = [
                np.concatenate([each.scores[-i] for each in members]) for i in range(n, 0, -1)
            ]
            if m := worst_blocks(blocks, 1, turns.ERRORS):
                made = self._bear_topic(phase, blocks, m, members)
        if made is None or before is None:
            return None
        stepwise = made.stepwise.copy()
        # Those of the members alone are counted.
        stepwise.documents = 0
        own = {"lineage": self.lineage.state(), "switches": self.switches, "last": self.last}
        return SharedStart(stepwise, made.start, before.turn + 1, before.origin, own)

    @property
    def size(self) -> int:
        """Documents of a block: those of a step."""
        return stream_settings(self.settings.warmup_documents).batch_documents

    def end(self, batch: DocumentBatch, start: int) -> int:
        """Return where the block ends that some documents of the batch belong to."""
        missing = self.size - sum(part.n_documents for part in self.block)
        return batch.find_end(missing, start, batch.nonempty)

    def after(self, phase: Phase, part: DocumentBatch) -> Phase:
        """Return the phase that continues after documents that it has learned, up to `end`."""
        self.block.append(part.where(part.nonempty))
        if sum(each.n_documents for each in self.block) < self.size:
            self.block[-1] = self.block[-1].copy()
            return phase
        block = DocumentBatch.joined(self.block)
        self.block = []
        if isinstance(phase, Refinement):
            scores = phase.stepwise.scores
            assert scores is not None
        else:
            # Sums predict nothing: their topics do, which a block hardly changes.
            scores = turns.judge_by(phase.snapshot(), self.settings).score(block)
        self.recent.add(block)
        self.credit += len(block) / VAIN
        # Short documents are learned, but predict too little to tell a turn.
        return self._judge(phase, scores[block.usable])

    def _judge(self, phase: Phase, scores: Array) -> Phase:
        """Make a challenger if it is time."""
        fallen = self.scores.add(scores)
        if not fallen and not self.member:
            fallen = self._count_early_turns()
        if self.since is not None:
            self.since = self.since[0] + len(scores), self.since[1]
        if fallen:
            self.since = fallen * self.size, fallen * self.size
        most, switched = self.settings.warmup_documents, None
        if self.member:
            if self.since is not None and self.since[0] > most:
                self.since = None
        elif self.since is None:
            return self._propose_topic(phase)
        elif self.since[0] >= self.since[1]:
            documents = min(self.since[0], most)
            self.since = None if documents == most else (documents, 2 * documents)
            if self.credit > 0:
                kept, known = self.recent.latest(), np.concatenate(self.scores.last)
                kept = kept.rows(max(0, len(kept) - documents), len(kept))
                switched = self._challenge(phase, kept, known[-len(kept) :])
        if switched is None and fallen:
            # What these blocks are like is usual from now on: a turn is worse.
            self.scores.begin_again(np.concatenate(self.scores.last[-fallen:]), usual=True)
        return switched or phase

    def _count_early_turns(self) -> int:
        """Return 1 where the words of the first block show a turn, whose scores are the first."""
        if self.scores.before.documents or len(self.scores.last) > 1:
            return 0
        kept = self.recent.latest()
        end = len(kept) - len(self.scores.last[0])
        words = turns.count_words(kept.rows(0, end // 2))
        before = turns.Level.of(turns.score_by_words(words, kept.rows(end // 2, end)))
        return int(
            turns.Level.of(turns.score_by_words(words, kept.rows(end, len(kept)))).is_below(before)
        )

    def _propose_topic(self, phase: Phase) -> Phase:
        """Let the documents that are predicted worst propose a topic if they are many."""
        scores = self.scores.last
        if not (m := worst_blocks(scores, self.proposing, turns.ERRORS)):
            self.proposing = 1
            return phase
        self.proposing = 2 * m
        return self._bear_topic(phase, scores, m, [Newest(scores, self.recent.latest())]) or phase

    def _bear_topic(
        self, phase: Phase, blocks: list[Array], m: int, members: Sequence[Newest]
    ) -> Refinement | None:
        """Return the phase with a topic of the worst documents of m blocks, if it predicts more."""
        parts = [each.latest(m) for each in members]
        kept = DocumentBatch.joined([documents for _, documents in parts])
        low = np.concatenate([own for own, _ in parts]) < low_score(np.concatenate(blocks[:-m]))
        # Of a rare theme there must be some among those that judge.
        judging = np.arange(len(kept)) % 2 == 0
        seeded = len(self.settings.seed_topics) == self.settings.n_components
        if seeded or not (low & ~judging).any():
            return None
        judges, model = kept.where(judging), _refinable(phase.snapshot())
        plan = replace(stream_settings(self.settings.warmup_documents), seeds=model.seeds)
        birth = make_birth(model, kept.where(low & ~judging), kept.where(~judging), plan)
        before, after = (
            turns.judge_by(each, self.settings).score(judges) for each in (model, birth.model)
        )
        gain = turns.Gain.of(after - before)
        if not gain.is_sure:
            return None
        return self._switch_to(phase, phase.counters, birth.model, judges, gain, birth)

    def _challenge(self, phase: Phase, rows: DocumentBatch, scores: Array) -> Refinement | None:
        """Return the phase of a challenger of documents, the newest of which have scores."""
        judging = np.zeros(len(rows), dtype=np.bool_)
        judging[-len(scores) :: turns.JUDGING] = True
        learned, judges = rows.where(~judging), rows.where(judging)
        if len(learned) < LEAST_DOCUMENTS:
            return None
        try:
            began, model = fit(self.settings, learned)
        except InsufficientDataError:
            return None
        gain = turns.Gain.of(
            turns.judge_by(model, self.settings).score(judges) - scores[:: turns.JUDGING]
        )
        if not gain.is_sure:
            self.credit -= len(rows)
            return None
        # Topics continue by likelihood, also those of a start that a refinement does not better.
        return self._switch_to(phase, began.counters, _refinable(model), judges, gain)

    def _switch_to(
        self,
        phase: Phase,
        counters: Counters,
        model: TopicModel,
        judges: DocumentBatch,
        gain: turns.Gain,
        birth: Birth | None = None,
    ) -> Refinement:
        """Let a challenger, which has these counters, take over."""
        seen = phase.counters.documents_seen
        order = self.lineage.follow(phase.snapshot(), model, seen)
        model = permute_topics(model, order)
        made = Refinement.of_model(self.settings, counters, model)
        if birth is not None:
            made.stepwise.weigh(order.index(birth.row), birth.tokens)
        self.scores.begin_again(turns.judge_by(model, self.settings).score(judges))
        made.counters = phase.counters.after(made.counters)
        made.follow(judges)
        self.proposing = 1
        self.switches += 1
        learned = {"documents_seen": seen, "learned_from": model.documents_seen}
        self.last = learned | gain.diagnostics
        return made

    def change_words(self, change: ColumnChange, *, begins: bool) -> None:
        """Forget words that left; a phase that `begins` here has learned nothing of the block."""
        if begins and self.block:
            self.recent.add(DocumentBatch.joined(self.block))
            self.block = []
        self.settings = replace(self.settings, n_features=change.after)
        self.recent.change_words(change)
        self.block = [change.documents(part) for part in self.block]
        self.lineage.change_words(change)

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Entries of a model's diagnostics: ids of topics, switches, and topics that retired."""
        known = {"switches": self.switches, "last": self.last, "retired": self.lineage.diagnostics}
        return {"topic_ids": [*self.lineage.ids], "following": known}

    def state(self) -> Tree:
        """Return all that is needed to continue."""
        names = "since", "credit", "proposing", "switches", "last"
        parts: Tree = {"scores": self.scores, "lineage": self.lineage, "recent": self.recent}
        own = {name: getattr(self, name) for name in names}
        own |= {name: part.state() for name, part in parts.items()}
        return own | {"block": DocumentBatch.joined(self.block).arrays if self.block else {}}

    @classmethod
    def from_state(
        cls, settings: EngineSettings, own: Tree, start: SharedStart | None = None
    ) -> Self:
        """Resume from what `state` returned."""
        lineage, d = Lineage.from_state(own["lineage"]), settings.n_features
        if start is None:
            made = cls(settings, RecentDocuments(settings.warmup_documents), lineage)
        else:
            made = cls.of_member(settings, start)
            made.lineage = lineage
        made.recent.restore(own["recent"], d)
        if block := own["block"]:
            made.block = [DocumentBatch(**block, n_features=d, integral=False)]
        made.scores.restore(own["scores"])
        made.since = None if own["since"] is None else (own["since"][0], own["since"][1])
        made.credit, made.proposing = own["credit"], own["proposing"]
        made.switches, made.last = own["switches"], own["last"]
        return made


def _refinable(model: TopicModel) -> TopicModel:
    """Return a model whose topics may have been spectral until now."""
    if "refinement" in model.diagnostics:
        return model
    done = {"start_topics": [*range(model.n_components)]}
    return replace(model, diagnostics={**model.diagnostics, "refinement": done})
