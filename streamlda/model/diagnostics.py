"""Diagnostics of topics: their number, doubts, exclusivity and neighbours.

All of it is read off a finished model, so that it costs no document and no privacy. The distance of
two distributions of words is Hellinger's, ``sqrt(1 - sum_w sqrt(p_w q_w))``: 0 for equal ones, 1
for two without a word in common. The sum alone is their affinity.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.model.coherence import NPMI_WORDS
from streamlda.model.evaluation import top_words
from streamlda.model.topics import Model, Topics
from streamlda.spectral.support import Spectrum
from streamlda.spectral.topics import SAME_TOPIC_AFFINITY
from streamlda.utils.arrays import Array
from streamlda.utils.threads import one_blas_thread

#: Closer than this (0.39), two distributions are one topic written twice.
CLOSEST = float(np.sqrt(1.0 - SAME_TOPIC_AFFINITY))

#: The last topic ends with an eigenvalue this many times the next one, or what noise may reach if
#: that is larger. On planted corpora of 4 to 50 topics it was 3 times or more.
CLEAR_DROP = 2.0

#: A diagnostic: whether refined topics predict held-out documents better than word frequencies.
BEYOND_WORDS = "beyond_word_frequencies"

#: And is followed by this many directions: of fewer, the noise of the last few is drawn too small.
LEAST_REST = 5

#: A topic is flat when this part of it is spread evenly over the words: half of them have as much.
MOSTLY_FLAT = 0.5

#: A topic of a private model is hidden when more than this part of it is the background.
MOSTLY_HIDDEN = 0.5

#: Why a topic should not be relied on, as `junk_topics` names it, in words.
DOUBTS = {
    "noise": "does not stand above sampling noise",
    "background": "repeats the other topics taken together",
    "copy": "repeats a more prevalent topic",
    "flat": "is mostly smoothing, spread evenly over all words",
    "spare": "is beyond what the documents support, and among the smallest",
    "hidden": "is hidden by the noise of privacy",
}

#: Columns that are compared at a time.
_BLOCK_COLUMNS = 2**14


def hellinger(p: Array, q: Array) -> Array:
    """Return the Hellinger distance of each row of `p` to each row of `q`.

    Time O(K K' V), memory O((K + K') * 2**14).
    """
    shared = np.zeros((len(p), len(q)))
    with one_blas_thread():
        for start in range(0, p.shape[1], _BLOCK_COLUMNS):
            columns = slice(start, start + _BLOCK_COLUMNS)
            shared += np.sqrt(p[:, columns]) @ np.sqrt(q[:, columns]).T
    found: Array = np.sqrt(np.clip(1.0 - shared, 0.0, 1.0))
    # What rounding leaves of two equal topics is the root of 1e-16.
    found[found < 1e-7] = 0.0
    return found


def common_columns(before: Topics, after: Topics) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the columns of the words that both models know, pair by pair.

    All columns for one vocabulary, hashed ones and matrices of one width included; none where they
    cannot be compared: other hashing, or other matrices. Time and memory O(V).
    """
    one, other = before.vocabulary, after.vocabulary
    if one == other and before.n_features == after.n_features:
        every = np.arange(before.n_features, dtype=np.intp)
        return every, every
    own, others = ((() if words is None else words.words or ()) for words in (one, other))
    column = {word: i for i, word in enumerate(own)}
    pairs = [(column[word], j) for j, word in enumerate(others) if word in column]
    mine, theirs = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    return mine, theirs


def pair_spectrum(diagnostics: Mapping[str, Any]) -> Spectrum | None:
    """Return the spectrum that a model has stored, or None. Time and memory O(t)."""
    values, noise = diagnostics.get("pair_eigenvalues"), diagnostics.get("pair_noise")
    if not values:
        return None
    # Online solvers measured no noise; their first version stored zeros.
    if not noise or not any(noise):
        return Spectrum(np.array(values), None)
    return Spectrum.pad(np.array(values), np.array(noise))


def count_clear_topics(diagnostics: Mapping[str, Any]) -> int | None:
    """Return how many topics the word pairs of the documents tell apart; None if it is not clear.

    With k topics the pair moment has rank k: where the k-th eigenvalue is far above the next one
    (`CLEAR_DROP`) and above what noise reaches, there are k. The eigenvalues of most text fall
    smoothly. The noise must have been tested on other documents than the projection was made of
    (`streamlda.spectral.support`). 0 where documents show no more than their word frequencies.
    """
    spectrum = pair_spectrum(diagnostics)
    tested = diagnostics.get("documents_behind_directions") is not None
    if spectrum is None or spectrum.floor is None or not tested:
        return None
    values, floor = spectrum.eigenvalues, spectrum.floor
    k, n = int(np.sum(values > floor)), len(values)
    if k <= 1:
        return None if diagnostics.get(BEYOND_WORDS) else 0
    is_clear = k <= n - LEAST_REST and values[k - 1] >= CLEAR_DROP * max(values[k], floor[k])
    return k if is_clear else None


def junk_topics(model: Topics) -> list[tuple[str, ...]]:
    """Return the `DOUBTS` of each topic; an empty tuple is a good topic.

    What a model does not know of itself gives no reason. Time O(K^2 V), memory O(K^2 + V).
    """
    known, topics, share = model.diagnostics, model.components, model.weights
    K = len(topics)
    found: list[list[str]] = [[] for _ in range(K)]

    def mark(reason: str, rows: Iterable[int]) -> None:
        for k in rows:
            found[k].append(reason)

    def good() -> list[int]:
        return [k for k in model.order if not found[k]]

    few = known.get("directions_supported") in (0, 1) and not known.get(BEYOND_WORDS)
    if few and K > 1 and known.get("documents_behind_directions") is not None:
        mark("noise", range(K))
    # Models of version 1 kept what the start of a refinement was.
    elif "refinement" not in known:
        supported = known.get("topic_supported") or ()
        mark("noise", (k for k, stands_out in enumerate(supported) if not stands_out))

    # With the other topics and not with the corpus, which a large topic is close to.
    rows = good()
    whole = share[rows] @ topics[rows]
    for k in rows if len(rows) > 1 else ():
        others = np.maximum(whole - share[k] * topics[k], 0.0)
        total = others.sum()
        if total > 0 and hellinger(topics[k : k + 1], others[None] / total)[0, 0] < CLOSEST:
            mark("background", [k])

    occurs = (model.background > 0) | (topics > 0).any(axis=0)
    # Of a topic of few tokens most is smoothing, however probable its few words are.
    even = [occurs.sum() * np.median(topic[occurs]) for topic in topics]
    mark("flat", (k for k in good() if even[k] > MOSTLY_FLAT))

    apart = hellinger(topics, topics)
    kept: list[int] = []
    for k in good():
        if (apart[k, kept] < CLOSEST).any():
            mark("copy", [k])
        else:
            kept.append(k)

    hidden = known.get("mixed_with_background") or ()
    mark("hidden", (k for k, mixed in enumerate(hidden) if mixed > MOSTLY_HIDDEN))

    if model.prevalence is not None and (clear := count_clear_topics(known)):
        mark("spare", good()[clear:])
    return [tuple(reasons) for reasons in found]


def warn_of_background(model: Model) -> Model:
    """Return the model with warnings of topics that say what others or all words do. O(K V)."""
    reasons = junk_topics(model)
    warnings = [*model.diagnostics.get("warnings", [])]
    for reason, what in (
        ("background", "repeat the word frequencies of all documents"),
        ("flat", "are mostly smoothing, spread evenly over all words"),
    ):
        if found := [str(k) for k, own in enumerate(reasons) if reason in own]:
            text = (
                f"topics that {what}, of {model.n_components}: {', '.join(found)}; "
                "ask for fewer topics, or pass another alpha_0"
            )
            warnings = [*(each for each in warnings if each != text), text]
    if warnings == model.diagnostics.get("warnings", []):
        return model
    return replace(model, diagnostics={**model.diagnostics, "warnings": warnings})


def exclusivity(components: Array, *, n: int = NPMI_WORDS) -> Array:
    """Return how much the most probable words of each topic are its own. Time O(K V).

    The mean of ``p(w | k) / sum_j p(w | j)`` over the top words, by their probability in the topic
    (Bischof and Airoldi 2012, without a reference to other words): 1 / K where all topics are the
    same, 1 where no other topic has these words.
    """
    top = top_words(components, min(n, components.shape[1]))
    own = np.take_along_axis(components, top, axis=1)
    every = components.sum(axis=0)[top]
    # A topic of fewer words than these has others that no topic may have.
    every[every == 0] = 1.0
    found: Array = (own * own / every).sum(axis=1) / own.sum(axis=1)
    return found


def nearest_topics(components: Array) -> list[tuple[int, float] | None]:
    """Return the topic nearest to each and their distance by `hellinger`; None if it is alone.

    Time O(K^2 V), memory O(K^2).
    """
    if len(components) < 2:
        return [None] * len(components)
    apart = hellinger(components, components)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(axis=1).tolist()
    return [(j, float(apart[k, j])) for k, j in enumerate(nearest)]
