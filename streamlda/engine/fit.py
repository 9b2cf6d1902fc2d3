"""Topics of documents in memory: spectral ones of the first, refined over all of them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.alpha_0 import best_candidate, with_estimate
from streamlda.engine.phase import Counters, Phase, learn_rows
from streamlda.engine.power import OnlineRounds
from streamlda.engine.projections import WARMUP_MAX_ENTRIES, warmup_end
from streamlda.engine.refining import LEAST_DOCUMENTS, Refinement
from streamlda.engine.rounds import KeptRound, Rounds, by_documents
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import choice_of, choose_model, hold_out_once
from streamlda.refinement.measures import Samples
from streamlda.refinement.refine import can_draw, refine_model
from streamlda.refinement.schedule import SWEEPS, THOROUGH, THOROUGH_TIMES, Passes, passes_for
from streamlda.spectral.joint_power import MANY_COMPONENTS
from streamlda.spectral.topics import ESTIMATE
from streamlda.utils.progress import progress
from streamlda.utils.threads import one_blas_thread

#: The spectral topics that are refined over all documents are those of the first 20,000: more of
#: them gain little, and the start is a third of the time of a fit.
START_DOCUMENTS = 20_000

#: Equal documents are learned until they are this part of the documents of a mean topic: mail
#: templates make no topics then, and threads of one subject hardly lose any.
COPIES_PART = 1 / 25


def fit(
    settings: EngineSettings,
    documents: DocumentBatch,
    passes: Passes = None,
    samples: Callable[[], Samples] | None = None,
) -> tuple[Phase, TopicModel]:
    """Return topics of documents in memory, and the phase that continues from there.

    By default, and for thorough fits, spectral topics of the first `START_DOCUMENTS` are refined
    over all documents: by the passes of `passes_for`, with an alpha_0 that suits them
    (`best_candidate`), and by sweeps. Many topics have passes over a part of them
    (`documents_of_passes`). They are kept only if they predict held-out documents better
    than their start. Where `passes` are a number, there are these alone. Without passes, or where
    the start is kept, spectral topics are those of all documents, and the model has not been
    measured; many topics continue by likelihood nevertheless, for their triple sums would take
    gigabytes. Equal documents are learned a few times only (`COPIES_PART`).
    """
    counters = Counters()
    counters.count(documents)
    counters.require_documents()
    n, said, estimate = counters.documents_seen, dict[str, Any](), None
    samples = samples or partial(Samples.of, documents)
    automatic, times = not isinstance(passes, int), THOROUGH_TIMES if passes == THOROUGH else 1
    if automatic and n >= LEAST_DOCUMENTS:
        most = max(1, int(COPIES_PART * n / settings.n_components))
        known, held_out = hold_out_once(documents, most)
        read = documents_of_passes(known, settings.n_components)
        make_start = _starts(settings, known, documents)
        # Twice at least, for topics are flattened over half of the steps.
        passes = times * max(2, passes_for(len(read)))
        total = 0 if read is known else len(known)
        given = settings.alpha_0, read, held_out, passes, total
        found, estimate = best_candidate(make_start, *given)
        # With the sums that starts are made of.
        del make_start
        found.sweep(known, times * SWEEPS, settings.seed % 2**63)
        start, kept = choose_model(found.start, found.model, held_out, known)
        if kept:
            found.start = start
            found.learn(held_out)
            model = with_estimate(found.end(samples), estimate)
            del start, found
            return Refinement.of_model(settings, counters, model), model
        # One that was given holds where the start is kept.
        asked = estimate is not None and settings.alpha_0 is None
        said = choice_of(start) | ({ESTIMATE: estimate} if asked else {})
    elif isinstance(passes, int) and passes:
        start = _starts(settings, documents, documents)(settings.working_alpha_0)
        start = replace(start, settings={**start.settings, "alpha_0": settings.alpha_0})
        model = refine_model(start, documents, passes=passes, samples=samples)
        return Refinement.of_model(settings, counters, model), model
    if by_documents(settings):
        model = _make_model(_sum_kept(settings, documents, said))
        return Refinement.of_model(settings, counters, model), model
    phase = sum_documents(settings, documents)
    if isinstance(phase, Rounds):
        phase = replace(phase, choice=said)
    model = _make_model(phase)
    return phase, replace(model, diagnostics={**model.diagnostics, **said})


def documents_of_passes(documents: DocumentBatch, n_topics: int) -> DocumentBatch:
    """Return the documents that passes before sweeps over all read.

    Of many topics that a sampler alone moves they are every n-th one, `START_DOCUMENTS` at least,
    with half a token for each word of each topic: more of them gain nothing that a sweep does not.
    """
    n, tokens = len(documents), float(documents.lengths.sum())
    parts = min(int(2 * tokens / (n_topics * documents.n_features)), n // START_DOCUMENTS)
    is_drawn = tokens < n_topics * n and can_draw(documents, n_topics)
    if n_topics < MANY_COMPONENTS or parts < 2 or not is_drawn:
        return documents
    return documents.sharing(np.arange(n) % parts == 0)


def sum_documents(settings: EngineSettings, documents: DocumentBatch) -> Phase:
    """Return rounds over all documents, whose first projection is of a warm-up."""
    counters, n = Counters(), documents.n_documents
    # An online solver reads documents in memory again, until it has found all topics.
    again = settings.solver != WHITENED_TENSOR
    end = n if again else warmup_end(documents, 0, settings.warmup_documents)
    first = documents.rows(0, end)
    with one_blas_thread(), progress("documents", n) as advance:
        phase = begin_rounds(settings, counters, first, ended=again)
        counters.count(first)
        phase = learn_rows(phase.next(), documents.rows(end, n))
        advance(n)
    return phase


def begin_rounds(
    settings: EngineSettings, counters: Counters, documents: DocumentBatch, *, ended: bool = False
) -> Phase:
    """Return the first round after the documents of a warm-up, which may be too few to fill it."""
    if settings.solver == WHITENED_TENSOR:
        return Rounds.begin(settings, counters, documents)
    full = documents.n_documents >= settings.warmup_documents
    full = full or documents.n_entries >= WARMUP_MAX_ENTRIES
    return OnlineRounds.begin(settings, counters, documents, ending=ended or not full)


def _make_model(phase: Phase) -> TopicModel:
    with one_blas_thread():
        return phase.snapshot()


def _starts(
    settings: EngineSettings, known: DocumentBatch, documents: DocumentBatch
) -> Callable[[float], TopicModel]:
    """Return a function from alpha_0 to a start of known documents, which counts all documents."""
    make_start = starts(settings, known)
    return lambda alpha_0: _of_all(make_start(alpha_0), documents)


def starts(settings: EngineSettings, documents: DocumentBatch) -> Callable[[float], TopicModel]:
    """Return a function from alpha_0 to the spectral model of the first `START_DOCUMENTS`."""
    end = documents.find_end(START_DOCUMENTS)
    # Shared, so that no more of them are copied at a time than are looked at.
    first = documents.sharing(np.arange(documents.n_documents) < end)
    if settings.solver != WHITENED_TENSOR:
        return lambda alpha_0: _online_start(replace(settings, alpha_0=alpha_0), first)
    # One sum, whatever alpha_0.
    if by_documents(settings):
        phase: Phase = _sum_kept(settings, first, {})
    else:
        phase = sum_documents(settings, first)
        for moments in phase.rounds():
            moments.narrow()
    return lambda alpha_0: _make_model(replace(phase, settings=replace(settings, alpha_0=alpha_0)))


def _sum_kept(
    settings: EngineSettings, documents: DocumentBatch, said: dict[str, Any]
) -> KeptRound:
    counters = Counters()
    counters.count(documents)
    with one_blas_thread():
        return KeptRound.of_documents(settings, counters, documents, said)


def _online_start(settings: EngineSettings, first: DocumentBatch) -> TopicModel:
    phase = sum_documents(settings, first)
    assert isinstance(phase, OnlineRounds)
    # A round that has not ended is in no topic; its sums make room.
    phase.power.association.begin(phase.power.method.probes)
    return _make_model(phase)


def _of_all(model: TopicModel, documents: DocumentBatch) -> TopicModel:
    """Return a model of the first documents with the counts and frequencies of all of them."""
    frequencies = np.zeros(documents.n_features)
    for part in documents.blocks():
        weights = np.where(part.nonempty, 1 / np.maximum(part.lengths, 1), 0.0)
        shares = part.counts * np.repeat(weights, np.diff(part.row_pointers))
        np.add.at(frequencies, part.word_ids, shares)
    used = int(documents.usable.sum())
    return replace(
        model,
        background=frequencies / frequencies.sum(),
        diagnostics={**model.diagnostics, "documents_skipped": documents.n_documents - used},
        documents_seen=used,
        tokens_seen=int(documents.lengths.sum()),
    )
