"""A topic model refined over documents in memory: passes of stepwise EM, then sweeps.

`streamlda.refinement.schedule` says how many passes suit a number of documents; Gibbs sweeps follow
where held-out documents gain by them (`streamlda.refinement.sweeping`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, at_least, require
from streamlda.model.diagnostics import count_clear_topics, warn_of_background
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import chosen, has_too_small_alpha_0
from streamlda.refinement.collapsed import (
    CollapsedVariational,
    suits,
    sweeps_for,
)
from streamlda.refinement.measures import Samples, measured
from streamlda.refinement.schedule import (
    Rounds,
    annealed,
    pass_settings,
    smoothing_for,
)
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.refinement.sweeping import sweep_topics
from streamlda.spectral.topics import ESTIMATE, few_directions
from streamlda.utils.progress import progress

#: With fewer steps in all, topics may end nearer to the background than they began.
LEAST_STEPS = 100

#: Members of the diagnostics of a spectral fit that are about its topics, not its documents.
_OF_TOPICS = (
    "condition_number",
    "alpha_fit",
    "eigenvalues",
    "eigenvalue_noise",
    "topic_supported",
    "warnings",
)


def refined(
    model: TopicModel,
    documents: DocumentBatch,
    *,
    passes: int = 0,
    thorough: bool = False,
    quick: bool = False,
    rounds: Rounds | None = None,
    seed: int = 0,
    held_out: DocumentBatch | None = None,
    rival: Callable[[], TopicModel] | None = None,
    samples: Callable[[], Samples] | None = None,
) -> TopicModel:
    """Return a spectral model with topics of higher likelihood; the model given stays as it is.

    First `StepwiseEM` goes over the documents `passes` times, in steps of a hundredth of them
    (30 at least, 1000 at most), or `thorough` ones: see `streamlda.refinement.schedule`. With
    documents `held_out`, documents that are few have collapsed sweeps after them, or after one
    pass if `quick`, and no rounds (`streamlda.refinement.collapsed`). With `rounds`, for which
    counts must be integers, Gibbs sweeps are as many as held-out documents gain by.
    Documents without tokens are skipped. Equal arguments give equal
    results for any number of threads.

    With documents `held_out`, of which the model must not know, passes and sweeps are kept only
    if their topics predict these better (`streamlda.refinement.choice`), and learn them. Else
    the model comes back. Its diagnostic ``refinement_choice`` says what was compared. If they are
    not much better, they must predict better than a `rival` too. What is measured is so in the
    `samples` of all these documents, which are asked for at last; without them, some are taken.

    A sampler of a false prior predicts better and has worse topics: with 20 planted topics, alpha_0
    = 20, fitted with 1, passes had an error of 0.59, and with sweeps 0.80. So there are no sweeps
    if the alpha_0 that fits the documents is many times the one given: ``alpha_0_refuted``.

    Topics are the most prevalent first, after seeded ones. Settings say ``refinement_passes`` and
    ``refinement_sweeps``; the diagnostic ``refinement`` says what was done, and which topic of the
    spectral model each one began as (``start_topics``). What the spectral fit said of its topics is
    in ``start``, by their numbers there.

    Time O(nnz K) a pass, O(tokens (topics of a document + log K) + 50 V K) a sweep. Memory 24 V K
    and 32 MiB for passes; for sweeps 40 V K, 1 byte a token (2 from 257 topics on) and 8 a
    document, 24 K a token of the longest document, and a copy of the documents if some are too
    short.
    """
    at_least(0, passes=passes)
    if not passes:
        return model
    documents = documents.sharing(documents.known)
    require(
        documents.n_documents,
        "a refinement must have a document with tokens",
        documents=0,
        remedy="pass longer documents, or leave the refinement out",
        error=InsufficientDataError,
    )
    done: dict[str, Any] = {
        "documents": documents.n_documents,
        "passes": passes,
        "sweeps": 0,
    }
    components, alpha = model.components, model.alpha
    warnings: list[str] = []
    collapsed, before = None, 1 if quick else passes
    refuted = False
    if held_out is not None and suits(documents, model.n_components):
        collapsed = _collapsed(model, documents, before, thorough)
        learned = replace(model, components=collapsed.components, alpha=collapsed.alpha)
        refuted = has_too_small_alpha_0(learned, documents)
        collapsed = None if refuted else collapsed
    if collapsed is not None and held_out is not None:
        found = replace(model, components=collapsed.components)
        model, kept = chosen(model, found, held_out, documents, rival)
        if not kept:
            return model
        collapsed.add(held_out)
        collapsed.sweep(sweeps_for(thorough).after)
        components, passes = collapsed.components, 0
        done |= {"passes": before, "collapsed_sweeps": collapsed.sweeps}
        done["documents"] += held_out.n_documents
        if samples is None:
            documents = DocumentBatch.joined([documents, held_out])
    if passes:
        stepwise = _passed(model, documents, passes)
        sampled = None
        if held_out is not None:
            found = replace(model, components=stepwise.components)
            if rounds is not None:
                passed = replace(found, alpha=stepwise.alpha)
                free = model.settings.get("alpha_0", 1.0) is None
                refuted = refuted or (not free and has_too_small_alpha_0(passed, documents))
                if not refuted:
                    sampled = sweep_topics(passed, documents, held_out, rounds, seed)
            if sampled is not None:
                found = replace(model, components=sampled.unaware, alpha=sampled.alpha)
            model, kept = chosen(model, found, held_out, documents, rival)
            if not kept:
                return model
            if sampled is None:
                stepwise.add(held_out)
                stepwise.flush()
            done["documents"] += held_out.n_documents
            if samples is None:
                documents = DocumentBatch.joined([documents, held_out])
        if sampled is None:
            components = stepwise.components
        else:
            components, alpha = sampled.components, sampled.alpha
            done |= {"sweeps": sampled.sweeps, "averaged_sweeps": sampled.averaged}
        done |= {"steps": stepwise.steps, "batch_documents": stepwise.settings.batch_documents}
        if stepwise.steps < LEAST_STEPS:
            warnings.append(
                f"a refinement must take about 200 steps for topics to settle, got "
                f"steps={stepwise.steps} refinement_passes={passes}; make more passes, or none"
            )
    if samples is None:
        taken = Samples()
        taken.add(documents)
    else:
        taken = samples()
    known = of_start(model.diagnostics)
    known["warnings"] += warnings
    done["start_topics"] = [*range(model.n_components)]
    done |= {"alpha_0_refuted": True} if refuted else {}
    found = replace(
        model,
        components=components,
        alpha=alpha,
        settings={
            **model.settings,
            "refinement_passes": done["passes"],
            "refinement_sweeps": done["sweeps"],
        },
        diagnostics={**known, "refinement": done},
    )
    return most_prevalent_first(found, taken, fit_alpha=not done["sweeps"])


def _passed(model: TopicModel, documents: DocumentBatch, passes: int) -> StepwiseEM:
    """Return what passes over the documents make of a model."""
    n, K = documents.n_documents, model.n_components
    settings = pass_settings(n, passes, K)
    settings = replace(annealed(settings, model), smoothing=smoothing_for(documents, K))
    # What was learned of alpha with topics that overlap holds them there.
    alpha = np.full_like(model.alpha, model.alpha.mean())
    stepwise = StepwiseEM(model.components, alpha, model.background, settings)
    with progress("refinement passes", passes) as advance:
        for _ in range(passes):
            stepwise.add(documents)
            advance(1)
    stepwise.flush()
    return stepwise


def _collapsed(
    model: TopicModel, documents: DocumentBatch, passes: int, thorough: bool
) -> CollapsedVariational:
    """Return what passes and collapsed sweeps make of few documents."""
    alpha = np.full_like(model.alpha, model.alpha.mean())
    passed = _passed(model, documents, passes)
    sweeps = sweeps_for(thorough)
    found = CollapsedVariational(
        documents,
        passed.components,
        alpha,
        seeds=model.seeds,
        relaxation=sweeps.relaxation,
    )
    found.sweep(sweeps.before)
    return found


def most_prevalent_first(
    model: TopicModel, samples: Samples, *, fit_alpha: bool = True
) -> TopicModel:
    """Return a refined model, measured in samples of its documents, with its topics in order."""
    found = measured(model, samples, fit_alpha=fit_alpha)
    assert found.prevalence is not None
    seeded = len(found.seeds)
    order = [*range(seeded), *(k for k in found.order if k >= seeded)]
    known = dict(found.diagnostics)
    if known["topic_npmi"] is not None:
        known["topic_npmi"] = [known["topic_npmi"][k] for k in order]
    start = known["refinement"]["start_topics"]
    known["refinement"] = {**known["refinement"], "start_topics": [start[k] for k in order]}
    found = replace(
        found,
        components=found.components[order],
        alpha=found.alpha[order],
        prevalence=found.prevalence[order],
        diagnostics=known,
    )
    return warn_of_background(found)


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
