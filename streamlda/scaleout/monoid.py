"""The sums of documents as a monoid, for other engines: Spark, Ray, processes, a queue.

::

    projection = projection_of(first_texts, settings, vocabulary)
    parts = [sums_of(texts, projection, shard=name) for name, texts in ...]     # anywhere
    model = topics(merge(*parts), projection)

Sums and projections are pickled as they are. `merge` may be called in any order and any tree:
equal trees give equal bits, others differ by rounding. Sums name the shards that are in them, and
a shard that is merged twice, as where a task was done again, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from streamlda.checks import require
from streamlda.documents import CHECK_TEXTS, TOPICS_NEED, DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import first_projection
from streamlda.errors import InsufficientDataError
from streamlda.model.topic_model import TopicModel
from streamlda.scaleout.shards import Shard, batches_of, no_documents, task_of
from streamlda.scaleout.sums import Plan, Sums, accumulate
from streamlda.scaleout.sums import merged as merge
from streamlda.stream.counts import RecordCounts
from streamlda.text.vocabulary import Vocabulary

__all__ = ["better_projection", "merge", "projection_of", "sums_of", "topics"]


def projection_of(
    documents: Iterable[Any], settings: EngineSettings, vocabulary: Vocabulary | None = None
) -> Plan:
    """Return what all shards are summed through, found from some of the documents.

    Parameters
    ----------
    documents : list of str, sparse matrix or DocumentBatch
        Some 10,000 documents, better spread over the corpus than the first ones.
    settings : EngineSettings
        `n_features` is replaced by the columns of the documents.
    vocabulary : Vocabulary, optional
        By which texts are read, here and in `sums_of`; left out for counts.

    Returns
    -------
    Plan
        The projection, shape (V, m), with settings and words: 8 V m bytes.

    Raises
    ------
    InsufficientDataError
        Without a document of 3 known words.

    Notes
    -----
    Time O(documents nnz m).
    """
    shard = Shard("projection")
    with task_of(shard):
        batches = list(batches_of(shard, documents, vocabulary, RecordCounts()))
        batch = DocumentBatch.joined(batches or [no_documents(settings.n_features)])
        require(
            bool(batch.usable.any()),
            TOPICS_NEED,
            usable=0,
            documents=batch.n_documents,
            remedy=CHECK_TEXTS,
            error=InsufficientDataError,
        )
        settings = replace(settings, n_features=batch.n_features)
        whitening = first_projection(batch, settings)
    return Plan(settings, whitening, settings.n_triple_columns, vocabulary)


def sums_of(documents: Iterable[Any], projection: Plan, *, shard: str) -> Sums:
    """Return the sums of the documents of a shard.

    Parameters
    ----------
    documents : iterable of str, sparse matrix, list of these, or DocumentBatch
        Taken block by block: an iterator of texts may be of any length.
    projection : Plan
        Equal for all shards that are merged.
    shard : str
        Unique name of the shard, the same when it is read again.

    Returns
    -------
    Sums
        8 (3 V + V m + V t + 2 t^2 + 2 t^3) bytes, whatever the documents.

    Notes
    -----
    Time O(nnz m + t^3 / 3) a document, in one thread. Equal documents of an equal shard give equal
    bits. The name decides which documents are in which of the two halves by which noise is
    measured.
    """
    digest = int.from_bytes(blake2b(shard.encode(), digest_size=2).digest(), "big")
    return accumulate(projection, Shard(shard), documents, digest << 40)


def better_projection(sums: Sums, projection: Plan) -> Plan:
    """Return a projection found from all summed documents, for another round over them.

    Topics of two rounds are better than those of one, as `streamlda.scaleout.fit.ROUNDS` says.
    """
    return replace(projection, whitening=sums.engine(projection).better_projection())


def topics(sums: Sums, projection: Plan) -> TopicModel:
    """Return the topics of all documents in the sums, without a refinement."""
    return sums.engine(projection).snapshot(projection.vocabulary)
