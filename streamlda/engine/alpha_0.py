"""Check the estimate of alpha_0 on held-out documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import predicts_better
from streamlda.spectral.topics import ESTIMATE, LEAST_TOPICS

#: What alpha_0 is where its estimate is refuted: it suits most text.
USUAL_ALPHA_0 = 1.0

#: Spectral topics for each alpha_0, None for the estimate, of documents other than those held out.
Models = Callable[[Iterable[float | None]], Iterator[TopicModel]]


def tested_alpha_0(models: Models, n_topics: int, held_out: DocumentBatch) -> dict[str, Any] | None:
    """Return 1 for alpha_0 where held-out documents are predicted worse with its estimate.

    None where the estimate holds, or moments have none. That of short titles does not hold.
    """
    if n_topics < LEAST_TOPICS or not held_out.n_documents:
        return None
    estimated, usual = models((None, USUAL_ALPHA_0))
    if not predicts_better(usual, estimated, held_out):
        return None
    reason = (
        f"the estimate of alpha_0, {estimated.alpha_0:g}, predicts held-out documents worse than "
        f"{USUAL_ALPHA_0:g}; {USUAL_ALPHA_0:g} is used"
    )
    return {"value": USUAL_ALPHA_0, "identified": False, "reason": reason}


def with_estimate(model: TopicModel, estimate: dict[str, Any] | None) -> TopicModel:
    """Return a model that says what its alpha_0 is worth, if that was tested."""
    if estimate is None or model.diagnostics.get(ESTIMATE) == estimate:
        return model
    known = {**model.diagnostics, ESTIMATE: estimate}
    if not estimate["identified"]:
        known["warnings"] = [*known["warnings"], estimate["reason"]]
    return replace(model, diagnostics=known)
