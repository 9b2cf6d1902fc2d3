"""Who is compared: each imports what it needs, then returns a function that fits one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from streamlda.documents import DocumentBatch

#: (documents, K, seed) -> topics of shape (K, V) with rows summing to 1, and alpha of shape (K,).
Fit = Callable[["DocumentBatch", int, int], tuple[Any, Any]]

#: Documents handed over at a time; gensim's default.
BATCH_DOCUMENTS = 2000


def streamlda() -> Fit:
    """The engine of this project, default settings; finding the topics at the end is included."""
    from streamlda.engine import Engine
    from streamlda.engine_settings import EngineSettings

    def fit(documents: DocumentBatch, n_components: int, seed: int) -> tuple[Any, Any]:
        n_features = documents.n_features
        engine = Engine(EngineSettings(n_components=n_components, n_features=n_features, seed=seed))
        for start in range(0, len(documents), BATCH_DOCUMENTS):
            engine.add(documents.rows(start, start + BATCH_DOCUMENTS))
        model = engine.snapshot()
        return model.components, model.alpha

    return fit


def gensim() -> Fit:
    """Online variational Bayes of gensim (LdaModel), one pass, all else at its defaults."""
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    def fit(documents: DocumentBatch, n_components: int, seed: int) -> tuple[Any, Any]:
        words = {i: str(i) for i in range(documents.n_features)}
        model = LdaModel(
            Sparse2Corpus(documents.to_csr(), documents_columns=False),
            num_topics=n_components,
            id2word=words,
            passes=1,
            chunksize=BATCH_DOCUMENTS,
            random_state=seed,
        )
        topics = model.get_topics().astype(np.float64)
        return topics / topics.sum(axis=1, keepdims=True), model.alpha.astype(np.float64)

    return fit


def scikit_learn() -> Fit:
    """Online variational Bayes of scikit-learn, one pass, all else at its defaults."""
    from sklearn.decomposition import LatentDirichletAllocation

    def fit(documents: DocumentBatch, n_components: int, seed: int) -> tuple[Any, Any]:
        model = LatentDirichletAllocation(
            n_components,
            learning_method="online",
            max_iter=1,
            batch_size=BATCH_DOCUMENTS,
            random_state=seed,
        ).fit(documents.to_csr())
        topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
        return topics, np.full(n_components, model.doc_topic_prior_)

    return fit


CONTENDERS = {"streamlda": streamlda, "gensim": gensim, "scikit-learn": scikit_learn}
