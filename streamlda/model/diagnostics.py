"""Diagnostics of topics: their number, repetitions, doubts, exclusivity and neighbours.

All of it is read off a finished model, so that it costs no document and no privacy. The distance of
two distributions of words is Hellinger's, ``sqrt(1 - sum_w sqrt(p_w q_w))``: 0 for equal ones, 1
for two without a word in common. The sum alone is their affinity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import at_least
from streamlda.model.coherence import NPMI_WORDS
from streamlda.model.evaluation import top_words
from streamlda.model.faults import check
from streamlda.model.topics import Model, Topics
from streamlda.spectral.support import SHOW_NONE, Spectrum
from streamlda.spectral.topics import SAME_TOPIC_AFFINITY
from streamlda.utils.threads import one_blas_thread

Array = NDArray[np.float64]

#: Closer than this (0.39), two distributions are one topic written twice.
CLOSEST = float(np.sqrt(1.0 - SAME_TOPIC_AFFINITY))

#: The last topic ends with an eigenvalue this many times the next one, or what noise may reach if
#: that is larger. On planted corpora of 4 to 50 topics it was 3 times or more.
CLEAR_DROP = 2.0

#: A diagnostic: whether refined topics predict held-out documents better than word frequencies.
BEYOND_WORDS = "beyond_word_frequencies"

#: And is followed by this many directions: of fewer, the noise of the last few is drawn too small.
LEAST_REST = 5

#: A topic of a private model is hidden when more than this part of it is the background.
MOSTLY_HIDDEN = 0.5

#: A topic's words are apart where its NPMI is less than this part of the usual one, the median of
#: all topics. Planted topics, 2 to 50 of them, had 0.35 of it or more wherever the median was
#: `LEAST_USUAL_NPMI` or more; below, documents mix too many topics for pairs of words to tell.
APART, LEAST_USUAL_NPMI = 0.25, 0.03

#: Why a topic should not be relied on, as `junk_topics` names it, in words.
DOUBTS = {
    "noise": "does not stand above sampling noise",
    "background": "repeats the other topics taken together",
    "copy": "repeats a more prevalent topic",
    "flat": "has no words that are more probable than others",
    "apart": "has words that occur together far less than those of other topics",
    "spare": "is beyond what the documents support, and among the smallest",
    "hidden": "is hidden by the noise of privacy",
}

#: Columns that are compared at a time.
_BLOCK_COLUMNS = 2**14


class SuggestedTopics(NamedTuple):
    """Number of topics that the documents support (None: the model does not say), and the reason.

    `basis` is ``"drop"`` (after a clear drop), ``"all"`` (all that was looked at is real, so that
    there may be more), ``"smooth"`` (the topics have no end), ``"hidden"`` (what the noise of
    privacy left), ``"none"`` (the documents show no topics) or ``"unknown"`` (nothing to tell
    from). `reason` has one or two sentences.
    """

    n_components: int | None
    basis: str
    reason: str


def hellinger(p: Array, q: Array) -> Array:
    """Return the Hellinger distance of each row of `p` to each row of `q`.

    Time O(K K' V), memory O((K + K') * 2**14).
    """
    check(
        p.ndim == q.ndim == 2 and p.shape[1] == q.shape[1], "words of topics", p=p.shape, q=q.shape
    )
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
    if one is None or other is None or one.words is None or other.words is None:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    column = {word: i for i, word in enumerate(one.words)}
    pairs = [(column[word], j) for j, word in enumerate(other.words) if word in column]
    mine, theirs = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    return mine, theirs


def pair_spectrum(diagnostics: Mapping[str, Any]) -> Spectrum | None:
    """Return the spectrum that a model has stored, or None. Time and memory O(t)."""
    values = numbers(diagnostics, "pair_eigenvalues")
    if values is None or not np.isfinite(values).all():
        return None
    noise = numbers(diagnostics, "pair_noise")
    # Online solvers measured none; their first version stored zeros.
    if noise is None or not np.isfinite(noise).all() or not np.any(noise > 0):
        return Spectrum(values, None)
    return Spectrum.padded(values, noise)


def suggest_n_components(diagnostics: Mapping[str, Any]) -> SuggestedTopics:
    """Say how many topics the word pairs of the documents tell apart, where they tell.

    With k topics the pair moment has rank k: where the k-th eigenvalue is far above the next one
    (`CLEAR_DROP`) and above what noise reaches, there are k. The eigenvalues of text fall smoothly,
    and no number is named. The noise must have been tested on other documents than the projection
    was made of (`streamlda.spectral.support`). A fit looks at K + 20 directions.
    """
    published = numbers(diagnostics, "mixed_with_background")
    asked = diagnostics.get("topics_asked")
    if type(asked) is int and published is not None:
        return _left_by_noise(len(published), asked)
    spectrum = pair_spectrum(diagnostics)
    tested = type(diagnostics.get("documents_behind_directions")) is int
    if spectrum is None or spectrum.floor is None or not tested:
        reason = "The model has no spectrum that was tested on other documents"
        return SuggestedTopics(None, "unknown", f"{reason}, so the number is not known.")
    values, floor = spectrum.eigenvalues, spectrum.floor
    k, n = int(np.sum(values > floor)), len(values)
    beyond = diagnostics.get(BEYOND_WORDS)
    if k <= 1 and not beyond:
        return SuggestedTopics(None, "none", SHOW_NONE.capitalize() + ".")
    if k == n:
        reason = (
            f"All {n} directions that the fit looked at stand above the sampling noise: the "
            "documents support at least as many topics. A fit with more topics would show how "
            "many."
        )
        return SuggestedTopics(None, "all", reason)
    if 1 < k <= n - LEAST_REST and values[k - 1] >= CLEAR_DROP * max(values[k], floor[k]):
        times = float(values[k - 1] / floor[k])
        reason = (
            f"{k} directions of the word pairs stand out: the last is {times:.1f} times what noise "
            "reaches, and the others are within it."
        )
        return SuggestedTopics(k, "drop", reason)
    reason = (
        "The eigenvalues of the word pairs fall smoothly into the noise, as they do for most "
        "text: they show no clear number of topics."
    )
    return SuggestedTopics(None, "smooth", reason)


def junk_topics(model: Topics) -> list[tuple[str, ...]]:
    """Return for each topic why it should not be relied on; an empty tuple is a good topic.

    The reasons, which are about the topics as they are in the model:

    - ``"noise"``: a spectral topic that does not stand above its sampling noise; all topics where
      no direction of the word pairs tells documents apart, and held-out documents are not predicted
      better than by word frequencies.
    - ``"background"``: it says what all other topics that are no noise say together (closer than
      `CLOSEST`). A topic is compared with the others and not with the corpus, which a large topic
      is close to because it is most of it.
    - ``"flat"``: all words that occur are about as probable.
    - ``"copy"``: it says what a good and more prevalent topic says (closer than `CLOSEST`). Its
      words may go together as well as those of that one: it is one topic too many, not a bad one.
    - ``"apart"``: its most probable words meet in documents far less than those of other topics
      (`APART`), and it is smaller than most.
    - ``"hidden"``: the noise of privacy hid more than half of it.
    - ``"spare"``: the documents hold fewer topics (`suggest_n_components`) than are left, of which
      it is among the smallest. Where prevalence was measured.

    What a model does not know of itself gives no reason. Time O(K^2 V), memory O(K^2 + V).
    """
    found: list[list[str]] = [[] for _ in range(model.n_components)]
    for reason, judge in _JUDGES.items():
        good = [k for k in model.order if not found[k]]
        for k in judge(model, good):
            found[k].append(reason)
    return [tuple(reasons) for reasons in found]


def _noise(model: Topics, good: list[int]) -> list[int]:
    known, K = model.diagnostics, model.n_components
    tested = type(known.get("documents_behind_directions")) is int
    none = known.get("directions_supported") in (0, 1) and not known.get(BEYOND_WORDS)
    if tested and K > 1 and none:
        return list(range(K))
    supported = known.get("topic_supported")
    # Models of version 1 kept what the start of a refinement was.
    if "refinement" in known or not isinstance(supported, list) or len(supported) != K:
        return []
    return [k for k in range(K) if supported[k] is False]


def _background(model: Topics, good: list[int]) -> list[int]:
    share, found = model.weights, []
    whole = share[good] @ model.components[good]
    for k in good:
        topic = model.components[k]
        others = np.maximum(whole - share[k] * topic, 0.0)
        if len(good) > 1 and others.sum() > 0:
            others /= others.sum()
            if hellinger(topic[None], others[None])[0, 0] < CLOSEST:
                found.append(k)
    return found


def _flat(model: Topics, good: list[int]) -> list[int]:
    occurs = (model.background > 0) | (model.components > 0).any(axis=0)
    apart = hellinger(model.components, (occurs / occurs.sum())[None])[:, 0]
    return np.flatnonzero(apart < CLOSEST).tolist()


def _copies(model: Topics, good: list[int]) -> list[int]:
    apart = hellinger(model.components, model.components)
    kept: list[int] = []
    copies: list[int] = []
    for k in good:
        (copies if (apart[k, kept] < CLOSEST).any() else kept).append(k)
    return copies


def _apart(model: Topics, good: list[int]) -> list[int]:
    npmi = _of_topics(model, "topic_npmi")
    if npmi is None or not np.isfinite(npmi).any():
        return []
    usual = float(np.median(npmi[np.isfinite(npmi)]))
    small = model.weights < 1 / model.n_components
    return np.flatnonzero(small & (npmi < APART * usual)).tolist() * (usual >= LEAST_USUAL_NPMI)


def _hidden(model: Topics, good: list[int]) -> list[int]:
    mixed = _of_topics(model, "mixed_with_background")
    return [] if mixed is None else np.flatnonzero(mixed > MOSTLY_HIDDEN).tolist()


def _spare(model: Topics, good: list[int]) -> list[int]:
    held = suggest_n_components(model.diagnostics)
    if model.prevalence is None or held.basis != "drop":
        return []
    assert held.n_components is not None
    return good[held.n_components :]


#: Whatever judges topics, in order: `good` are those that no earlier reason was found for, the most
#: prevalent first.
_JUDGES: dict[str, Callable[[Topics, list[int]], list[int]]] = {
    "noise": _noise,
    "background": _background,
    "flat": _flat,
    "copy": _copies,
    "apart": _apart,
    "hidden": _hidden,
    "spare": _spare,
}


def _of_topics(model: Topics, name: str) -> Array | None:
    """Return the numbers that a model holds of each topic, or None."""
    found = numbers(model.diagnostics, name)
    return None if found is None or len(found) != model.n_components else found


def warn_of_background(model: Model) -> Model:
    """Return the model with a warning if topics say what all others say together. Time O(K V)."""
    found = [k for k, reasons in enumerate(junk_topics(model)) if "background" in reasons]
    if not found:
        return model
    named = ", ".join(str(k) for k in found)
    text = (
        f"{len(found)} of {model.n_components} topics repeat{'s' * (len(found) == 1)} the word "
        f"frequencies of all documents: topic{'s' * (len(found) > 1)} {named}; ask for fewer "
        "topics, or pass another alpha_0"
    )
    earlier = model.diagnostics.get("warnings", [])
    warnings = [*(each for each in earlier if each != text), text]
    return replace(model, diagnostics={**model.diagnostics, "warnings": warnings})


def numbers(diagnostics: Mapping[str, Any], name: str) -> Array | None:
    """Return a list of numbers, a missing one as infinity; None if the member is no such list."""
    found = diagnostics.get(name)
    if not isinstance(found, list | tuple) or not found:
        return None
    if not all(x is None or (isinstance(x, int | float) and type(x) is not bool) for x in found):
        return None
    return np.array([np.inf if x is None else x for x in found], dtype=np.float64)


def _left_by_noise(published: int, asked: int) -> SuggestedTopics:
    if published < asked:
        reason = (
            f"{published} of the {asked} requested topics stand above the noise of "
            "privacy. More documents per snapshot or a larger epsilon would show more."
        )
        return SuggestedTopics(published, "hidden", reason)
    reason = (
        f"All {asked} requested topics stand above the noise of privacy; no further "
        "direction was released, so that there may be more."
    )
    return SuggestedTopics(asked, "all", reason)


class NearTopic(NamedTuple):
    """Row of a topic, and its Hellinger distance, 0 to 1."""

    topic: int
    distance: float


def exclusivity(components: Array, *, n: int = NPMI_WORDS) -> Array:
    """Return how much the most probable words of each topic are its own. Time O(K V).

    The mean of ``p(w | k) / sum_j p(w | j)`` over the top words, by their probability in the topic
    (Bischof and Airoldi 2012, without a reference to other words): 1 / K where all topics are the
    same, 1 where no other topic has these words.
    """
    at_least(1, n=n)
    top = top_words(components, min(n, components.shape[1]))
    own = np.take_along_axis(components, top, axis=1)
    every = components.sum(axis=0)[top]
    # A topic of fewer words than these has others that no topic may have.
    every[every == 0] = 1.0
    found: Array = (own * own / every).sum(axis=1) / own.sum(axis=1)
    return found


def nearest_topics(components: Array) -> list[NearTopic | None]:
    """Return the topic nearest to each one by `hellinger`; None where there is no other.

    Time O(K^2 V), memory O(K^2).
    """
    if len(components) < 2:
        return [None] * len(components)
    apart = hellinger(components, components)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(axis=1).tolist()
    return [NearTopic(j, float(apart[k, j])) for k, j in enumerate(nearest)]
