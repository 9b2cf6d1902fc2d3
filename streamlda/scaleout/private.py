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
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import State
from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, SourceError
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.ledger import FingerprintKey, Provenance
from streamlda.privacy.ledger.fingerprints import value_of
from streamlda.privacy.ledger.sketches import Sketch
from streamlda.private.budget import STATEMENTS, check_first_price
from streamlda.private.engine import PrivateEngine
from streamlda.private.learner import PrivateLearner
from streamlda.private.matrix import VOCABULARY, check_rows, fingerprints_of
from streamlda.private.public_start import PublicTopics
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.released import spent
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage
from streamlda.scaleout.cluster import Run, check_cluster
from streamlda.scaleout.files import SHARDS
from streamlda.scaleout.shards import Corpus, Piece, Shard, batches_of, count_rows, task_of
from streamlda.scaleout.sums import added
from streamlda.stream.counts import RecordCounts
from streamlda.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, eq=False)
class Aggregates:
    """Raw sums of some groups of a stage, in steps of the grid.

    `slots` are the runs of slots of the stream that are in it, each from and to (not included), and
    `documents` a sample of the rows that they hold, where a ledger is to know them.
    """

    sums: Mapping[str, NDArray[np.int64]] = field(repr=False)
    slots: tuple[tuple[int, int], ...]
    counts: RecordCounts
    documents: Sketch = field(default_factory=Sketch, repr=False)


def fit_privately(
    client: Client,
    corpus: Corpus,
    settings: PrivateSettings,
    releaser: ReleaseManager,
    vocabulary: Vocabulary | None = None,
    public: PublicTopics | None = None,
) -> TopicModel:
    """Learn topics privately; the same releases as from one process over all shards.

    Every record of a file, and every row of a partition, takes a slot of the stream, in the order
    of the shards. Each shard is read once to count its records, and once or twice for its stages.
    Noise is drawn here, after the ledger of the releaser was paid; if that does not allow it, no
    document is read. A window that the documents do not fill up gives no snapshot, as in one
    process, and fewer slots than a snapshot needs release nothing. Texts need a vocabulary that is
    public: given or hashed. `public` is the public model of the settings, if they name one. If
    anything fails, what was released before is paid for.
    """
    _check(settings, vocabulary)
    ledger, key, before = releaser.ledger, None, 0
    if ledger is not None:
        before = ledger.generation
        check_first_price(ledger, settings, stream=releaser.stream)
        key, releaser.run = ledger.key, secrets.token_hex(8)
        documents = sample_of(Run(client), corpus, vocabulary, key)
        require(
            documents.documents > 0,
            "a private fit needs documents, and no row has a known word",
            remedy="check rows and words; nothing was spent",
            error=InsufficientDataError,
        )
        check_rows(ledger, documents, releaser.stream, Sketch())
        releaser.provenance = Provenance(key, ledger.known, releaser.stream, by_slots=True)
    name = VOCABULARY if vocabulary is None else STATEMENTS[vocabulary.kind]
    learner = PrivateLearner(settings, releaser, vocabulary=name, public=public)
    try:
        for _ in summed_stages(client, corpus, learner, vocabulary, key):
            if learner.due == 0 or learner.ends_well:
                learner.release(vocabulary)
        return learner.snapshot(vocabulary)
    except BaseException as error:
        if ledger is not None and (message := spent(ledger, before)):
            error.add_note(message)
        raise


def summed_stages(
    client: Client,
    corpus: Corpus,
    learner: PrivateLearner,
    vocabulary: Vocabulary | None,
    key: FingerprintKey | None = None,
    slots: int | None = None,
) -> Iterator[RecordCounts]:
    """Sum one stage after the other on the workers, and yield what was met in it.

    The caller makes what is due, and what may end there, before it goes on. With a `key`, rows are
    noted for the ledger; `slots` are those that the caller knows, who notes them.
    """
    settings, engine = learner.settings, learner.engine
    check_cluster(client)
    run = Run(client)
    lengths = row_counts(run, corpus)
    total = sum(lengths)
    require(
        slots in (None, total),
        "workers must find the records that the ledger will know",
        records=total,
        known=slots,
        remedy="nothing was released: fit files that nobody writes to, and that all machines see "
        "alike",
        error=SourceError,
    )
    require(
        total >= settings.least_slots,
        "a private snapshot needs a whole window of record slots",
        slots=total,
        documents_per_snapshot=settings.documents_per_snapshot,
        remedy="nothing was released: take smaller windows, or more documents",
        error=InsufficientDataError,
    )
    while (stage := engine.stage) is not None and (left := total - engine.slots) > 0:
        if learner.least_missing > left:
            # The rest gives no snapshot, and is not paid for.
            return
        begin, end = engine.slots, min(stage.last, total)
        found = _stage_sums(run, corpus, lengths, engine, stage, end, vocabulary, key)
        require(
            found.slots[0][0] == begin and sum(b - a for a, b in found.slots) == end - begin,
            "every slot must be summed once",
            slots=len(found.slots),
            stage=stage.name,
            first=begin,
            last=end,
            remedy="let partitions come out the same each time they are made",
            error=InvalidDocumentsError,
        )
        engine.skip(end - begin)
        for block, sums in found.sums.items():
            stage.aggregates[block] += sums
        if key is not None and learner.releaser.provenance is not None:
            learner.releaser.provenance.sketch.join(found.documents)
        yield found.counts


def _check(settings: PrivateSettings, vocabulary: Vocabulary | None) -> None:
    """Raise `InvalidSettingError` unless stages can be summed in several places."""
    found = {
        "privacy_unit": (settings.privacy_unit, "document"),
        "mode": (settings.mode, "window"),
        "noise_in_state": (settings.noise_in_state, False),
    }
    wrong: dict[str, Any] = {
        name: value for name, (value, wanted) in found.items() if value != wanted
    }
    require(
        not wrong,
        "a private fit on a cluster must be by documents, in windows, without noise in the state",
        **wrong,
        remedy="users must be counted, and such sums kept, in one place: fit in one process",
    )
    if vocabulary is None:
        return
    # A private choice takes delta of its own, which the statement here would not know of.
    require(
        vocabulary.kind in ("given", "hashed"),
        "words must be public",
        kind=vocabulary.kind,
        remedy="bring a word list, use a hashed vocabulary, or fit in one process",
    )
    require(
        vocabulary.n_features == settings.n_features,
        "settings must be for the words that documents are read by",
        n_features=settings.n_features,
        words=vocabulary.n_features,
        remedy="pass n_features=vocabulary.n_features",
    )


def row_counts(run: Run, corpus: Corpus) -> list[int]:
    """Return how many slots each shard takes: rows of a partition, records of files."""
    tasks = [
        run.task("slots", count_rows, shard, run.given(value))
        for shard, value in zip(corpus.shards, corpus.values, strict=True)
    ]
    counted: list[int] = run.compute(run.task("slots", lambda *counts: list(counts), *tasks))
    return counted


def sample_of(
    run: Run, corpus: Corpus, vocabulary: Vocabulary | None, key: FingerprintKey
) -> Sketch:
    """Return a sample of all rows, by what a ledger knows them by."""
    given = run.given((vocabulary, key))
    leaves = [
        run.task("documents", sample_shard, given, shard, run.given(value))
        for shard, value in zip(corpus.shards, corpus.values, strict=True)
    ]
    found: Sketch = run.compute(run.tree("merge", joined, leaves))
    return found


def sample_shard(
    read_by: tuple[Vocabulary | None, FingerprintKey], shard: Shard, value: Any
) -> Sketch:
    """Return a sample of the rows of a shard. A task."""
    (vocabulary, key), found = read_by, Sketch()
    with task_of(shard):
        for batch in batches_of(shard, value, vocabulary, RecordCounts(), slots=True):
            _take(found, batch, key)
    return found


def _take(found: Sketch, rows: DocumentBatch, key: FingerprintKey) -> None:
    for document in filter(None, fingerprints_of(rows, key)):
        found.add(value_of(document))


def joined(*parts: Sketch) -> Sketch:
    """Return a sample of the rows of all parts."""
    found = Sketch()
    for part in parts:
        found.join(part)
    return found


def _stage_sums(
    run: Run,
    corpus: Corpus,
    lengths: Sequence[int],
    engine: PrivateEngine,
    stage: Stage,
    end: int,
    vocabulary: Vocabulary | None,
    key: FingerprintKey | None,
) -> Aggregates:
    """Sum the slots from the beginning of a stage to `end` on the workers."""
    state, words = run.given(engine.state()), run.given((vocabulary, key))
    given = Corpus(corpus.shards, tuple(map(run.given, corpus.values)))
    group = stage.mechanism.group_max or stage.mechanism.n_max
    groups = math.ceil((end - stage.first) / group)
    step = group * math.ceil(groups / SHARDS)
    leaves = []
    for first in range(stage.first, end, step):
        pieces, values = given.pieces(lengths, first, min(first + step, end))
        name = stage.name.replace(" ", "-")
        leaves.append(run.task(name, sum_groups, state, words, first, pieces, *values))
    found: Aggregates = run.compute(run.tree("merge", merged, leaves))
    return found


def sum_groups(
    state: State,
    read_by: tuple[Vocabulary | None, FingerprintKey | None],
    first: int,
    pieces: list[Piece],
    *values: Any,
) -> Aggregates:
    """Sum the rows of some pieces, of which the first, in slot `first`, begins a group. A task.

    `state` is that of the engine at the beginning of the stage, when its raw sums are 0.
    """
    (vocabulary, key), documents = read_by, Sketch()
    counts, engine = RecordCounts(), PrivateEngine.from_state(*state)
    stage = engine.stage
    assert stage is not None
    engine.skip(first - engine.slots)
    for piece, value in zip(pieces, values, strict=True):
        with task_of(piece.shard):
            low, high = piece.first, piece.last
            rows = batches_of(
                piece.shard, value, vocabulary, counts, slots=True, first=low, last=high
            )
            for batch in rows:
                engine.add(batch)
                if key is not None:
                    _take(documents, batch, key)
    return Aggregates(stage.state(), ((first, engine.slots),), counts, documents)


def merged(*parts: Aggregates) -> Aggregates:
    """Return the sums of disjoint sets of groups, at least one; none of them is changed."""
    slots = sorted(own for part in parts for own in part.slots)
    for (_, last), (first, _) in pairwise(slots):
        require(
            last <= first,
            "each slot must be summed once",
            first=first,
            last=last,
            remedy="merge sums of disjoint slots",
        )
    sums = {name: counts.copy() for name, counts in parts[0].sums.items()}
    for part in parts[1:]:
        for name, counts in sums.items():
            counts += part.sums[name]
    records, documents = added(part.counts for part in parts), joined(*(p.documents for p in parts))
    return Aggregates(sums, tuple(slots), records, documents)
