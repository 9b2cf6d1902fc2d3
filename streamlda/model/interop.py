"""Topics for pandas, which is imported where it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from streamlda.errors import MissingExtraError
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
    top = model.top_columns(n_words)
    topic, word = np.repeat(np.arange(len(top)), list(map(len, top))), np.concatenate(top)
    probability, usual = model.components[topic, word], model.background[word]
    lift = np.full(len(word), np.inf)
    np.divide(probability, usual, out=lift, where=usual > 0)
    return pandas.DataFrame(
        {
            "topic": topic,
            "prevalence": np.array(model.shares, dtype=np.float64)[topic],
            "rank": np.concatenate([np.arange(1, len(words) + 1) for words in top]),
            "word": [*map(model.feature_name, word.tolist())],
            "probability": probability,
            "lift": lift,
        }
    )
