"""A topic model refined over documents in memory: passes of stepwise EM, then sweeps.

A start becomes a `Candidate` by passes over the documents, and sweeps move it further. If it
predicts held-out documents better than its start, it learns these too, and is measured.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.errors import at_least
from streamlda.kernels.refinement import MAX_TOPICS
from streamlda.model.diagnostics import count_clear_topics, warn_of_background
from streamlda.model.hierarchy import permute_topics
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.collapsed import CollapsedVariational
from streamlda.refinement.gibbs import GibbsSampler
from streamlda.refinement.measures import Samples, add_measurements
from streamlda.refinement.schedule import STEPS, limit_annealing, pass_settings
from streamlda.refinement.settings import GibbsSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.spectral.topics import ESTIMATE, few_directions
from streamlda.utils.progress import progress

#: Most collapsed sweeps over a part of the documents, in multiples of those over all.
PART_TIMES = 4

#: Members of the diagnostics of a spectral fit that are about its topics, not its documents.
_OF_TOPICS = ("eigenvalues", "eigenvalue_noise", "topic_supported", "warnings")


class Candidate:
    """Topics that documents have moved from a start by the annealed steps of some passes.

    The other steps may follow (`settle`), and sweeps. Equal arguments give equal results for any
    number of threads. Documents may be a part of `total` ones, which sweeps follow over. Passes
    take O(nnz K) each in time, and 24 V K and 16 MiB of memory.
    """

    def __init__(
        self, start: TopicModel, documents: DocumentBatch, passes: int, total: int = 0
    ) -> None:
        documents = documents.sharing(documents.nonempty)
        # What was learned of alpha with topics that overlap holds them there.
        alpha = np.full_like(start.alpha, start.alpha.mean())
        plan = limit_annealing(pass_settings(documents, passes, total), start)
        stepwise = StepwiseEM.of_topics(start.components, alpha, start.background, plan)
        self.start, self.documents = start, documents
        self._learner: StepwiseEM | CollapsedVariational | GibbsSampler = stepwise
        self.done: dict[str, Any] = {"documents": len(documents), "passes": passes, "sweeps": 0}
        self.done["batch_documents"] = plan.batch_documents
        self._read(0, plan.annealing_steps * plan.batch_documents)

    def settle(self) -> Self:
        """Take the other steps; return the candidate."""
        assert isinstance(self._learner, StepwiseEM)
        self._read(self._learner.documents, self.done["passes"] * len(self.documents))
        self.done["steps"] = self._learner.steps
        return self

    def _read(self, start: int, stop: int) -> None:
        """Learn the documents with these numbers, in passes that follow each other."""
        assert isinstance(self._learner, StepwiseEM)
        n, size = len(self.documents), self.done["batch_documents"]
        with progress("refinement passes", stop - start) as advance:
            while start < stop:
                first = start % n
                part = self.documents.rows(first, first + min(stop - start, size))
                self._learner.add(part)
                start += len(part)
                advance(len(part))
        self._learner.flush()

    @property
    def model(self) -> TopicModel:
        """The start with these topics, and the prior that they were made with."""
        return replace(self.start, components=self._learner.components, alpha=self._learner.alpha)

    def sweep(self, documents: DocumentBatch, sweeps: int, seed: int) -> None:
        """Move the topics by the sweeps that suit documents: those of the passes, or more.

        Documents with a token for each topic get collapsed sweeps. If there is no memory for all,
        every n-th one gets more, if these have a token for each word of each topic. Where they are
        not all, or documents are shorter, a sampler follows, which draws whole tokens: from passes
        alone it settles slowly where documents mix many topics.
        """
        documents = documents.sharing(documents.nonempty)
        if len(documents) > len(self.documents):
            sweeps = round(sweeps / 3)
        self.done["documents"] = len(documents)
        start, tokens = self.start, float(documents.lengths.sum())
        K, settings = start.n_components, GibbsSettings(seed=seed, seeds=start.seeds)
        draws = can_draw(documents, K)
        parts = CollapsedVariational.count_parts(documents, K)
        # How many times less than with alpha_0 = 1 proportions vary. An alpha_0 above the tokens of
        # a document adds nothing: the prior decides.
        mixed = max(1.0, (1 + min(start.alpha_0, tokens / len(documents))) / 2)
        is_enough = parts == 1 or (draws and tokens >= parts * start.components.size)
        if tokens >= K * len(documents) and is_enough:
            some = documents.sharing(np.arange(len(documents)) % parts == 0)
            given = self._learner.components, self._learner.alpha, settings
            # The sums of passes make room.
            del self._learner
            self._learner = collapsed = CollapsedVariational(some, *given)
            del given
            # Those of a part cost little. Where documents mix topics, the sampler does better.
            collapsed.sweep(int(sweeps * max(1.0, min(parts, PART_TIMES) / mixed)))
            self.done["collapsed_sweeps"] = collapsed.sweeps
            draws = draws and parts > 1
            del collapsed, some
        if draws:
            given = self._learner.components, self._learner.alpha, settings
            del self._learner
            self._learner = sampler = GibbsSampler(documents, *given)
            del given
            # Short texts get as many draws as documents of 40 tokens. Relaxed sweeps settle more
            # slowly by the root of how much less proportions vary.
            times = math.sqrt(mixed) * max(1.0, 40 * len(documents) / tokens)
            averaged = round(sweeps * times)
            sampler.sweep(2 * averaged, averaged=averaged)
            self.done["sweeps"] = 2 * averaged

    def learn(self, held_out: DocumentBatch) -> None:
        """Learn the documents that judged the topics."""
        self.done["documents"] += len(held_out)
        self._learner.learn(held_out)
        if isinstance(self._learner, CollapsedVariational):
            self.done["collapsed_sweeps"] = self._learner.sweeps

    def end(self, samples: Callable[[], Samples]) -> TopicModel:
        """End, and return the model, measured in samples, with the most prevalent topics first.

        Seeded ones stay before all others. Settings say ``refinement_passes`` and
        ``refinement_sweeps``; the diagnostic ``refinement`` says what was done, and which topic of
        the start each one began as (``start_topics``). What was said of topics of the start is in
        ``start``, by their numbers there.
        """
        found = with_done(replace(self.model, diagnostics=self.start.diagnostics), self.done)
        # Its sums make room for samples.
        del self._learner
        return most_prevalent_first(found, samples())


def can_draw(documents: DocumentBatch, n_topics: int) -> bool:
    """Return whether a sampler suits documents: whole counts, few times as many as words."""
    tokens = float(documents.lengths.sum())
    return documents.whole and n_topics <= MAX_TOPICS and tokens <= n_topics * documents.n_entries


def with_done(model: TopicModel, done: Mapping[str, Any]) -> TopicModel:
    """Return a refined model, whose diagnostics are those of its start, saying what was done."""
    known = of_start(model.diagnostics)
    if done["steps"] < STEPS // 2 and not done["sweeps"]:
        known["warnings"].append(
            f"a refinement took too few of about {STEPS} steps for topics to settle, got "
            f"steps={done['steps']} refinement_passes={done['passes']}; make more passes, or none"
        )
    asked = {"refinement_passes": done["passes"], "refinement_sweeps": done["sweeps"]}
    done = {**done, "start_topics": [*range(model.n_components)]}
    return replace(
        model, settings={**model.settings, **asked}, diagnostics={**known, "refinement": done}
    )


def refine_model(
    model: TopicModel,
    documents: DocumentBatch,
    *,
    passes: int,
    samples: Callable[[], Samples] | None = None,
) -> TopicModel:
    """Return a model with topics of higher likelihood, by passes over the documents.

    Those without tokens are skipped. The topics are measured in `samples`, or in the documents.
    """
    at_least(0, passes=passes)
    if not passes:
        return model
    found = Candidate(model, documents, passes).settle()
    return found.end(samples or (lambda: Samples.of(documents)))


def most_prevalent_first(model: TopicModel, samples: Samples) -> TopicModel:
    """Return a refined model, measured in samples of its documents, with its topics in order."""
    found = add_measurements(model, samples, fit_alpha=True)
    assert found.prevalence is not None
    seeded = len(found.seeds)
    order = [*range(seeded), *(k for k in found.order if k >= seeded)]
    return warn_of_background(permute_topics(found, order))


def start_of(model: TopicModel) -> dict[str, Any]:
    """Return the diagnostics of the start of a refined model, for one that continues from it.

    With them ``start_topics``, for the topics may be in another order by now. The model may be the
    start itself, where that was the better one.
    """
    known = dict(model.diagnostics)
    known.pop("refinement_choice", None)
    done = known.pop("refinement", {"start_topics": [*range(model.n_components)]})
    return {**known, "start_topics": done["start_topics"]}


def of_start(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the diagnostics of topics refined from those that `found` is about.

    What it says of documents stays, and of alpha_0; the rest is of the ``start``. So too a warning
    of few directions, if their number is clear: of most text it is not, however good the topics.
    """
    if "start" in found:
        return {**found, "warnings": [*found["warnings"]]}
    kept = {name: value for name, value in found.items() if name not in _OF_TOPICS}
    kept["start"] = {name: found[name] for name in _OF_TOPICS if name in found}
    estimate = found.get(ESTIMATE, {"identified": True})
    kept["warnings"] = [] if estimate["identified"] else [estimate["reason"]]
    K, directions = len(found["eigenvalues"]), found["directions_supported"]
    documents = found.get("documents_behind_directions")
    is_clear = count_clear_topics(found) is not None
    if documents is not None and directions < K and is_clear:
        kept["warnings"].insert(0, few_directions(directions, K, documents))
    return kept
