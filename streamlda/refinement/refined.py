"""A topic model refined over documents that are at hand: passes of steps, then sweeps.

`passes_for` and `sweeps_for` say how many suit so many documents. Medians of three seeds (five of
kos and of what has sweeps on 20 newsgroups, two of tomotopy on the abstracts), V = 8000 (kos 6874),
against 200 sweeps of tomotopy, which starts at random; time is processor time of one thread with
the spectral start, as a share of tomotopy's:

============= ========= == =================== ========== ===== ========= ====
corpus        documents K  topics              perplexity NPMI  diversity time
============= ========= == =================== ========== ===== ========= ====
kos           3087      20 spectral            1883       0.202 0.61      1/20
..                         5 passes            1660       0.211 0.70      1/9
..                         tomotopy            1718       0.200 0.68      1
20 newsgroups 16,962    20 spectral            1350       0.207 0.72      1/50
..                         8 passes            1018       0.291 0.75      1/12
..                         8 passes, 20 sweeps 1021       0.302 0.77      1/5
..                         tomotopy            1022       0.297 0.82      1
abstracts     195,000   50 spectral            1648       0.169 0.45      1/80
..                         1 pass              1385       0.176 0.81      1/80
..                         2 passes            1368       0.183 0.77      1/40
..                         2 passes, 10 sweeps 1317       0.177 0.72      1/14
..                         tomotopy            1285       0.176 0.64      1
============= ========= == =================== ========== ===== ========= ====

Spectral rows are one seed. Coherence differs by 0.005 (abstracts) to 0.015 (20 newsgroups) between
seeds, more than most settings change it.
"""

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

#: Topics are the mean of so many last sweeps, or of the last third if these are more; the sweeps
#: before only bring the sampler there.
AVERAGED_SWEEPS = 3

#: Steps of a pass, and the fewest and most documents of one: a small corpus has fewer steps a pass
#: and a large one more.
STEPS_PER_PASS = 100
FEWEST_DOCUMENTS, MOST_DOCUMENTS = 30, 1000

#: A corpus with fewer documents is annealed more gently, and takes no sweeps: the statistic of few
#: documents is noisy, which anneals by itself, and draws of few tokens are noisier than means.
SMALL_CORPUS = 10_000

#: Sweeps that suit a corpus that is neither small nor large; a large one needs none.
SWEEPS, LARGE_CORPUS = 20, 50_000

#: Steps that the passes over a small corpus make up, over a large one, and over others; the most
#: passes; and from how many documents on one is enough.
SMALL_STEPS, LARGE_STEPS, STEPS, MOST_PASSES = 500, 400, 800, 20
ONE_PASS_DOCUMENTS = 150_000

#: Share of the background in the topics of the first step, and steps until it is 0 (half of all
#: steps, if these are fewer: topics that are still held near the background at the end were never
#: sharp). A single E-step is cut short after so many sweeps: shares that are
#: not yet sharp make topics more coherent, at the cost of a percent of perplexity.
ANNEALING, SMALL_ANNEALING, ANNEALING_STEPS = 0.8, 0.6, 200
START_FLATNESS, E_STEPS = 0.5, 3

#: Over a corpus that is large enough for one pass, the first steps are as long as can be, more of
#: the background stays at first, and up to three quarters of the steps are annealed.
ONE_PASS_STEPS = {"step_offset": 1.0, "step_exponent": 0.65, "annealing": 0.85, "sweeps": 4}
ANNEALED, ONE_PASS_ANNEALED = 0.5, 0.75

#: With fewer steps in all, topics may end nearer to the background than they began.
LEAST_STEPS = 100

#: Members of the diagnostics of a spectral fit with a number for each topic.
_BY_TOPIC = ("eigenvalues", "eigenvalue_noise", "topic_supported")


def passes_for(n_documents: int) -> int:
    """Return how many passes over so many documents topics need: those that make so many steps.

    500 below 10,000 documents, which are five passes, and below 3000 documents, of which a step
    takes 30, up to twenty; 800 below 50,000, which are eight passes; 400 beyond, which are four
    over 100,000. One pass is made from 150,000 on.
    """
    if n_documents >= ONE_PASS_DOCUMENTS:
        return 1
    if n_documents < SMALL_CORPUS:
        wanted = SMALL_STEPS
    else:
        wanted = STEPS if n_documents < LARGE_CORPUS else LARGE_STEPS
    passes = round(wanted * _step_documents(n_documents) / max(n_documents, 1))
    return min(max(passes, 1), MOST_PASSES)


def sweeps_for(n_documents: int) -> int:
    """Return how many sweeps after `passes_for` pay: 20 from 10,000 to 50,000 documents, else 0.

    They make topics more coherent, and take about twice as long as the passes. In a smaller
    corpus, or a larger one, what they add to coherence is less than what two seeds differ by; over
    200,000 documents ten of them still lower perplexity by 4 %.
    """
    return SWEEPS if SMALL_CORPUS <= n_documents < LARGE_CORPUS else 0


def refined(
    model: TopicModel, documents: DocumentBatch, *, passes: int = 0, sweeps: int = 0, seed: int = 0
) -> TopicModel:
    """Return a spectral model with topics of higher likelihood; the model given stays as it is.

    First `Refinement` goes over the documents `passes` times, in steps of a hundredth of them
    (30 at least, 1000 at most), annealed over half of all steps but no more than 200. Then
    `Resampling` draws topics of all tokens `sweeps` times, and makes the topics of the mean of the
    last three sweeps, or the last third; alpha follows them. Documents of fewer than 3 tokens are
    passed over, as the engine does. Equal arguments give equal results for any number of threads.

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
    documents = documents.where(documents.usable)
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
        averaged = min(max(AVERAGED_SWEEPS, sweeps // 3), sweeps)
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


def _step_documents(n_documents: int) -> int:
    return min(max(n_documents // STEPS_PER_PASS, FEWEST_DOCUMENTS), MOST_DOCUMENTS)


def _steps_of(n_documents: int, passes: int) -> RefinementSettings:
    size = _step_documents(n_documents)
    steps = -(-passes * n_documents // size)
    annealed, given = ANNEALED, {"annealing": ANNEALING, "sweeps": E_STEPS}
    if n_documents < SMALL_CORPUS:
        given["annealing"] = SMALL_ANNEALING
    elif n_documents >= ONE_PASS_DOCUMENTS:
        annealed, given = ONE_PASS_ANNEALED, ONE_PASS_STEPS
    return RefinementSettings(
        batch_documents=size,
        start_flatness=START_FLATNESS,
        annealing_steps=min(ANNEALING_STEPS, int(annealed * steps)),
        **given,  # type: ignore[arg-type]
    )


def _follow(found: Mapping[str, Any], order: list[int], warnings: list[str]) -> dict[str, Any]:
    """Return the diagnostics of the spectral fit for topics in a new order."""
    moved = {name: [found[name][i] for i in order] for name in _BY_TOPIC if name in found}
    earlier = [f"before refinement: {text}" for text in found.get("warnings", [])]
    return {**found, **moved, "warnings": [*earlier, *warnings]}
