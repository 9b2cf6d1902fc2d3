"""Merge of several engines that began alike: what daemons of disjoint documents have learned.

An engine that sums keeps sums of ``P2 W`` and ``P3(W, W, W)``: moments seen through its projection
W. Through one W the sums of two sets of documents add up to those of all. Through two they do not,
and neither can be turned into the other, for W has far fewer columns than there are words. Expected
tokens by word and topic can be added where topic k of both is one topic
(`streamlda.refinement.shared_start`). So engines that are to be merged get one beginning before
their first document (`streamlda.storage.projection`).

Positions tell documents that two engines have read: refused are one folder twice, a partition of
one Kafka topic (cluster, name and id) in two folders, and one list of files in two folders. A topic
and its mirror, two lists that share a file, or two runs over one pipe are not noticed. Private
states are never merged: a private daemon pays for and publishes its own snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
from streamlda.stream.source import Position
from streamlda.text.vocabulary import Vocabulary

#: How often a folder is read again because its daemon saved, and so removed files, meanwhile.
ATTEMPTS = 5


class NewestCheckpoint(NamedTuple):
    """The newest whole generation of a folder, and its engine with the documents that waited."""

    checkpoint: Checkpoint
    engine: Engine


def read_newest_engine(folder: str | os.PathLike[str]) -> NewestCheckpoint:
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
    taken: dict[str, Checkpoint] = {}
    merged: Engine | None = None
    for folder in folders:
        path = os.path.realpath(folder)
        if path in taken:
            raise _twice(path, path, "the same folder")
        checkpoint, engine = read_newest_engine(path)
        for before, other in taken.items():
            if (both := overlap(other.position, checkpoint.position)) is not None:
                raise _twice(before, path, both)
        if merged is None:
            merged = engine
        else:
            first, other = next(iter(taken.items()))
            check_same_words(other.vocabulary, checkpoint.vocabulary, path)
            try:
                merged.merge(engine)
            except InvalidSettingError as error:
                raise InvalidSettingError(f"{error}: path={first!r},{path!r}") from error
        taken[path] = checkpoint
    assert merged is not None
    checkpoints = tuple(taken.values())
    return MergedCheckpoints(merged, checkpoints[0].vocabulary, checkpoints)


def overlap(one: Position, other: Position) -> str | None:
    """Return the documents that two positions have both read, as ``name=value``; None if none."""
    if all(key in one and key in other for key in LOG):
        if any(one[key] != other[key] for key in LOG):
            return None
        partitions = sorted({*one["offsets"]} & {*other["offsets"]}, key=int)
        return f"topic={one['topic']!r} partitions={','.join(partitions)}" if partitions else None
    if "list" in one and one["list"] == other.get("list"):
        return f"files={one.get('files')} list={one['list']!r}"
    return None


def _twice(one: str, other: str, what: str) -> StreamLDAError:
    return failure(
        f"each document must be in one of the states that are merged, not in both: {what}",
        paths=(one, other),
        remedy="name the folders of daemons with disjoint partitions, each once",
    )
