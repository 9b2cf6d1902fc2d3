"""Private topics by sums of many workers: a stage of a release is a stage like any other.

The sums of a stage are whole numbers of documents, each brought to the grid by itself
(`streamlda.guarantee.sums`). So a task takes any run of slots, and the raw sums that come together
at the driver are, number for number, those of one process: what is proven of its releases holds
here. Slot n is the n-th record of the corpus, whatever it holds. Workers draw no noise, so a task
that is done twice releases nothing; what is published goes through the one ledger of the driver.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamlda.guarantee.mechanism import JointGaussian
from streamlda.private import stage as summing
from streamlda.private.contributions import Statistic
from streamlda.private.learner import PrivateLearner
from streamlda.scaleout.cluster import Run, check_cluster
from streamlda.scaleout.faults import check
from streamlda.scaleout.shards import Corpus
from streamlda.scaleout.store import keep_documents
from streamlda.scaleout.sums import FoldedStage, Read, Span, Sums
from streamlda.text.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False, kw_only=True)
class Private(FoldedStage):
    """Slots to be summed; all of the stage is of releases that were made before, and so public."""

    name: str
    n_features: int
    statistics: Sequence[Statistic] = field(repr=False)
    mechanism: JointGaussian = field(repr=False)

    def fold(self, span: Span, read: Read) -> Sums:
        """Sum slots."""
        own = summing.Stage(self.name, *span, self.statistics, self.mechanism)
        for batch in read(*span):
            summing.check_rows(batch, self.n_features)
            own.add(batch)
        return Sums(self.stage_id, (span,), own.state())


def sum_stages(
    client: Any, corpus: Corpus, learner: PrivateLearner, vocabulary: Vocabulary | None, slots: int
) -> Iterator[int]:
    """Sum one stage after the other on the workers, and yield how many slots it took.

    The caller makes what is due, and what may end there, before it continues; the `slots` are those
    that it noted for a ledger.
    """
    check_cluster(client)
    settings = learner.settings
    how: dict[str, Any] = {"vocabulary": vocabulary, "n_features": settings.n_features}
    how |= {"slots": True, "learns_short": False}
    with keep_documents(Run(client), corpus, **how) as documents:
        check(slots == documents.total, "records", records=documents.total, known=slots)
        # A rest that gives no snapshot is not paid for.
        while (stage := learner.stage) is not None:
            first, last = learner.slots, min(stage.last, slots)
            if max(1, learner.private.least_missing) > slots - first:
                break
            about: dict[str, Any] = {"name": stage.name, "n_features": settings.n_features}
            about |= {"statistics": stage.statistics, "mechanism": stage.mechanism}
            found = documents.sum_stage(Private, (first, last), **about)
            learner.skip(last - first)
            for block, sums in found.arrays.items():
                stage.sums.aggregates[block] += sums
            yield last - first
