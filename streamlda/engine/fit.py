"""Topics of documents in memory: spectral ones of the first, refined over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.alpha_0 import tested_alpha_0, with_estimate
from streamlda.engine.phase import Counters, Phase, learned
from streamlda.engine.power import OnlineRounds
from streamlda.engine.refining import LEAST_DOCUMENTS, Refinement
from streamlda.engine.rounds import KeptRound, Rounds, by_documents
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.engine.warmup import WARMUP_MAX_ENTRIES, warmup_end
from streamlda.kernels.words import add_words
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import (
    choice_of,
    hold_out,
    predicts_better,
    refutes_alpha_0,
    spread,
)
from streamlda.refinement.measures import Samples
from streamlda.refinement.refine import refined
from streamlda.refinement.schedule import QUICK, THOROUGH, Passes, passes_for, rounds_for
from streamlda.spectral.topics import ESTIMATE, LEAST_TOPICS
from streamlda.utils.progress import progress
from streamlda.utils.threads import one_blas_thread

#: The spectral topics that are refined over all documents are those of the first 20,000: more of
#: them gain little, and the start is a third of the time of a fit.
START_DOCUMENTS = 20_000


def fit(
    settings: EngineSettings,
    documents: DocumentBatch,
    passes: Passes = None,
    samples: Callable[[], Samples] | None = None,
) -> tuple[Phase, TopicModel]:
    """Return topics of documents in memory, and the phase that continues from there.

    They are those of `_fit`. Where the documents refute alpha_0, those of an alpha_0 that is
    estimated replace them, unless they predict held-out documents worse, which both have learned
    at last. Moments of two topics have no estimate.
    """
    given = _fit(settings, documents, passes, samples)
    model = given[1]
    asked = settings.alpha_0
    if asked is None or settings.n_components < LEAST_TOPICS or not refutes_alpha_0(model, asked):
        return given
    free = replace(settings, alpha_0=None)
    phase, other = _fit(free, documents, passes, samples)
    n = int(documents.usable.sum())
    if predicts_better(model, other, hold_out(documents, numbers=spread(n))[1]):
        return given
    estimate = {
        "value": other.alpha_0,
        "identified": True,
        "reason": f"the topics of alpha_0={asked:g} fit documents with a larger one",
    }
    other = with_estimate(other, estimate)
    if isinstance(phase, Rounds):
        return replace(phase, settings=settings, choice=phase.choice | {ESTIMATE: estimate}), other
    return Refinement.of_model(settings, phase.counters, other), other


def _fit(
    settings: EngineSettings,
    documents: DocumentBatch,
    passes: Passes,
    samples: Callable[[], Samples] | None,
) -> tuple[Phase, TopicModel]:
    """Return topics of documents in memory, and the phase that continues from there.

    Spectral topics of the first `START_DOCUMENTS` are refined over all documents, in `passes`. By
    default (and for thorough fits) there are the passes of `passes_for` and the sweeps of
    `rounds_for`, for which counts must be integers; quick fits have no sweeps. Refined
    topics are kept only if they predict held-out documents better than their start. Without
    passes, or where the start is kept, spectral topics are those of all documents, and the model
    has not been measured. An alpha_0 to be estimated is tested on the held-out documents
    (`tested_alpha_0`).
    """
    asked, estimate, counters = settings, None, Counters()
    counters.count(documents)
    counters.require_documents()
    n = counters.documents_seen
    if settings.alpha_0 is None and n >= LEAST_DOCUMENTS:
        first, held_out = hold_out(documents.rows(0, documents.find_end(START_DOCUMENTS)))
        # An online solver takes alpha_0 while documents are read: it cannot estimate it.
        sums = summed(replace(settings, solver=WHITENED_TENSOR), first)

        def models(values: Iterable[float | None]) -> Iterator[TopicModel]:
            return with_alpha_0(sums, values)

        estimate = tested_alpha_0(models, settings.n_components, held_out)
        if estimate is None and settings.solver != WHITENED_TENSOR:
            estimate = _unmeasured(sums).diagnostics[ESTIMATE]
        if estimate is not None:
            settings = replace(settings, alpha_0=estimate["value"])
    seed, quick, thorough = settings.seed % 2**63, passes == QUICK, passes == THOROUGH
    automatic, said = passes is None or isinstance(passes, str), dict[str, Any]()
    model = None
    if automatic and n >= LEAST_DOCUMENTS:
        known, held_out = hold_out(documents, numbers=spread(n), shared=True)
        model = with_estimate(_of_all(make_start(settings, known), documents), estimate)
        # With many topics the sums of all documents would take longer than all the rest.
        beyond = known.n_documents > START_DOCUMENTS and not by_documents(settings)
        rounds = None if quick else rounds_for(known, settings.n_components, thorough)
        model = refined(
            *(model, known),
            passes=passes_for(known.n_documents, settings.n_components, thorough),
            rounds=rounds,
            thorough=thorough,
            quick=quick,
            seed=seed,
            held_out=held_out,
            rival=(lambda: _unmeasured(summed(settings, known))) if beyond else None,
            samples=samples,
        )
        said = choice_of(model)
    passes = 0 if isinstance(passes, str) else passes or 0
    if model is None or "refinement" not in model.diagnostics:
        if passes:
            model = _of_all(make_start(settings, documents), documents)
            model = refined(model, documents, passes=passes, seed=seed, samples=samples)
            model = with_estimate(model, estimate)
        else:
            if settings.solver != WHITENED_TENSOR:
                # It continues with the alpha_0 that was asked for, or 1.
                phase = summed(asked, documents)
                model = _unmeasured(phase)
                return phase, replace(model, diagnostics={**model.diagnostics, **said})
            said |= {} if estimate is None else {ESTIMATE: estimate}
            rounds_of_all = summed(settings, documents)
            assert isinstance(rounds_of_all, Rounds)
            phase = replace(rounds_of_all, settings=asked, choice=said)
            return phase, _unmeasured(phase)
    return Refinement.of_model(asked, counters, model), model


def summed(settings: EngineSettings, documents: DocumentBatch) -> Phase:
    """Return rounds over all documents, whose first projection is of a warm-up."""
    counters, n = Counters(), documents.n_documents
    # An online solver reads documents in memory again, until it has found all topics.
    again = settings.solver != WHITENED_TENSOR
    end = n if again else warmup_end(documents, 0, settings.warmup_documents)
    first = documents.rows(0, end)
    with one_blas_thread(), progress("documents", n) as advance:
        phase = begun(settings, counters, first, ended=again)
        counters.count(first)
        phase = learned(phase.next(), documents.rows(end, n))
        advance(n)
    return phase


def begun(
    settings: EngineSettings, counters: Counters, documents: DocumentBatch, *, ended: bool = False
) -> Phase:
    """Return the first round after the documents of a warm-up, which may be too few to fill it."""
    if settings.solver == WHITENED_TENSOR:
        return Rounds.begun(settings, counters, documents)
    full = documents.n_documents >= settings.warmup_documents
    full = full or documents.n_entries >= WARMUP_MAX_ENTRIES
    return OnlineRounds.begun(settings, counters, documents, ending=ended or not full)


def with_alpha_0(phase: Phase, values: Iterable[float | None]) -> Iterator[TopicModel]:
    """Return the models of a phase for each alpha_0 (None: estimated)."""
    for alpha_0 in values:
        yield _unmeasured(replace(phase, settings=replace(phase.settings, alpha_0=alpha_0)))


def _unmeasured(phase: Phase) -> TopicModel:
    with one_blas_thread():
        return phase.snapshot()


def make_start(settings: EngineSettings, documents: DocumentBatch) -> TopicModel:
    """Return the spectral model of the first `START_DOCUMENTS`."""
    end = documents.find_end(START_DOCUMENTS)
    # Shared, so that no more of them are copied at a time than are looked at.
    first = documents.sharing(np.arange(documents.n_documents) < end)
    if settings.solver != WHITENED_TENSOR or not by_documents(settings):
        return _unmeasured(summed(settings, first))
    counters = Counters()
    counters.count(first)
    with one_blas_thread():
        return KeptRound.of_documents(settings, counters, first).snapshot()


def _of_all(model: TopicModel, documents: DocumentBatch) -> TopicModel:
    """Return a model of the first documents with the counts and frequencies of all of them."""
    frequencies = np.zeros(documents.n_features)
    for part in documents.blocks():
        weights = np.where(part.known, 1 / np.maximum(part.lengths, 1), 0.0)
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
