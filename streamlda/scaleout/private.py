"""A private fit on a cluster: workers sum on the grid, the driver pays and draws the noise.

The sums of a stage are sums of *groups*: runs of slots of the whole stream, each summed in
floating point by itself and rounded to the grid (`streamlda.private.stage`). Groups add as whole
numbers. So a task takes whole groups, wherever the shards begin and end, and the raw sums that
come together at the driver are, number for number, those of one process: what is proven of its
releases holds here. What decides who sums what is the number of records of each shard, which is as
public as slots are.

Workers see raw documents and hold raw sums. They draw no noise, so a task that is done twice
releases nothing; everything that is published goes through the one ledger of the driver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.model.topic_model import TopicModel
from streamlda.private.budget import STATEMENTS, check_first_price
from streamlda.private.engine import PrivateEngine
from streamlda.private.learner import LEAST_LAST_STAGE, PrivateLearner
from streamlda.private.matrix import VOCABULARY
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage
from streamlda.scaleout.cluster import Run, check_cluster
from streamlda.scaleout.shards import SHARDS, Corpus, Shard, rows_of
from streamlda.scaleout.sums import told
from streamlda.stream.ingest import Counts
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import limit_threads, one_blas_thread

if TYPE_CHECKING:
    from distributed import Client

State = tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Aggregates:
    """Raw sums of some groups of a stage, in steps of the grid.

    Attributes
    ----------
    sums : mapping of str to ndarray of int64
    slots : tuple of (int, int)
        Slots of the stream that are in it, each from and to (not included).
    """

    sums: Mapping[str, NDArray[np.int64]] = field(repr=False)
    slots: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a shard: `first` to `last`, not included."""

    shard: Shard
    first: int
    last: int


def fit_privately(
    client: Client,
    corpus: Corpus,
    settings: PrivateSettings,
    releaser: ReleaseManager,
    vocabulary: Vocabulary | None = None,
) -> TopicModel:
    """Learn topics privately; the same releases as from one process over all shards.

    Every record of a file, and every row of a partition, takes a slot of the stream, in the order
    of the shards. Each shard is read once to count its records, and once or twice for its stages.

    Parameters
    ----------
    client : distributed.Client
    corpus : Corpus
    settings : PrivateSettings
        For documents as the unit, in windows, without noise in the state. A window that the
        documents do not fill up gives no snapshot, as in one process.
    releaser : Releaser
        Draws the noise, here; with its ledger it pays first.
    vocabulary : Vocabulary, optional
        Public: given or hashed. Needed for texts.

    Returns
    -------
    TopicModel
        Of the last snapshot, with its privacy statement.

    Raises
    ------
    InvalidSettingError
        If the settings ask for what cannot be shared out, or the vocabulary is not public.
    BudgetExceededError, LedgerError
        If the ledger does not allow it; before a document is read if that is known then.
    InsufficientDataError
        If there are fewer slots than a snapshot needs; nothing is released then.
    ClusterError, SourceError, InvalidDocumentsError
        As `streamlda.scaleout.fit.learn`. What was released before is paid for.
    """
    _check(settings, vocabulary)
    if releaser.ledger is not None:
        check_first_price(releaser.ledger, releaser.stream, settings, 0, None)
    check_cluster(client)
    name = VOCABULARY if vocabulary is None else STATEMENTS[vocabulary.kind]
    learner = PrivateLearner(settings, releaser, vocabulary=name)
    run = Run(client)
    lengths = _slots(run, corpus)
    total = sum(lengths)
    _, first, last = settings.stage_slots()[-1]
    if total < first + LEAST_LAST_STAGE * (last - first):
        raise InsufficientDataError(
            "a private snapshot needs a whole window of places, got "
            f"places={total} documents_per_snapshot={settings.documents_per_snapshot}; nothing "
            "was released: take smaller windows, or more documents"
        )
    engine = learner.engine
    while engine.stage is not None and engine.slots < total:
        stage = engine.stage
        begin, end = engine.slots, min(stage.last, total)
        found = _stage_sums(run, corpus, lengths, engine, stage, end, vocabulary)
        if sorted(found.slots)[0][0] != begin or sum(b - a for a, b in found.slots) != end - begin:
            raise InvalidDocumentsError(
                "every place must be summed once, got "
                f"slots={len(found.slots)} stage={stage.name!r} first={begin} last={end}; "
                "let partitions come out the same each time they are made"
            )
        engine.skip(end - begin)
        for block, sums in found.sums.items():
            stage.aggregates[block] += sums
        learner.settle()
    learner.finish()
    return learner.snapshot(vocabulary)


def _check(settings: PrivateSettings, vocabulary: Vocabulary | None) -> None:
    found = {
        "privacy_unit": (settings.privacy_unit, "document"),
        "mode": (settings.mode, "window"),
        "noise_in_state": (settings.noise_in_state, False),
    }
    wrong = [f"{name}={value!r}" for name, (value, wanted) in found.items() if value != wanted]
    if wrong:
        raise InvalidSettingError(
            "a private fit on a cluster must be by documents, in windows, without noise in the "
            f"state, got {' '.join(wrong)}: users must be counted, and such sums kept, in one "
            "place; fit in one process instead"
        )
    # A private choice takes delta of its own, which the statement here would not know of.
    if vocabulary is not None and vocabulary.kind not in ("given", "hashed"):
        raise InvalidSettingError(
            f"words must be public, got kind={vocabulary.kind!r}; bring a word list, use a hashed "
            "vocabulary, or fit in one process"
        )
    if vocabulary is not None and vocabulary.n_features != settings.n_features:
        raise InvalidSettingError(
            "settings must be for the words that documents are read by, got "
            f"n_features={settings.n_features} words={vocabulary.n_features}; pass "
            "n_features=vocabulary.n_features"
        )


def _slots(run: Run, corpus: Corpus) -> list[int]:
    tasks = [
        run.task("places", count_slots, shard, run.given(value))
        for shard, value in zip(corpus.shards, corpus.values, strict=True)
    ]
    counted: list[int] = run.compute(run.task("places", _listed, *tasks))
    return counted


def _listed(*numbers: int) -> list[int]:
    return list(numbers)


def count_slots(shard: Shard, value: Any) -> int:
    """Return how many slots a shard takes: rows of a partition, records of files. A task."""
    with told(shard):
        return sum(len(rows) for rows in rows_of(shard, value, blanks=True))


def _stage_sums(
    run: Run,
    corpus: Corpus,
    lengths: list[int],
    engine: PrivateEngine,
    stage: Stage,
    end: int,
    vocabulary: Vocabulary | None,
) -> Aggregates:
    """Sum the slots from the beginning of a stage to `end` on the workers."""
    arrays, values = engine.state()
    state = run.given((arrays, values))
    words = run.given(vocabulary)
    given = [run.given(value) for value in corpus.values]
    group = stage.mechanism.group_max or stage.mechanism.n_max
    groups = math.ceil((end - stage.first) / group)
    step = group * math.ceil(groups / SHARDS)
    leaves = []
    for first in range(stage.first, end, step):
        last = min(first + step, end)
        pieces = list(_pieces(corpus, lengths, first, last))
        parts = [piece for _, piece in pieces]
        needed = [given[number] for number, _ in pieces]
        name = stage.name.replace(" ", "-")
        leaves.append(run.task(name, sum_groups, state, words, first, parts, *needed))
    found: Aggregates = run.compute(run.tree("merge", merged, leaves))
    return found


def _pieces(
    corpus: Corpus, lengths: list[int], first: int, last: int
) -> Iterator[tuple[int, Piece]]:
    """Yield the rows of each shard that take slots `first` to `last`, with its number."""
    begin = 0
    for number, (shard, length) in enumerate(zip(corpus.shards, lengths, strict=True)):
        low, high = max(first - begin, 0), min(last - begin, length)
        if low < high:
            yield number, Piece(shard, low, high)
        begin += length


def sum_groups(
    state: State, vocabulary: Vocabulary | None, first: int, pieces: list[Piece], *values: Any
) -> Aggregates:
    """Sum the rows of some pieces, which begin a group; a task.

    Parameters
    ----------
    state : tuple
        `PrivateEngine.state` at the beginning of the stage, when its raw sums are 0.
    vocabulary : Vocabulary or None
    first : int
        Slot of the first row, where a group of the stage begins.
    pieces : list of Piece
    *values : object
        Of each piece's partition.

    Raises
    ------
    InvalidDocumentsError
        If a shard has fewer rows than when they were counted.
    """
    with limit_threads(1), one_blas_thread():
        engine = PrivateEngine.from_state(*state)
        stage = engine.stage
        assert stage is not None
        engine.skip(first - engine.slots)
        for piece, value in zip(pieces, values, strict=True):
            with told(piece.shard):
                for batch in _rows(piece, value, vocabulary):
                    engine.add(batch)
        return Aggregates(stage.state(), ((first, engine.slots),))


def _rows(piece: Piece, value: Any, vocabulary: Vocabulary | None) -> Iterator[DocumentBatch]:
    counts, at = Counts(), 0
    for rows in rows_of(piece.shard, value, blanks=True):
        low, high = max(piece.first - at, 0), min(piece.last - at, len(rows))
        if low < high:
            yield rows.slice(low, high).encoded(vocabulary, counts)
        at += len(rows)
        if at >= piece.last:
            return
    raise InvalidDocumentsError(
        "a shard must have the rows that were counted in it, got "
        f"rows={at} expected at least={piece.last}; let it come out the same each time"
    )


def merged(*parts: Aggregates) -> Aggregates:
    """Return the sums of disjoint sets of groups, at least one; none of them is changed.

    Raises
    ------
    InvalidSettingError
        If a slot is in two.
    """
    slots = sorted(own for part in parts for own in part.slots)
    for (_, last), (first, _) in pairwise(slots):
        if first < last:
            raise InvalidSettingError(
                f"each place must be summed once, got first={first} last={last} in two sums; "
                "merge sums of disjoint places"
            )
    sums = {name: counts.copy() for name, counts in parts[0].sums.items()}
    for part in parts[1:]:
        for name, counts in sums.items():
            counts += part.sums[name]
    return Aggregates(sums, tuple(slots))
