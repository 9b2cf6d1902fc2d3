"""The sums of shards: what a task returns, and how two of them become one. All pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.phase import Counters
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import projection_digest
from streamlda.errors import (
    InvalidDocumentsError,
    InvalidSettingError,
    MissingExtraError,
    SourceError,
)
from streamlda.scaleout.shards import Shard, rows_of
from streamlda.spectral.moments import Moments
from streamlda.stream.ingest import Counts
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import limit_threads, one_blas_thread

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Plan:
    """All that the tasks of a round share.

    Attributes
    ----------
    settings : EngineSettings
    whitening : ndarray of shape (d, m)
        W of the round.
    triple_columns : int
        t; 0 for a sketch, which takes the pair statistic only.
    vocabulary : Vocabulary or None
        None if shards are counts.
    about : tuple of str
        Digests of projection and words, which tell sums of this plan from those of another.
    """

    settings: EngineSettings
    whitening: NDArray[np.float64] = field(repr=False)
    triple_columns: int
    vocabulary: Vocabulary | None = None
    about: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        words = "" if self.vocabulary is None else self.vocabulary.fingerprint
        # Once for all tasks: it takes as long as to sum a hundred documents.
        object.__setattr__(self, "about", (projection_digest(self.whitening), words))


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of some shards, raw.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        Of `Moments.state`: 8 (3 d + d m + d t + 2 t^2 + 2 t^3) bytes, whatever the documents.
    usable : mapping of str to int
        The shards in it, by name, and how many documents of each were learned from.
    counts : Counts
        What was met.
    tokens_seen : int
        Tokens of all documents in the vocabulary.
    about : tuple of str
        Of the plan.
    """

    arrays: Arrays = field(repr=False)
    usable: Mapping[str, int]
    counts: Counts
    tokens_seen: int
    about: tuple[str, str]

    @property
    def documents(self) -> int:
        """Documents learned from."""
        return sum(self.usable.values())

    def engine(self, plan: Plan) -> Engine:
        """Return an engine with a shared projection, as if it had seen the documents itself.

        Of a sketch it makes a better projection, and no topics.
        """
        counters = Counters(
            documents_seen=self.documents,
            documents_skipped=int(self.arrays["tally"][1]),
            tokens_seen=self.tokens_seen,
        )
        moments = Moments.from_state(plan.whitening, self.arrays)
        return Engine.of_sums(plan.settings, counters, moments)


def accumulate(plan: Plan, shard: Shard, value: Any, before: int) -> Sums:
    """Sum all documents of a shard into one set of arrays; the task of a round.

    Time O(nnz m + t^3 / 3) a document, memory one set of arrays and one block of documents.

    Parameters
    ----------
    plan : Plan
    shard : Shard
    value : object
        Of a partition; None for files.
    before : int
        Number of the first document, by which documents are dealt to the two halves that noise is
        measured by (`streamlda.spectral.moments.half_of`). With the number of documents in all
        shards before, the halves are those of one engine over all.

    Raises
    ------
    SourceError
        If a file cannot be read, or an optional package is missing on the worker.
    InvalidDocumentsError
        If documents have other columns than the projection, or counts cannot be used.
    """
    counts = Counts()
    with told(shard):
        batches = (rows.encoded(plan.vocabulary, counts) for rows in rows_of(shard, value))
        return summed(plan, shard.name, batches, before, counts)


def summed(
    plan: Plan, name: str, batches: Iterable[DocumentBatch], before: int, counts: Counts
) -> Sums:
    """Sum batches under a name; `before` as in `accumulate`. `counts` is filled as they come."""
    moments = Moments(plan.whitening, plan.triple_columns)
    moments.documents = before
    tokens = 0
    # Workers are what runs side by side.
    with limit_threads(1), one_blas_thread():
        for batch in batches:
            moments.add(batch)
            tokens += int(batch.lengths.sum())
    moments.documents -= before
    return Sums(moments.state(), {name: moments.documents}, counts, tokens, plan.about)


def merged(one: Sums, *others: Sums) -> Sums:
    """Return the sums of disjoint sets of shards; none of them is changed.

    Time O((d m + t^3) sets), memory one set of arrays.

    Raises
    ------
    InvalidSettingError
        If a shard is in two, or they were taken through different projections or words.
    """
    arrays = {name: array.copy() for name, array in one.arrays.items()}
    usable = dict(one.usable)
    for other in others:
        twice = sorted({*usable} & {*other.usable})
        if twice:
            raise InvalidSettingError(
                f"each shard must be summed once, got shards={','.join(twice[:5])} in two sums; "
                "merge sums of disjoint shards"
            )
        shapes = [{n: a.shape for n, a in found.items()} for found in (arrays, other.arrays)]
        if one.about != other.about or shapes[0] != shapes[1]:
            (a_map, a_words), (b_map, b_words) = one.about, other.about
            raise InvalidSettingError(
                "sums can be merged only when they share map and words, got "
                f"map={a_map},{b_map} words={a_words[:16]},{b_words[:16]}; "
                "take all of them by one plan"
            )
        usable |= other.usable
        for name, array in arrays.items():
            array += other.arrays[name]
    # The number of triple columns is no sum.
    arrays["tally"][2] = one.arrays["tally"][2]
    return Sums(
        arrays,
        usable,
        added([one.counts, *(other.counts for other in others)]),
        one.tokens_seen + sum(other.tokens_seen for other in others),
        one.about,
    )


def added(parts: Sequence[Counts]) -> Counts:
    """Return what was met in all of them."""
    total = Counts()
    for part in parts:
        total.rejects.update(part.rejects)
        numbers = {
            name: getattr(total, name) + getattr(part, name)
            for name in ("documents", "short", "tokens", "unseen_tokens", "blanks")
        }
        total = replace(total, **numbers)
    return total


@contextmanager
def told(shard: Shard) -> Iterator[None]:
    """Name the shard in an error, which comes back from another machine."""
    try:
        yield
    except MissingExtraError as error:
        raise SourceError(f"{error}, on every worker: shard={shard.name!r}") from error
    except InvalidDocumentsError as error:
        raise InvalidDocumentsError(f"{error}: shard={shard.name!r}") from error
