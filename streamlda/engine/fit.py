"""Topics of documents in memory, and an engine that goes on from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.alpha_0 import tested_alpha_0, with_estimate
from streamlda.engine.engine import Engine
from streamlda.engine.measures import Measures, of_one_interval
from streamlda.engine.phase import Counters
from streamlda.engine.refining import LEAST_DOCUMENTS
from streamlda.engine.rounds import Rounds, by_documents
from streamlda.engine.settings import EngineSettings
from streamlda.kernels.words import add_words
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import any_alpha_0, choice_of, parted, spread
from streamlda.refinement.refine import refined
from streamlda.refinement.schedule import QUICK, THOROUGH, Passes, passes_for, rounds_for
from streamlda.utils.process import return_freed_memory
from streamlda.utils.threads import one_blas_thread

#: The spectral topics that are refined over all documents are those of the first 20,000. On
#: 195,000 abstracts (K = 50, one pass, medians of five seeds) perplexity was 1380 with 20,000 and
#: 1371 with 30,000, NPMI 0.183 and 0.184; the start is a third of the time of a fit.
START_DOCUMENTS = 20_000


def fit(
    settings: EngineSettings,
    documents: DocumentBatch,
    passes: Passes = None,
    gibbs_sweeps: int = 0,
) -> tuple[Engine, TopicModel]:
    """Return topics of documents in memory, and an engine that goes on from there.

    If the settings refine, spectral topics of the first `START_DOCUMENTS` are refined over all
    documents, in `passes` and Gibbs sweeps, for which counts must be integers. By default (and for
    thorough fits) there are the passes of `passes_for` and the sweeps of `rounds_for`; quick fits
    have no sweeps. Refined topics are kept only if they predict documents set
    aside better than their start. Without passes, or where the start is kept, spectral topics are
    those of all documents. An alpha_0 to be estimated is tested on the documents set aside
    (`tested_alpha_0`). If the settings do not refine, the model alone is refined, by the passes and
    sweeps that are given; the engine goes on from the spectral topics.
    """
    n, estimate = int(np.count_nonzero(documents.usable)), None
    if settings.alpha_0 is None and settings.refines and n >= LEAST_DOCUMENTS:
        learned, aside = parted(documents.rows(0, documents.end_of(START_DOCUMENTS)))

        def models(values: Iterable[float | None]) -> Iterator[TopicModel]:
            return _summed(settings, learned).with_alpha_0(values)

        if estimate := tested_alpha_0(models, settings.n_components, aside):
            settings = replace(settings, alpha_0=estimate["value"])
    engine, model = _fitted(settings, documents, passes, gibbs_sweeps, estimate)
    return engine, with_estimate(model, estimate)


def _fitted(
    settings: EngineSettings,
    documents: DocumentBatch,
    passes: Passes,
    gibbs_sweeps: int,
    estimate: dict[str, Any] | None,
) -> tuple[Engine, TopicModel]:
    """Return what `fit` does, where alpha_0 is known, or its `estimate` was tested."""
    n = int(np.count_nonzero(documents.usable))
    seed, quick, thorough = settings.seed % 2**63, passes == QUICK, passes == THOROUGH
    passes = None if isinstance(passes, str) else passes
    if not settings.refines:
        engine = Engine(settings)
        engine.add(documents)
        model = engine.snapshot()
        engine.measures.restart()
        passes = passes or 0
        model = refined(model, documents, passes=passes, gibbs_sweeps=gibbs_sweeps, seed=seed)
        return engine, of_one_interval(model)
    said: dict[str, Any] = {}
    # An engine would not know that alpha_0 is one of several.
    early = n < settings.warmup_documents and not any_alpha_0(settings.n_components, estimate)
    if passes is None and not (gibbs_sweeps or thorough or quick) and early:
        # As a stream that ends here; more documents may still make a refinement worth while.
        engine = Engine(settings)
        engine.add(documents)
        model = engine.snapshot()
        engine.measures.restart()
        if "refinement" in model.diagnostics:
            return _going_on(settings, model, engine.measures)
        return engine, model

    @cache
    def measures() -> Measures:
        # Only when topics are ready to be measured: samples take memory.
        return_freed_memory()
        return Measures.of(documents)

    if passes is None and n >= LEAST_DOCUMENTS:
        learned, aside = parted(documents, numbers=spread(n), shared=True)
        model = with_estimate(_of_all(_start(settings, learned), documents), estimate)
        # With many topics the sums of all documents would take longer than all the rest.
        beyond = learned.n_documents > START_DOCUMENTS and not by_documents(settings)
        sweeps = not (quick or gibbs_sweeps)
        rounds = rounds_for(learned, settings.n_components, thorough) if sweeps else None
        model = refined(
            *(model, learned),
            passes=passes_for(learned.n_documents, thorough, rounds is not None),
            rounds=rounds,
            thorough=thorough,
            quick=quick,
            gibbs_sweeps=gibbs_sweeps,
            seed=seed,
            aside=aside,
            rival=(lambda: _summed(settings, learned).unmeasured()) if beyond else None,
            samples=lambda: measures().samples,
        )
        if "refinement" in model.diagnostics:
            return _going_on(settings, model, measures())
        said = choice_of(model)
    if passes:
        model = _of_all(_start(settings, documents), documents)
    else:
        engine = _summed(settings, documents)
        if not gibbs_sweeps:
            engine.measures.add(documents)
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
        samples=lambda: measures().samples,
    )
    return _going_on(settings, model, measures())


def _summed(settings: EngineSettings, documents: DocumentBatch) -> Engine:
    """Return an engine with the sums of all documents, which has measured none of them."""
    engine = Engine.of_rounds(settings)
    engine.learn(documents)
    return engine


def _start(settings: EngineSettings, documents: DocumentBatch) -> TopicModel:
    """Return the spectral model of the first `START_DOCUMENTS`."""
    end = documents.end_of(START_DOCUMENTS)
    # Shared, so that no more of them are copied at a time than are looked at.
    first = documents.sharing(np.arange(documents.n_documents) < end)
    if not by_documents(settings):
        return _summed(settings, first).unmeasured()
    seen = int(np.count_nonzero(first.usable))
    counters = Counters(seen, first.n_documents - seen, int(first.lengths.sum()))
    with one_blas_thread():
        return Rounds.begun(settings, counters, first).start()


def _going_on(
    settings: EngineSettings, model: TopicModel, measures: Measures
) -> tuple[Engine, TopicModel]:
    """Return an engine that goes on from a refined model and its measures, and the model."""
    return Engine.of_model(settings, model, measures), of_one_interval(model)


def _of_all(model: TopicModel, documents: DocumentBatch) -> TopicModel:
    """Return a model of the first documents with the counts and frequencies of all of them."""
    frequencies = np.zeros(documents.n_features)
    for part in documents.blocks():
        weights = np.where(part.usable, 1 / np.maximum(part.lengths, 1), 0.0)
        shares = part.counts * np.repeat(weights, np.diff(part.row_pointers))
        add_words(shares, part.word_ids, frequencies)
    used = int(documents.usable.sum())
    return replace(
        model,
        background=frequencies / frequencies.sum(),
        diagnostics={**model.diagnostics, "documents_skipped": documents.n_documents - used},
        documents_seen=used,
        tokens_seen=int(documents.lengths.sum()),
    )
