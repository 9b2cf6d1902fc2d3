"""Candidates of a fit, which share all but the alpha_0 that their topics start with.

The first has the alpha_0 given, or 1 where it is to be estimated. Where the prior that fits its
topics says something else, another candidate starts with that; it replaces the first if it predicts
held-out documents better. Where it predicts them worse after its annealed steps, it takes no more.
Of many topics both have one start, unless its topics predict no better than word frequencies.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import Judge, alpha_0_of
from streamlda.refinement.refine import Candidate
from streamlda.spectral.joint_power import MANY_COMPONENTS
from streamlda.spectral.topics import ESTIMATE

#: How many times an alpha_0 the one that fits may be: after passes it is too small by as much.
TIMES = 1.5

#: What alpha_0 is first where it is to be estimated: it suits most text.
USUAL_ALPHA_0 = 1.0


def best_candidate(
    make_start: Callable[[float], TopicModel],
    asked: float | None,
    documents: DocumentBatch,
    held_out: DocumentBatch,
    passes: int,
    total: int = 0,
) -> tuple[Candidate, dict[str, Any] | None]:
    """Return the topics that predict best, and what alpha_0 is worth if it is not the one asked.

    `make_start` returns topics for an alpha_0. In doubt one that was given stays. One that was
    found is fitted again by measurements.
    """

    def make(alpha_0: float, recorded: float | None, known: TopicModel | None = None) -> Candidate:
        if known is None:
            start = make_start(alpha_0)
        else:
            start = replace(known, alpha=known.alpha * (alpha_0 / known.alpha_0))
        start = replace(start, settings={**start.settings, "alpha_0": recorded})
        return Candidate(start, documents, passes, total)

    best, is_found = make(USUAL_ALPHA_0 if asked is None else asked, asked), asked is None
    judge = Judge(held_out, documents)
    # Of a given alpha_0 topics are judged, whatever it says of new documents.
    scored = judge.score if asked is None else judge.find_best_score
    in_doubt, reason, early = is_found, None, scored(best.model)
    score = scored(best.settle().model)
    while best.start.n_components > 1:
        alpha_0, fits = best.start.alpha_0, alpha_0_of(best.model, documents)
        if not (fits > TIMES * alpha_0 or (asked is None and fits < alpha_0 / TIMES)):
            break
        # alpha_0 moves topics of a start along word frequencies alone, one direction of many.
        is_shared = best.start.n_components >= MANY_COMPONENTS and (in_doubt or not is_found)
        is_shared = is_shared and score.is_better_than(judge.score_words())
        other = make(fits, None, best.start if is_shared else None)
        before, early = early, scored(other.model)
        # Topics of a smaller alpha_0 are annealed from flatter ones, and are late.
        stays = fits > alpha_0 and before.is_better_than(early)
        if not stays:
            found = scored(other.settle().model)
            stays = score.is_better_than(found) if in_doubt else not found.is_better_than(score)
        if stays:
            if in_doubt:
                reason = (
                    f"held-out documents are predicted worse with the alpha_0 that fits, {fits:g}, "
                    f"than with {alpha_0:g}, which is used"
                )
                settings = {**best.start.settings, "alpha_0": alpha_0}
                best.start = replace(best.start, settings=settings)
            break
        best, score, in_doubt, is_found = other, found, False, True
    estimate = {"value": best.start.alpha_0, "identified": reason is None, "reason": reason}
    return best, estimate if is_found else None


def with_estimate(model: TopicModel, estimate: dict[str, Any] | None) -> TopicModel:
    """Return a model that says what its alpha_0 is worth, if that was asked of its documents."""
    if estimate is None:
        return model
    known = {**model.diagnostics, ESTIMATE: {**estimate, "value": model.alpha_0}}
    if not estimate["identified"]:
        known["warnings"] = [*known["warnings"], estimate["reason"]]
    return replace(model, diagnostics=known)
