"""Several engines as one: joining what daemons have learned from one beginning.

*Why one beginning.* An engine that sums keeps sums of ``P2 W`` and ``P3(W, W, W)``: moments seen
through its projection W. Through one and the same W the sums of two sets of documents add up to
those of all documents. Through two they do not, and neither can be turned into the other: W has far
fewer columns than there are words. An engine that refines keeps expected tokens by word and topic;
those of two can be added where topic k of both is one topic, as they are if both began with the
same ones. But each engine makes its own W and topics from its own first documents. So engines that
are to be merged, on one machine or many, are given one beginning before their first document. Make
it of an engine that has run for a while ::

    streamlda projection CHECKPOINTS --output FILE     of one daemon
    topics.projection_file = "FILE"                    of all, with new folders of checkpoints
    streamlda merge CHECKPOINTS... --output MODEL      at any time, while they run

`streamlda.refinement.shared_start` says how refined topics are merged, and how good they are.

*Twice the same documents.* Sums do not say what is in them; positions do, as far as they name what
was read. Refused are: one folder twice; a partition of one Kafka topic (cluster, name and id) in
two folders, read or only to be read; one list of files in two folders; and a copy of a folder
(equal positions and sums). A topic and its mirror, two lists or followed folders that share a
file, or two runs over one pipe are not noticed.

Private states are never merged: a private daemon pays for and publishes its own snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamlda.checks import failure, require
from streamlda.engine.engine import Engine
from streamlda.errors import (
    InsufficientDataError,
    InvalidSettingError,
    ModelFileError,
    StreamLDAError,
)
from streamlda.storage.checkpoint import Checkpoint, read_newest
from streamlda.storage.index import CheckpointIndex
from streamlda.storage.partitions import LOG
from streamlda.storage.projection import check_same_words
from streamlda.stream.illustrations import COLUMNS
from streamlda.stream.source import Position
from streamlda.text.column_words import ColumnWords, merge_words, open_column_words
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import named

#: How often a folder is read again because its daemon saved, and so removed files, meanwhile.
ATTEMPTS = 5


class NewestCheckpoint(NamedTuple):
    """The newest whole generation of a folder, and its engine.

    Documents that the daemon has read and not learned yet, for their block is not full, have been
    added to the engine.
    """

    checkpoint: Checkpoint
    engine: Engine


def newest_of(folder: str | os.PathLike[str]) -> NewestCheckpoint:
    """Read the newest whole generation of a folder, whose daemon may be running.

    The daemon is not disturbed: nothing is written, but that SQLite undoes what a crash left half
    done in the index. An older generation is taken where the newest is damaged, and its `skipped`
    says so. A private one is refused. Time O(bytes of the state), memory twice its size.
    """
    path = Path(os.path.realpath(folder))
    require(
        (path / "index").is_file(),
        "a folder of checkpoints must have its index",
        path=str(path),
        remedy="name the checkpoint.folder of a daemon",
        error=ModelFileError,
    )
    index, attempts = CheckpointIndex(path), 0
    while True:
        number, attempts = index.newest_number(), attempts + 1
        try:
            found, problem = _read_newest(path, index), None
        except (ModelFileError, FileNotFoundError) as error:
            found, problem = None, error
        if found is not None and not found.checkpoint.skipped:
            return found
        if attempts == ATTEMPTS or index.newest_number() == number:
            # Nothing was saved meanwhile: it is damage, and not a race.
            if found is None:
                assert problem is not None
                raise problem
            return found


def _read_newest(path: Path, index: CheckpointIndex) -> NewestCheckpoint:
    try:
        checkpoint = read_newest(path, index)
    except InvalidSettingError as error:
        raise failure(
            "a state that leaves its daemon must not be private",
            path=str(path),
            remedy="use the snapshots that the daemon publishes",
        ) from error
    if checkpoint is None:
        raise failure(
            "a folder of checkpoints must have one",
            generations=0,
            path=str(path),
            remedy="let the daemon save first",
            error=InsufficientDataError,
        )
    engine = checkpoint.restore()
    assert isinstance(engine, Engine)
    rows = checkpoint.rows()
    if rows is not None:
        engine.add(rows)
    return NewestCheckpoint(checkpoint, engine)


@dataclass(frozen=True, eq=False)
class MergedCheckpoints:
    """One engine with the documents of all folders, and the checkpoints in their order."""

    engine: Engine
    vocabulary: Vocabulary
    checkpoints: tuple[Checkpoint, ...]


def merge_checkpoints(folders: Sequence[str | os.PathLike[str]]) -> MergedCheckpoints:
    """Return one engine with all that the newest checkpoints of several daemons have learned.

    Of one folder it is the engine there, with or without a shared beginning. The order matters by
    rounding only. Time O(bytes of the states), memory three times that of one.
    """
    require(folders, "states to merge must be at least one, got none", remedy="name folders")
    taken: list[tuple[str, Checkpoint, str]] = []
    merged: Engine | None = None
    words: list[ColumnWords | None] = []
    for folder in folders:
        path = os.path.realpath(folder)
        if any(path == before for before, _, _ in taken):
            raise _twice(path, path, "the same folder")
        checkpoint, engine = newest_of(path)
        digest = _state_digest(engine)
        for before, other, other_digest in taken:
            copied = digest == other_digest and engine.documents_seen > 0
            both = overlap(other.position, checkpoint.position, copied=copied)
            if both is not None:
                raise _twice(before, path, both)
        if merged is None:
            merged = engine
        else:
            first = taken[0]
            check_same_words(first[1].vocabulary, checkpoint.vocabulary, path)
            try:
                merged.merge(engine)
            except InvalidSettingError as error:
                raise InvalidSettingError(f"{error}: path={first[0]!r},{path!r}") from error
        words.append(open_column_words(checkpoint.vocabulary, named(checkpoint.beside(), COLUMNS)))
        taken.append((path, checkpoint, digest))
    assert merged is not None
    checkpoints = tuple(checkpoint for _, checkpoint, _ in taken)
    together = merge_words(words)
    vocabulary = checkpoints[0].vocabulary if together is None else together.name_columns()
    return MergedCheckpoints(merged, vocabulary, checkpoints)


def overlap(one: Position, other: Position, *, copied: bool = False) -> str | None:
    """Return what two positions say that both have read, as ``name=value``; None if they do not.

    `copied` says that the sums of the two runs are equal: then equal positions are those of a copy.
    """
    if all(key in one and key in other for key in LOG):
        if any(one[key] != other[key] for key in LOG):
            return None
        partitions = sorted({*one["offsets"]} & {*other["offsets"]}, key=int)
        return f"topic={one['topic']!r} partitions={','.join(partitions)}" if partitions else None
    if "list" in one and one["list"] == other.get("list"):
        return f"files={one.get('files')} list={one['list']!r}"
    return "equal positions and sums" if copied and dict(one) == dict(other) else None


def _twice(one: str, other: str, what: str) -> StreamLDAError:
    return failure(
        f"each document must be in one of the states that are merged, not in both: {what}",
        paths=(one, other),
        remedy="name the folders of daemons with disjoint partitions, each once",
    )


def _state_digest(engine: Engine) -> str:
    arrays, _ = engine.state()
    digest = blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(arrays[name].reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
