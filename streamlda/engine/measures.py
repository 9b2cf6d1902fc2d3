"""Samples and sums that an engine measures its topics in: so far, and since the last release.

A sample of all documents, one of those since the last release, and one that coherence is counted
in (`streamlda.refinement.measures`).
"""

from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.timeline import Bins
from streamlda.model.over_time import Interval
from streamlda.model.topic_model import TopicModel
from streamlda.refinement import measures
from streamlda.refinement.sample import Sample
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Tree


class Measures:
    """Samples and sums of one engine. Memory: of three samples, and of bins of time."""

    def __init__(self, documents: int = 0, tokens: float = 0.0) -> None:
        """Begin after a number of documents and tokens."""
        self.samples, self.bins = measures.Samples(documents, tokens), Bins()
        self.restart(tokens)

    @classmethod
    def of(cls, documents: DocumentBatch, *, short: bool) -> Self:
        """Return the measures after the release of a model of these documents.

        As in `add`, `short` says whether documents of fewer than 3 tokens were learned.
        """
        made = cls()
        for part in documents.blocks():
            made._take(part.where(part.nonempty if short else part.usable))
        return made

    def restart(self, tokens: float = 0.0) -> None:
        """Begin the next interval."""
        self.interval = Sample(measures.SAMPLE_DOCUMENTS, measures.SAMPLE_ENTRIES, begin=tokens)
        self.documents = 0

    def add(self, batch: DocumentBatch, *, short: bool = False) -> None:
        """Take the usable documents of a batch, and `short` ones too, which are not counted."""
        documents = batch.where(batch.nonempty if short else batch.usable)
        self._take(documents)
        self.interval.add(documents)
        self.documents += int(np.count_nonzero(documents.usable))

    def _take(self, documents: DocumentBatch) -> None:
        self.samples.add(documents)
        self.bins.add(documents)

    def begin_again(self, documents: DocumentBatch) -> None:
        """Measure from now on in these documents and those that follow; bins stay."""
        self.samples = measures.Samples()
        self.samples.add(documents)

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left."""
        for _, sample in self._samples():
            sample.change_words(change)
        self.bins.change_words(change)

    def merge(self, *others: Self) -> None:
        """Take what other engines keep, which are not changed."""
        every = [other._samples() for other in others]
        for (_, mine), *theirs in zip(self._samples(), *every, strict=True):
            mine.merge(*(other for _, other in theirs))
        for other in others:
            self.bins.merge(other.bins)
            self.documents += other.documents

    def complete(self, model: TopicModel) -> TopicModel:
        """Return a model with all that is measured, and that its phase has not measured yet."""
        refined = "refinement" in model.diagnostics
        changes: dict[str, Any] = {}
        if model.prevalence is None:
            changes = measures.measurements(model, self.samples, fit_alpha=refined)
        alpha = changes.get("alpha", model.alpha)
        found = None
        if self.documents == model.documents_seen:
            found = changes.get("prevalence", model.prevalence)
        elif len(self.interval):
            found = measures.infer_prevalence(model, self.interval.collect(), alpha)
        changes["interval"] = Interval(
            documents=self.documents,
            tokens=round(self.interval.end),
            prevalence=None if found is None else tuple(found.tolist()),
        )
        found = replace(model, **changes)
        if not self.bins.dated:
            return found
        return replace(found, timeline=self.bins.timeline(found))

    def state(self) -> Tree:
        """Return all that is needed to continue."""
        samples = {name: sample.state() for name, sample in self._samples()}
        return {"documents": self.documents, "bins": self.bins.state(), **samples}

    @classmethod
    def from_state(cls, own: Tree, n_features: int) -> Self:
        """Resume from what `state` returned."""
        made = cls()
        made.documents = own["documents"]
        for name, sample in made._samples():
            sample.restore(own[name], n_features)
        made.bins.restore(own["bins"])
        return made

    def _samples(self) -> list[tuple[str, Sample]]:
        both = self.samples
        return [("all", both.tokens), ("counted", both.documents), ("interval", self.interval)]


def of_one_interval(model: TopicModel) -> TopicModel:
    """Return a model of documents that all came in one interval."""
    shares = model.prevalence
    interval = Interval(
        documents=model.documents_seen,
        tokens=model.tokens_seen,
        prevalence=None if shares is None else tuple(shares.tolist()),
    )
    return replace(model, interval=interval)
