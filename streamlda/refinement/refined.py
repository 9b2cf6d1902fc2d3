"""A topic model refined over documents that are at hand: passes of steps, then sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError
from streamlda.model import TopicModel
from streamlda.refinement.resampling import Resampling
from streamlda.refinement.settings import RefinementSettings, ResamplingSettings, at_least
from streamlda.refinement.stepwise import Refinement

#: Last sweeps that topics are the mean of; those before only bring the sampler there.
AVERAGED_SWEEPS = 3

#: Steps of a pass, and the fewest and most documents of one: a small corpus has fewer steps a pass
#: and a large one more.
STEPS_PER_PASS = 100
FEWEST_DOCUMENTS, MOST_DOCUMENTS = 30, 1000

#: With fewer steps in all, topics may end nearer to the background than they began.
LEAST_STEPS = 100

#: Members of the diagnostics of a spectral fit with a number for each topic.
_BY_TOPIC = ("eigenvalues", "eigenvalue_noise", "topic_supported")


def refined(
    model: TopicModel, documents: DocumentBatch, *, passes: int = 0, sweeps: int = 0, seed: int = 0
) -> TopicModel:
    """Return a spectral model with topics of higher likelihood; the model given stays as it is.

    First `Refinement` goes over the documents `passes` times, in steps of a hundredth of them
    (30 at least, 1000 at most), annealed over half of all steps but no more than 100. Then
    `Resampling` draws topics of all tokens `sweeps` times, and makes the topics of the mean of the
    last three sweeps; alpha follows it. Documents of fewer than 3 tokens are passed over, as the
    engine does. Equal arguments give equal results for any number of threads.

    Parameters
    ----------
    model : TopicModel
        Of K topics over V words.
    documents : DocumentBatch
        Documents that the model was learned from, or others like them; whole counts for sweeps.
    passes, sweeps : int, default 0
        At least 0 each.
    seed : int, default 0
        Of the sweeps: 0 <= seed < 2^63.

    Returns
    -------
    TopicModel
        Most prevalent topic first. Settings say ``refinement_passes`` and ``refinement_sweeps``;
        the diagnostic ``refinement`` says what was done, and which topic of the spectral model each
        one began as (``start_topics``). Numbers of the spectral fit for each topic follow their
        topics, and its warnings are marked as such: they number topics as they were.

    Raises
    ------
    InvalidSettingError
        If a number is out of range.
    InvalidDocumentsError
        If the vocabulary has another size, or sweeps are asked for and counts are not whole.
    InsufficientDataError
        If no document has 3 tokens.

    Notes
    -----
    Time O(nnz K) a pass, O(tokens (topics of a document + log K) + 50 V K) a sweep. Memory 24 V K
    and 32 MiB for passes; for sweeps 32 V K, 2 bytes a token and 8 an entry of the documents, and
    a copy of these if some are too short.
    """
    at_least("passes", passes, 0)
    at_least("sweeps", sweeps, 0)
    if not passes and not sweeps:
        return model
    documents = _usable(documents)
    if not documents.n_documents:
        raise InsufficientDataError(
            "a refinement must have a document of at least 3 tokens, got documents=0; "
            "pass longer documents, or leave the refinement out"
        )
    done: dict[str, Any] = {"documents": documents.n_documents, "passes": passes, "sweeps": sweeps}
    components, alpha = model.components, model.alpha
    warnings: list[str] = []
    if passes:
        settings = _steps_of(documents.n_documents, passes)
        stepwise = Refinement(components, alpha, model.background, settings)
        for _ in range(passes):
            stepwise.add(documents)
        stepwise.flush()
        components = stepwise.components
        done |= {"steps": stepwise.steps, "batch_documents": settings.batch_documents}
        if stepwise.steps < LEAST_STEPS:
            warnings.append(
                f"a refinement must take about 200 steps for topics to settle, got "
                f"steps={stepwise.steps} refinement_passes={passes}; make more passes, or none"
            )
    if sweeps:
        sampler = Resampling(documents, components, alpha, ResamplingSettings(seed=seed))
        averaged = min(AVERAGED_SWEEPS, sweeps)
        sampler.sweep(sweeps - averaged)
        sampler.sweep(averaged, average=True)
        components, alpha = sampler.components, sampler.alpha
        done["averaged_sweeps"] = averaged
    order = np.argsort(-alpha, kind="stable")
    done["start_topics"] = order.tolist()
    return replace(
        model,
        components=components[order],
        alpha=alpha[order],
        settings={**model.settings, "refinement_passes": passes, "refinement_sweeps": sweeps},
        diagnostics={
            **_follow(model.diagnostics, done["start_topics"], warnings),
            "refinement": done,
        },
    )


def _usable(documents: DocumentBatch) -> DocumentBatch:
    """Return the documents that the engine learns from; themselves if it is all of them."""
    usable = documents.usable
    if usable.all():
        return documents
    widths = np.diff(documents.row_pointers)
    kept = np.repeat(usable, widths)
    pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(widths[usable])])
    return DocumentBatch(
        *(documents.counts[kept], documents.word_ids[kept], pointers, documents.n_features),
        integral=False,
    )


def _steps_of(n_documents: int, passes: int) -> RefinementSettings:
    size = min(max(n_documents // STEPS_PER_PASS, FEWEST_DOCUMENTS), MOST_DOCUMENTS)
    steps = -(-passes * n_documents // size)
    # Topics that are still held near the background at the end were never sharp: with few steps
    # in all, half of them must come after the annealing.
    annealing = min(RefinementSettings().annealing_steps, steps // 2)
    return RefinementSettings(batch_documents=size, annealing_steps=annealing)


def _follow(found: Mapping[str, Any], order: list[int], warnings: list[str]) -> dict[str, Any]:
    """Return the diagnostics of the spectral fit for topics in a new order."""
    moved = {name: [found[name][i] for i in order] for name in _BY_TOPIC if name in found}
    earlier = [f"before refinement: {text}" for text in found.get("warnings", [])]
    return {**found, **moved, "warnings": [*earlier, *warnings]}
