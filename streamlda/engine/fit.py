"""Topics of documents in memory, and an engine that goes on from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.measures import Measures, of_one_interval
from streamlda.engine.refining import needed_passes
from streamlda.engine.settings import EngineSettings
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.refine import refined

#: The spectral topics that are refined over all documents are those of the first 20,000. On
#: 195,000 abstracts (K = 50, one pass, medians of five seeds) perplexity was 1380 with 20,000 and
#: 1371 with 30,000, NPMI 0.183 and 0.184; the start is a third of the time of a fit.
START_DOCUMENTS = 20_000


def fit(
    settings: EngineSettings,
    documents: DocumentBatch,
    passes: int | None = None,
    gibbs_sweeps: int = 0,
) -> tuple[Engine, TopicModel]:
    """Return topics of documents in memory, and an engine that goes on from there.

    If the settings refine, spectral topics of the first `START_DOCUMENTS` are refined over all
    documents, in `passes` (`needed_passes` by default) and Gibbs sweeps, for which counts must be
    integers. Without passes, or where documents follow the model, spectral topics are those of all
    documents. If the settings do not refine, the model alone is refined, by the passes and sweeps
    that are given; the engine goes on from the spectral topics.
    """
    seed = settings.seed % 2**63
    if not settings.refines:
        engine = Engine(settings)
        engine.add(documents)
        model = engine.snapshot()
        engine.measures.restart(None)
        much = {"passes": passes or 0, "gibbs_sweeps": gibbs_sweeps}
        return engine, of_one_interval(refined(model, documents, **much, seed=seed))
    n = int(np.count_nonzero(documents.usable))
    start = documents.end_of(START_DOCUMENTS) if n > START_DOCUMENTS else len(documents)
    engine = Engine.of_rounds(settings)
    engine.add(documents.rows(0, start))
    model = engine.snapshot()
    passes = needed_passes(model, n) if passes is None else passes
    if not passes:
        if start < len(documents):
            engine.add(documents.rows(start, len(documents)))
            model = engine.snapshot()
        if not gibbs_sweeps and n < settings.warmup_documents:
            # More documents may still make a refinement worth while.
            engine = Engine(settings)
            engine.add(documents)
        if not gibbs_sweeps:
            engine.measures.restart(None)
            return engine, model
    if passes and start < len(documents):
        model = _of_all(model, documents)
    model = refined(model, documents, passes=passes, gibbs_sweeps=gibbs_sweeps, seed=seed)
    measures = Measures()
    measures.add(documents)
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
