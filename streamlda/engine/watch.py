"""Turns of a stream within its warm-up, which begins again with the documents after a turn.

There are no topics yet, so the words of all documents so far predict each block before they are
counted. Where blocks are predicted worse than those before, two fits compete for a fifth of the
documents since: one of these documents alone, and one of all. If the first is better by standard
errors, all documents before are dropped; else it is tried again when its documents have doubled.
Documents that fits learn here are paid for as those of challengers (`streamlda.engine.following`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.fit import fit
from streamlda.engine.refining import LEAST_DOCUMENTS
from streamlda.engine.settings import EngineSettings
from streamlda.engine.turns import JUDGING, Gain, Scores, count_words, judge_by, score_by_words
from streamlda.errors import InsufficientDataError
from streamlda.refinement.schedule import stream_settings
from streamlda.utils.arrays import State, named, with_prefix


@dataclass(eq=False)
class WarmUpWatch:
    """State that shows a turn within a warm-up; a pure state machine."""

    settings: EngineSettings
    scores: Scores = field(init=False)
    #: Tokens of each word in the blocks so far.
    words: NDArray[np.float64] = field(init=False)
    #: Documents of these blocks.
    documents: int = 0
    #: Usable documents since a turn, and of how many the next fit is; None without a turn.
    since: tuple[int, int] | None = None
    #: Documents that fits may still learn.
    credit: int = field(init=False)
    #: Turns so far, and the last one.
    switches: int = 0
    last: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.credit = self.settings.warmup_documents
        self.scores = Scores(max(1, self.settings.warmup_documents // self.size))
        self.words = np.zeros(self.settings.n_features)

    @property
    def size(self) -> int:
        """Documents of a block, as after the warm-up."""
        return stream_settings(self.settings.warmup_documents).batch_documents

    def missing(self, kept: int) -> int:
        """Return how many documents the block still takes after those kept."""
        return self.documents + self.size - kept

    def since_turn(self, kept: DocumentBatch, seen: int) -> int | None:
        """Return where the documents since a turn begin, if those before are to be dropped.

        The newest documents kept are a block. There are `seen` documents in the stream so far.
        """
        newest = kept.rows(self.documents, len(kept))
        block = newest.where(newest.usable)
        self.credit += len(block)
        self.documents = len(kept)
        fallen = 0
        if self.words.any():
            fallen = self.scores.add(score_by_words(self.words, block))
        self.words += count_words(block)
        if self.since is not None:
            self.since = self.since[0] + len(block), self.since[1]
        if fallen:
            n = self.scores.documents_since(fallen)
            self.since = n, n
            # What these blocks are like is usual from now on.
            self.scores.begin_again(np.concatenate(self.scores.last[-fallen:]))
        if self.since is None or self.since[0] < self.since[1]:
            return None
        n = self.since[0]
        at = int(np.flatnonzero(kept.usable)[-n:][0])
        found = self._compared(kept, at) if self.credit >= len(kept) else None
        if found is None:
            self.since = (n, 2 * n) if 2 * n <= len(kept) else None
            return None
        self.switches += 1
        self.last = {"documents_seen": seen, "learned_from": n, **found.diagnostics}
        self.since, self.documents = None, len(kept) - at
        self.words = count_words(kept.rows(at, len(kept)))
        self.scores.begin_again(np.empty(0))
        return at

    def _compared(self, kept: DocumentBatch, at: int) -> Gain | None:
        """Return what a fit of the documents from here on gains on one of all, if that is sure."""
        judging = np.zeros(len(kept), dtype=np.bool_)
        judging[np.flatnonzero(kept.usable & (np.arange(len(kept)) >= at))[::JUDGING]] = True
        judges, others = kept.where(judging), ~judging & kept.usable
        newer = kept.where(others & (np.arange(len(kept)) >= at))
        if len(newer) < LEAST_DOCUMENTS:
            return None
        self.credit -= len(kept)
        try:
            models = [fit(self.settings, documents)[1] for documents in (newer, kept.where(others))]
        except InsufficientDataError:
            return None
        after, before = (judge_by(model, self.settings).scored(judges) for model in models)
        found = Gain.of(after - before)
        return found if found.is_sure else None

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What a model says of it."""
        return {"following": {"switches": self.switches, "last": self.last, "retired": []}}

    def state(self) -> State:
        """Return all that is needed to continue."""
        arrays, values = self.scores.state()
        arrays = with_prefix(arrays | {"words": self.words.copy()}, "watch.")
        names = "documents", "since", "credit", "switches", "last"
        return arrays, {"watch": values | {name: getattr(self, name) for name in names}}

    def restore(self, saved: State) -> None:
        """Take back what `state` returned."""
        arrays, values = named(saved[0], "watch."), saved[1]["watch"]
        self.scores.restore(arrays, values)
        self.words = arrays["words"].copy()
        self.since = None if values["since"] is None else (values["since"][0], values["since"][1])
        self.documents, self.credit = values["documents"], values["credit"]
        self.switches, self.last = values["switches"], values["last"]
