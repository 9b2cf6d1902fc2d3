"""Topics for pandas, which is imported where it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from streamlda.checks import at_least
from streamlda.errors import MissingExtraError
from streamlda.model.evaluation import top_words
from streamlda.model.topic_model import TopicModel


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
