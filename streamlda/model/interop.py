"""Topics to and from other programs: pyLDAvis, gensim, scikit-learn, OCTIS, pandas and Arrow.

The other library is imported by the function that needs it, which raises `MissingExtraError` if it
is not installed. A model that comes
from elsewhere says ``"not private"``: its promises cannot be checked here.

Topics that others infer with are smoothed like ours (`streamlda.model.inference.SMOOTHING`), so
that no word is impossible. gensim and scikit-learn fit the proportions of a document by variational
Bayes, which is not quite what `TopicModel.transform` does: on planted documents of 80 tokens over 3
topics the proportions differ by 0.01, summed over the topics.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least, failure
from streamlda.errors import MissingExtraError
from streamlda.model.diagnostics import hellinger
from streamlda.model.evaluation import top_words
from streamlda.model.faults import check, fault
from streamlda.model.hierarchy import flat_map
from streamlda.model.inference import SMOOTHING, smoothed
from streamlda.model.topic_model import TopicModel
from streamlda.model.topics import current_versions
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary

Array = NDArray[np.float64]

#: Extra that brings the libraries behind this module.
EXTRA = "bridges"

#: Tokens that a model stands for which does not know how many it has seen.
DEFAULT_TOKENS = 1_000_000

#: Prior of the words of an exported topic, in tokens: counts alone decide.
_WORD_PRIOR = 1e-9


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
    topics, share = _topics(model), model.weights
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


def to_gensim(model: TopicModel) -> Any:
    """Return a ``gensim.models.LdaModel`` with the topics and the alpha of a model.

    Its ``id2word`` is a ``gensim.corpora.Dictionary``, whose ``doc2bow`` makes documents of words
    that were split and lower-cased as the model's vocabulary does. It can be saved, applied and
    updated; an update takes the topics for what `tokens_seen` tokens have shown. Time and memory
    O(K V).
    """
    purpose = "exporting to gensim"
    models = _imported("gensim.models", "gensim", purpose)
    corpora = _imported("gensim.corpora", "gensim", purpose)
    dictionary = corpora.Dictionary()
    dictionary.token2id = {model.feature_name(i): i for i in range(model.n_features)}
    lda = models.LdaModel(
        num_topics=model.n_components,
        id2word=dictionary,
        alpha=model.alpha.copy(),
        eta=_WORD_PRIOR,
        iterations=200,
        minimum_probability=0.0,
        random_state=0,
        dtype=np.float64,
    )
    topics = _topics(model)
    lda.state.sstats[...] = _counts(model, topics)
    lda.state.numdocs = model.documents_seen
    # What it infers with: the topics themselves, not the expectation under the counts.
    lda.expElogbeta = topics
    return lda


def from_gensim(lda: Any, *, analyzer: TextAnalyzer | None = None) -> TopicModel:
    """Return a model with the topics of a ``gensim.models.LdaModel``.

    Time and memory O(K V).

    Parameters
    ----------
    lda : gensim.models.LdaModel
        Trained, with an ``id2word`` of distinct words.
    analyzer : TextAnalyzer, optional
        How texts were split into these words; ours by default.

    Raises
    ------
    VocabularyError
        If the words cannot be used.
    InvalidSettingError
        If a column has no word, or topics are not finite.
    """
    topics = np.asarray(lda.get_topics(), dtype=np.float64)
    names = [lda.id2word.get(i) for i in range(topics.shape[1])]
    if None in names:
        raise fault("id2word", column_without=names.index(None))
    return _imported_model(
        "gensim", topics, lda.alpha, lda.state.get_lambda(), names, analyzer, lda.state.numdocs
    )


def to_sklearn(model: TopicModel) -> Any:
    """Return a ``sklearn.decomposition.LatentDirichletAllocation`` that is ready to transform.

    scikit-learn has one prior for all topics: the mean of alpha. Its columns are those of the
    model, as ``CountVectorizer(vocabulary=...)`` gives them. Time and memory O(K V).

    """
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.utils import check_random_state

    prior = float(model.alpha.mean())
    lda = LatentDirichletAllocation(
        model.n_components,
        doc_topic_prior=prior,
        topic_word_prior=_WORD_PRIOR,
        total_samples=max(1, model.documents_seen),
        random_state=0,
    )
    topics = _topics(model)
    lda.components_ = _counts(model, topics)
    # What it infers with: the topics themselves, not the expectation under the counts.
    lda.exp_dirichlet_component_ = topics
    lda.doc_topic_prior_, lda.topic_word_prior_ = prior, _WORD_PRIOR
    lda.n_features_in_ = model.n_features
    lda.n_batch_iter_, lda.n_iter_ = 1, 0
    lda.random_state_ = check_random_state(0)
    return lda


def from_sklearn(
    lda: Any, feature_names: Iterable[str], *, analyzer: TextAnalyzer | None = None
) -> TopicModel:
    """Return a model with the topics of a fitted ``LatentDirichletAllocation``.

    Time and memory O(K V).

    Parameters
    ----------
    lda : sklearn.decomposition.LatentDirichletAllocation
        Fitted.
    feature_names : iterable of str
        Word of each column, as ``CountVectorizer.get_feature_names_out()`` returns them.
    analyzer : TextAnalyzer, optional
        How texts were split into these words; ours by default.

    Raises
    ------
    InvalidSettingError
        If there are not as many words as columns, or the model was not fitted.
    VocabularyError
        If the words cannot be used.
    """
    counts = getattr(lda, "components_", None)
    if counts is None:
        rule = "a model must be fitted before it is imported"
        raise failure(rule, type=type(lda).__name__, components_=None, remedy="fit it first")
    counts = np.asarray(counts, dtype=np.float64)
    topics = counts / counts.sum(axis=1, keepdims=True)
    names = [str(name) for name in feature_names]
    check(
        len(names) == topics.shape[1],
        "columns of words",
        feature_names=len(names),
        columns=topics.shape[1],
    )
    alpha = np.full(len(topics), float(lda.doc_topic_prior_))
    return _imported_model("scikit-learn", topics, alpha, counts, names, analyzer, 0)


def to_octis(model: TopicModel, n_words: int = 10) -> dict[str, Any]:
    """Return what OCTIS's metrics read of a model. Time and memory O(K V).

    Parameters
    ----------
    n_words : int, default 10
        Words of each topic; all V if there are fewer.

    Returns
    -------
    dict
        ``topics``, K lists of words, most probable first; ``topic-word-matrix``, ndarray of
        shape (K, V).
    """
    listed = [[word for word, _ in topic] for topic in model.top_words(n_words)]
    return {"topics": listed, "topic-word-matrix": model.components.copy()}


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
    pandas = _imported("pandas", "pandas", "exporting to pandas")
    return pandas.DataFrame(_table(model, n_words))


def to_arrow(model: TopicModel, n_words: int = 10) -> Any:
    """Return the table of `to_pandas` as a ``pyarrow.Table``."""
    pyarrow = _imported("pyarrow", "pyarrow", "exporting to Arrow")
    return pyarrow.table(_table(model, n_words))


def _table(model: TopicModel, n_words: int) -> dict[str, Any]:
    at_least(1, n_words=n_words)
    top = top_words(model.components, min(n_words, model.n_features))
    K, n = top.shape
    topic, word = np.repeat(np.arange(K), n), top.ravel()
    probability, usual = model.components[topic, word], model.background[word]
    lift = np.full(len(word), np.inf)
    np.divide(probability, usual, out=lift, where=usual > 0)
    return {
        "topic": topic,
        "prevalence": np.array(model.shares, dtype=np.float64)[topic],
        "rank": np.tile(np.arange(1, n + 1), K),
        "word": [*map(model.feature_name, word.tolist())],
        "probability": probability,
        "lift": lift,
    }


def _places(topics: Any) -> Array:
    """Return the places on a flat map, (K, 2), of the topics that pyLDAvis gives as a frame."""
    topics = np.asarray(topics)
    return flat_map(hellinger(topics, topics)).positions


def _topics(model: TopicModel) -> Array:
    """Return the topics as they are used to explain documents, writable."""
    return smoothed(model.components, model.background, SMOOTHING)


def _counts(model: TopicModel, topics: Array) -> Array:
    """Return the tokens that each topic stands for, shape (K, V)."""
    tokens = (model.tokens_seen or DEFAULT_TOKENS) * model.alpha / model.alpha.sum()
    counts: Array = topics * np.maximum(tokens, 1.0)[:, None]
    return counts


def _imported_model(
    package: str,
    topics: Array,
    alpha: Any,
    counts: Any,
    names: list[str],
    analyzer: TextAnalyzer | None,
    documents: int,
) -> TopicModel:
    totals = np.asarray(counts, dtype=np.float64).sum(axis=0)
    return TopicModel(
        # Others compute in single precision, whose sums are not exact enough.
        components=topics / topics.sum(axis=1, keepdims=True),
        alpha=np.asarray(alpha, dtype=np.float64),
        background=totals / totals.sum(),
        vocabulary=Vocabulary.given(names, analyzer),
        settings={"imported_from": package},
        versions=current_versions() | {package: version(package)},
        documents_seen=int(documents),
    )


def _imported(module: str, package: str, purpose: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, EXTRA, purpose) from error
