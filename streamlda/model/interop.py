"""Topics for other programs: pyLDAvis and pandas, which are imported where they are needed."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least
from streamlda.errors import MissingExtraError
from streamlda.model.diagnostics import hellinger
from streamlda.model.evaluation import top_words
from streamlda.model.hierarchy import flat_map
from streamlda.model.inference import SMOOTHING, smoothed
from streamlda.model.topic_model import TopicModel

Array = NDArray[np.float64]

#: Tokens that a model stands for which does not know how many it has seen.
DEFAULT_TOKENS = 1_000_000


def to_pyldavis(model: TopicModel) -> dict[str, Any]:
    """Return the arguments of ``pyLDAvis.prepare`` for a model, without its documents.

    pyLDAvis uses documents for nothing but the share of each topic. So each topic comes as one
    document that holds all of its tokens. pyLDAvis cannot show that something is not known: sizes
    stand for alpha in a model whose prevalence was not measured, and counts for a million tokens in
    one that does not know how many it has seen, each with a warning. Topics keep their numbers.
    Their places are those of `flat_map`: pyLDAvis's own become complex where topics are many.
    pyLDAvis is not imported. Time O(K V), and O(K^2 V + K^3) for the places; memory O(K V).

    Returns
    -------
    dict
        ``topic_term_dists`` (K, V'), ``doc_topic_dists`` (K, K), ``doc_lengths`` (K,), ``vocab``
        (V',), ``term_frequency`` (V',), ``mds``, ``sort_topics`` and ``start_index``. Words that
        no topic has, V - V' of them, are left out, since pyLDAvis takes logarithms.

    Warns
    -----
    UserWarning
        If the prevalence of topics, or the number of tokens, is not known.

    Examples
    --------
    >>> import pyLDAvis                                                      # doctest: +SKIP
    >>> pyLDAvis.save_html(pyLDAvis.prepare(**to_pyldavis(model)), "topics.html")  # doctest: +SKIP
    """
    assumed = []
    if model.prevalence is None:
        assumed.append("sizes of topics are the shares of alpha: prevalence was not measured")
    if not model.tokens_seen:
        assumed.append(
            f"counts are scaled to {DEFAULT_TOKENS:,} tokens: the true number is not known"
        )
    if assumed:
        warnings.warn("; ".join(assumed), UserWarning, stacklevel=2)
    # As they are used to explain documents: no word is impossible.
    topics = smoothed(model.components, model.background, SMOOTHING)
    share = model.weights
    tokens = model.tokens_seen or DEFAULT_TOKENS
    kept = np.flatnonzero(share @ topics > 0)
    topics = topics[:, kept]
    topics /= topics.sum(axis=1, keepdims=True)
    return {
        "topic_term_dists": topics,
        "doc_topic_dists": np.eye(len(topics)),
        "doc_lengths": share * tokens,
        "vocab": [*map(model.feature_name, kept.tolist())],
        "term_frequency": share @ topics * tokens,
        "mds": _places,
        "sort_topics": False,
        "start_index": 0,
    }


def to_pandas(model: TopicModel, n_words: int = 10) -> Any:
    """Return the top words of all topics as a ``pandas.DataFrame``, a row a word.

    Time O(K V), memory O(V + K n_words).

    Parameters
    ----------
    n_words : int, default 10
        Words of each topic; all V if there are fewer.

    Returns
    -------
    pandas.DataFrame
        Columns ``topic`` (from 0), ``prevalence`` (0 to 1, the same in all rows of a topic),
        ``rank`` (from 1), ``word``, ``probability`` (in the topic) and ``lift`` (the probability
        over that in the corpus; infinite where the corpus has none).
    """
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("pandas", "bridges", "exporting to pandas") from error
    at_least(1, n_words=n_words)
    top = top_words(model.components, min(n_words, model.n_features))
    K, n = top.shape
    topic, word = np.repeat(np.arange(K), n), top.ravel()
    probability, usual = model.components[topic, word], model.background[word]
    lift = np.full(len(word), np.inf)
    np.divide(probability, usual, out=lift, where=usual > 0)
    return pandas.DataFrame(
        {
            "topic": topic,
            "prevalence": np.array(model.shares, dtype=np.float64)[topic],
            "rank": np.tile(np.arange(1, n + 1), K),
            "word": [*map(model.feature_name, word.tolist())],
            "probability": probability,
            "lift": lift,
        }
    )


def _places(topics: Any) -> Array:
    """Return the places on a flat map, (K, 2), of the topics that pyLDAvis gives as a frame."""
    topics = np.asarray(topics)
    return flat_map(hellinger(topics, topics)).positions
