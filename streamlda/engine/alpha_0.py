"""Check the estimate of alpha_0 on documents set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import best_predicting, refutes
from streamlda.spectral.topics import ESTIMATE, LEAST_TOPICS

#: Values of alpha_0 that are tried where moments do not depend on it, with two topics, and how wide
#: a range of them is one value. Of 2000 documents with alpha_0 = 5, topics made with 5 had an error
#: of 0.04, with 1 of 0.39, which predicted worse by 3 standard errors. From 20 on documents set
#: aside say less: all values from 5 on may predict alike.
ALPHA_0S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
WIDEST_RANGE = 5

#: What alpha_0 is where its estimate is refuted: it suits most text.
USUAL_ALPHA_0 = 1.0

#: Spectral topics for each alpha_0, None for the estimate, of documents other than those set aside.
Models = Callable[[Iterable[float | None]], Iterator[TopicModel]]


def tested_alpha_0(models: Models, n_topics: int, aside: DocumentBatch) -> dict[str, Any] | None:
    """Return the alpha_0 that documents set aside prefer, and its worth; None: the estimate holds.

    A single topic has none to estimate.
    """
    if n_topics < 2 or not aside.n_documents:
        return None
    return (_predicting if n_topics < LEAST_TOPICS else _refuted)(models, aside)


def with_estimate(model: TopicModel, estimate: dict[str, Any] | None) -> TopicModel:
    """Return a model that says what its alpha_0 is worth, if that was tested."""
    if estimate is None or model.diagnostics.get(ESTIMATE) == estimate:
        return model
    known = {**model.diagnostics, ESTIMATE: estimate}
    if not estimate["identified"]:
        known["warnings"] = [*known["warnings"], estimate["reason"]]
    return replace(model, diagnostics=known)


def _predicting(models: Models, aside: DocumentBatch) -> dict[str, Any]:
    """Return the alpha_0 with which spectral topics predict documents set aside, and its worth.

    Where several do it is the largest: topics are too far apart with less than the true one.
    """
    found = [model.alpha_0 for model in best_predicting(models(ALPHA_0S), aside)]
    low, high = found[0], found[-1]
    reason = None
    if high > WIDEST_RANGE * low:
        reason = (
            "two topics cannot be found without alpha_0, and held-out documents are predicted "
            f"equally well by all values from {low:g} to {high:g}; {high:g} is used; set alpha_0 "
            "to a number"
        )
    return {"value": high, "identified": reason is None, "reason": reason}


def _refuted(models: Models, aside: DocumentBatch) -> dict[str, Any] | None:
    """Return 1 for alpha_0 where documents set aside are predicted worse with its estimate.

    None where the estimate holds. Of 42,000 titles of seven words it was 7.1: with it spectral
    topics had perplexity 3231 on documents set aside, and 2615 with 1.
    """
    estimated, usual = models((None, USUAL_ALPHA_0))
    if not refutes(usual, estimated, aside):
        return None
    reason = (
        f"the estimate of alpha_0, {estimated.alpha_0:g}, predicts held-out documents worse than "
        f"{USUAL_ALPHA_0:g}; {USUAL_ALPHA_0:g} is used"
    )
    return {"value": USUAL_ALPHA_0, "identified": False, "reason": reason}
