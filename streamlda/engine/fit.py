"""Topics of documents in memory, and an engine that goes on from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.measures import Measures, of_one_interval
from streamlda.engine.refining import LEAST_DOCUMENTS
from streamlda.engine.settings import EngineSettings
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import best_predicting, choice_of, parted
from streamlda.refinement.refine import refined
from streamlda.refinement.schedule import passes_for
from streamlda.spectral.topics import LEAST_TOPICS

#: The spectral topics that are refined over all documents are those of the first 20,000. On
#: 195,000 abstracts (K = 50, one pass, medians of five seeds) perplexity was 1380 with 20,000 and
#: 1371 with 30,000, NPMI 0.183 and 0.184; the start is a third of the time of a fit.
START_DOCUMENTS = 20_000

#: Values of alpha_0 that are tried where moments do not depend on it, with two topics, and how wide
#: a range of them is one value. Of 2000 documents with alpha_0 = 5, topics made with 5 had an error
#: of 0.04, with 1 of 0.39, which predicted worse by 3 standard errors. From 20 on documents set
#: aside say less: all values from 5 on may predict alike.
ALPHA_0S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
WIDEST_RANGE = 5


def fit(
    settings: EngineSettings,
    documents: DocumentBatch,
    passes: int | None = None,
    gibbs_sweeps: int = 0,
) -> tuple[Engine, TopicModel]:
    """Return topics of documents in memory, and an engine that goes on from there.

    If the settings refine, spectral topics of the first `START_DOCUMENTS` are refined over all
    documents, in `passes` and Gibbs sweeps, for which counts must be integers. By default the
    passes are as many as `passes_for` says, and kept only if they predict documents set aside
    better than their start. Two topics whose alpha_0 is to be estimated have the one that predicts
    these documents best. Without passes, or where the start is kept, spectral topics are those of
    all documents. If the settings do not refine, the model alone is refined, by the passes and
    sweeps that are given; the engine goes on from the spectral topics.
    """
    n = int(np.count_nonzero(documents.usable))
    unknown = settings.alpha_0 is None and 1 < settings.n_components < LEAST_TOPICS
    if unknown and settings.refines and n >= LEAST_DOCUMENTS:
        estimate = _predicting(settings, documents)
        settings = replace(settings, alpha_0=estimate["value"])
        engine, model = fit(settings, documents, passes, gibbs_sweeps)
        known = {**model.diagnostics, "alpha_0_estimate": estimate}
        if not estimate["identified"]:
            known["warnings"] = [*known["warnings"], estimate["reason"]]
        return engine, replace(model, diagnostics=known)
    seed = settings.seed % 2**63
    if not settings.refines:
        engine = Engine(settings)
        engine.add(documents)
        model = engine.snapshot()
        engine.measures.restart()
        passes = passes or 0
        model = refined(model, documents, passes=passes, gibbs_sweeps=gibbs_sweeps, seed=seed)
        return engine, of_one_interval(model)
    said: dict[str, Any] = {}
    if passes is None and not gibbs_sweeps and n < settings.warmup_documents:
        # As a stream that ends here; more documents may still make a refinement worth while.
        engine = Engine(settings)
        engine.add(documents)
        model = engine.snapshot()
        engine.measures.restart()
        if "refinement" in model.diagnostics:
            return _going_on(settings, model, engine.measures)
        return engine, model
    measures = Measures.of(documents)
    if passes is None and n >= LEAST_DOCUMENTS:
        learned, aside = parted(documents)
        model = _of_all(_start(settings, learned).unmeasured(), documents)
        beyond = learned.n_documents > START_DOCUMENTS
        model = refined(
            *(model, learned),
            passes=passes_for(learned.n_documents),
            gibbs_sweeps=gibbs_sweeps,
            seed=seed,
            aside=aside,
            rival=(lambda: _summed(settings, learned).unmeasured()) if beyond else None,
            samples=measures.samples,
        )
        if "refinement" in model.diagnostics:
            return _going_on(settings, model, measures)
        said = choice_of(model)
    if passes:
        model = _of_all(_start(settings, documents).unmeasured(), documents)
    else:
        engine = _summed(settings, documents)
        model = engine.unmeasured() if gibbs_sweeps else engine.snapshot()
        model = replace(model, diagnostics={**model.diagnostics, **said})
        if not gibbs_sweeps:
            engine.measures.restart()
            return engine, model
    model = refined(
        *(model, documents),
        passes=passes or 0,
        gibbs_sweeps=gibbs_sweeps,
        seed=seed,
        samples=measures.samples,
    )
    return _going_on(settings, model, measures)


def _predicting(settings: EngineSettings, documents: DocumentBatch) -> dict[str, Any]:
    """Return the alpha_0 with which spectral topics predict documents set aside, and its worth.

    Where several do it is the largest: topics are too far apart with less than the true one.
    """
    learned, aside = parted(documents.rows(0, documents.end_of(START_DOCUMENTS)))
    engine = _summed(replace(settings, alpha_0=1.0), learned)
    found = [model.alpha_0 for model in best_predicting(engine.with_alpha_0(ALPHA_0S), aside)]
    low, high = found[0], found[-1]
    reason = None
    if high > WIDEST_RANGE * low:
        reason = (
            f"alpha_0 must be known for two topics to be, and documents set aside tell none from "
            f"{low:g} to {high:g} apart; it is taken as {high:g}; set alpha_0 to a number"
        )
    return {"value": high, "identified": reason is None, "reason": reason}


def _summed(settings: EngineSettings, documents: DocumentBatch) -> Engine:
    """Return an engine with the sums of all documents."""
    engine = Engine.of_rounds(settings)
    engine.add(documents)
    return engine


def _start(settings: EngineSettings, documents: DocumentBatch) -> Engine:
    """Return an engine with the sums of the first `START_DOCUMENTS`."""
    return _summed(settings, documents.rows(0, documents.end_of(START_DOCUMENTS)))


def _going_on(
    settings: EngineSettings, model: TopicModel, measures: Measures
) -> tuple[Engine, TopicModel]:
    """Return an engine that goes on from a refined model and its measures, and the model."""
    return Engine.of_model(settings, model, measures), of_one_interval(model)


def _of_all(model: TopicModel, documents: DocumentBatch) -> TopicModel:
    """Return a model of the first documents with the counts and frequencies of all of them."""
    weights = np.where(documents.usable, 1 / np.maximum(documents.lengths, 1), 0.0)
    frequencies = documents.to_csr().T @ weights
    used = int(documents.usable.sum())
    return replace(
        model,
        background=frequencies / frequencies.sum(),
        diagnostics={**model.diagnostics, "documents_skipped": documents.n_documents - used},
        documents_seen=used,
        tokens_seen=int(documents.lengths.sum()),
    )
