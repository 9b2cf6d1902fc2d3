"""What a model says about its topics: how many there should be, which repeat, which say nothing.

All of it is read off a finished model, so that it costs no document and no privacy. The distance of
two distributions of words is Hellinger's, ``sqrt(1 - sum_w sqrt(p_w q_w))``: 0 for equal ones, 1
for two without a word in common. The sum alone is their affinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import between, require
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.topics import SAME_TOPIC_AFFINITY
from streamlda.threads import one_blas_thread

Array = NDArray[np.float64]

#: Closer than this (0.39), two distributions are one topic written twice.
CLOSEST = float(np.sqrt(1.0 - SAME_TOPIC_AFFINITY))

#: An eigenvalue this many times the next one, or the noise if that is larger, ends the topics. On
#: planted corpora of 16 kinds, 12 seeds each, the last topic dropped by 5 times or more, and noise
#: by at most 1.8.
CLEAR_DROP = 2.0

#: What follows the last topic is noise, which reached 4.1 times its measured floor there. A drop to
#: more than this many times the floor is one between topics.
NOISE_REACH = 4.5

#: A topic of a private model is hidden when more than this part of it is the background.
MOSTLY_HIDDEN = 0.5

#: Columns that are compared at a time.
_BLOCK_COLUMNS = 2**14


class Spectrum(NamedTuple):
    """Eigenvalues of the pair moment of words, and what sampling noise alone would reach.

    Attributes
    ----------
    eigenvalues : ndarray of shape (t,)
        Largest first, without unit. With k topics in the documents k of them are not noise.
    floor : ndarray of shape (t,) or None
        Spectral norm of the noise outside the larger directions; beyond the K-th, where it was
        not measured, the last one measured, which is no smaller. None if the fit measured none.
    """

    eigenvalues: Array
    floor: Array | None


class SuggestedTopics(NamedTuple):
    """How many topics the documents support (None: the model does not say), and why.

    `basis` is ``"drop"`` (after a clear drop), ``"floor"`` (what is above the noise, where there is
    none), ``"all"`` (all that was looked at, so that it may be more), ``"hidden"`` (what the noise
    of privacy left) or ``"none"`` (nothing to tell from). `reason` has one or two sentences.
    """

    n_components: int | None
    basis: str
    reason: str


class CloseTopics(NamedTuple):
    """Two rows of the components, ``first < second``, and their Hellinger distance, 0 to 1."""

    first: int
    second: int
    distance: float


def hellinger(p: Array, q: Array) -> Array:
    """Return the Hellinger distance of each row of `p` to each row of `q`.

    Time O(K K' V), memory O((K + K') * 2**14).

    Parameters
    ----------
    p, q : ndarrays of shape (K, V) and (K', V)
        Probabilities; what a row's sum lacks to 1 counts as not shared.

    Returns
    -------
    ndarray of shape (K, K')
        From 0 to 1.

    Raises
    ------
    InvalidSettingError
        If they are not over the same words.
    """
    require(
        p.ndim == q.ndim == 2 and p.shape[1] == q.shape[1],
        "topics must be over the same words to be compared",
        p=p.shape,
        q=q.shape,
        remedy="pass two tables with a column a word",
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


def common_columns(
    before: TopicModel, after: TopicModel
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
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
    """Return the spectrum that a model has stored, or None. Time and memory O(t).

    Parameters
    ----------
    diagnostics : mapping
        `TopicModel.diagnostics`, of any version; what is missing or not of numbers is as if it
        were not there.
    """
    values = numbers(diagnostics, "pair_eigenvalues")
    if values is None or not np.isfinite(values).all():
        return None
    noise = numbers(diagnostics, "pair_noise")
    # An online solver stores zeros: it has no halves of documents to measure noise with.
    if noise is None or not np.isfinite(noise).all() or not np.any(noise > 0):
        return Spectrum(values, None)
    noise = noise[: len(values)]
    return Spectrum(values, np.append(noise, np.full(len(values) - len(noise), noise[-1])))


def suggest_n_components(diagnostics: Mapping[str, Any]) -> SuggestedTopics:
    """Say how many topics the word pairs of the documents tell apart.

    With k topics the pair moment has rank k, and the rest of its eigenvalues are noise. These are
    up to four times the measured floor when the projection comes from the same documents (it looks
    for what stands out, in noise too), so that counting what is above the floor finds too many. But
    they fall slowly from one to the next, and the last topic is followed by a drop. So the last
    clear drop (`CLEAR_DROP`) to what may be noise (`NOISE_REACH`) is taken. Text that has no k of
    its own falls smoothly; then what is above the floor is counted. The fit should have requested
    about as many topics or more: the floor is measured in K directions, and is higher in the first
    of them.

    Time and memory O(t).
    """
    published = numbers(diagnostics, "eigenvalues")
    asked = diagnostics.get("topics_asked")
    if type(asked) is int and published is not None:
        return _left_by_noise(len(published), asked)
    spectrum = pair_spectrum(diagnostics)
    if spectrum is None or spectrum.floor is None:
        reason = "The model does not hold a spectrum with its noise"
        return SuggestedTopics(None, "none", f"{reason}, so that it cannot tell.")
    values, floor = spectrum.eigenvalues, spectrum.floor
    above = int(np.argmin(values > floor)) if (values <= floor).any() else len(values)
    if above == 0:
        reason = "No direction of the word pairs stands above the sampling noise"
        return SuggestedTopics(None, "none", f"{reason}; read more documents.")
    next_floor = np.append(floor[1:], floor[-1])
    below = np.maximum(np.append(values[1:], 0.0), next_floor)
    clear = (values >= CLEAR_DROP * below) & (below <= NOISE_REACH * next_floor)
    drops = np.flatnonzero(clear[:above])
    # The last eigenvalue has nothing behind it that it could drop to.
    drops = drops[drops < len(values) - 1]
    if len(drops):
        k = int(drops[-1]) + 1
        times = float(values[k - 1] / below[k - 1])
        directions = "direction" if k == 1 else "directions"
        reason = (
            f"{k} {directions} of the word pairs stand out: the last of them is "
            f"{times:.1f} times what follows, and what follows falls slowly, as noise does."
        )
        return SuggestedTopics(k, "drop", reason)
    if above == len(values):
        reason = (
            f"All {above} directions that the fit looked at stand above the sampling noise: the "
            "documents support at least as many topics. Ask for more to see where it ends."
        )
        return SuggestedTopics(above, "all", reason)
    reason = (
        f"The eigenvalues fall smoothly, as they do for most text, and {above} of them "
        f"{'is' if above == 1 else 'are'} above the sampling noise: the word pairs alone tell that "
        "many topics apart. More documents would show more."
    )
    return SuggestedTopics(above, "floor", reason)


def redundant_topics(components: Array, *, closest: float = CLOSEST) -> list[CloseTopics]:
    """Return the pairs of topics that say nearly the same, the closest first.

    Time O(K^2 V), memory O(K^2).

    Parameters
    ----------
    components : ndarray of shape (K, V)
        Word probabilities of each topic.
    closest : float, default 0.39
        Hellinger distance from which two topics are different, 0 to 1. Topics drawn by chance from
        a flat Dirichlet distribution over many words are 0.46 apart, those of text 0.45 or more.

    Raises
    ------
    InvalidSettingError
        If `closest` lies outside 0..1.
    """
    between(0, 1, closest=closest, remedy="0.39 is usual")
    apart = hellinger(components, components)
    rows, columns = np.nonzero(np.triu(apart < closest, 1))
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    found = [CloseTopics(i, j, float(apart[i, j])) for i, j in pairs]
    return sorted(found, key=lambda pair: (pair.distance, pair.first, pair.second))


def junk_topics(model: TopicModel, *, closest: float = CLOSEST) -> list[tuple[str, ...]]:
    """Return for each topic why it should not be relied on; an empty tuple is a good topic.

    The reasons: ``"background"``, it says what all other topics say together (closer than
    `closest`); ``"flat"``, all words that occur are about as probable; ``"noise"``, the fit found
    it not to stand above its sampling noise; ``"hidden"``, the noise of privacy hid more than half
    of it. A topic is compared with the others and not with the corpus, which a large topic is
    close to because it is most of it. Time O(K V), memory O(V).

    """
    K, share = model.n_components, model.weights
    whole = share @ model.components
    occurs = (model.background > 0) | (whole > 0)
    flat = occurs / occurs.sum()
    supported = model.diagnostics.get("topic_supported")
    if not isinstance(supported, list) or len(supported) != K:
        supported = [None] * K
    mixed = numbers(model.diagnostics, "mixed_with_background")
    if mixed is None or len(mixed) != K:
        mixed = np.zeros(K)
    reasons = []
    for k, topic in enumerate(model.components):
        found = []
        others = np.maximum(whole - share[k] * topic, 0.0)
        if K > 1 and others.sum() > 0:
            others /= others.sum()
            if hellinger(topic[None], others[None])[0, 0] < closest:
                found.append("background")
        if hellinger(topic[None], flat[None])[0, 0] < closest:
            found.append("flat")
        if supported[k] is False:
            found.append("noise")
        if mixed[k] > MOSTLY_HIDDEN:
            found.append("hidden")
        reasons.append(tuple(found))
    return reasons


def warned_of_background(model: TopicModel) -> TopicModel:
    """Return the model with a warning if topics say what all others say together. Time O(K V)."""
    found = [k for k, reasons in enumerate(junk_topics(model)) if "background" in reasons]
    if not found:
        return model
    named = ", ".join(str(k) for k in found)
    text = (
        f"{len(found)} of {model.n_components} topics repeat the word frequencies of all "
        f"documents: topics {named}; ask for fewer topics, or pass another alpha_0"
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
