"""Merge of several engines that began alike: daemons of disjoint documents.

An engine that sums keeps sums of ``P2 W`` and ``P3(W, W, W)``: moments seen through its projection
W. Through one W the sums of two sets of documents add up to those of all; through two they do not.
Expected tokens by word and topic can be added where topic k of both is one topic
(`streamlda.refinement.shared_start`). So engines that are to be merged get one beginning before
their first document: W, or the start of a refinement, with the words, in a file of kind
``streamlda-map``. Only its owner can read it: frequencies of words can be read off it.

Positions tell documents that two engines have read: refused are one folder twice, a partition of
one Kafka topic (cluster, name and id) in two folders, and one list of files in two folders. A topic
and its mirror, or two lists that share a file, are not noticed. Private states are never merged.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from streamlda.container import read_arrays, valid_content, write_arrays
from streamlda.engine.engine import Engine
from streamlda.engine.following import Newest
from streamlda.engine.members import Beginning, digest_of
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.model.model_file import vocabulary_from, vocabulary_parts
from streamlda.refinement.shared_start import SharedStart
from streamlda.storage.checkpoint import OWNER_ONLY, Checkpoint, CheckpointIndex
from streamlda.storage.faults import FAULTS
from streamlda.storage.partitions import LOG, TURNED, Agreement
from streamlda.stream.source import Position
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import join_state, split_state, take_named, with_prefix

FORMAT, FORMAT_VERSION = "streamlda-map", 6

#: How often a folder is read again because its daemon saved, and so removed files, meanwhile.
ATTEMPTS = 5


@dataclass(frozen=True, eq=False)
class SharedProjection:
    """Common start of engines that share its vocabulary: W, (d, m), or a start of a refinement."""

    beginning: Beginning
    vocabulary: Vocabulary
    #: Of the engine that made it.
    settings: Mapping[str, Any]
    #: Agreement of daemons that share a folder, of which this is the file.
    daemons: Agreement | None = None

    @property
    def refines(self) -> bool:
        """True if engines refine from it; else they sum."""
        return isinstance(self.beginning, SharedStart)

    @property
    def digest(self) -> str:
        """16 hex digits that tell it from others."""
        return str(digest_of(self.beginning))

    def engine(self, settings: EngineSettings) -> Engine:
        """Return an engine that begins here."""
        if isinstance(self.beginning, SharedStart):
            return Engine(settings, shared_start=self.beginning)
        return Engine(settings, shared_projection=self.beginning)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a projection file."""
        about, arrays = vocabulary_parts(self.vocabulary)
        metadata: dict[str, Any] = {"settings": dict(self.settings), "vocabulary": about}
        metadata["daemons"] = self.daemons and self.daemons._asdict()
        if isinstance(self.beginning, SharedStart):
            own, metadata["start"] = split_state(self.beginning.state())
            arrays |= with_prefix(own, "start.")
        else:
            arrays["whitening"] = self.beginning
        write_arrays(path, FORMAT, FORMAT_VERSION, arrays, metadata, mode=OWNER_ONLY)


def save_projection(
    path: str | os.PathLike[str],
    engine: Engine,
    vocabulary: Vocabulary,
    *,
    renew: bool = False,
    daemons: Agreement | None = None,
) -> SharedProjection:
    """Write the shared beginning of an engine; with `renew` or without one, that of a snapshot."""
    shared = None if renew else engine.beginning
    beginning = engine.new_beginning() if shared is None else shared
    made = SharedProjection(beginning, vocabulary, asdict(engine.settings), daemons)
    made.save(path)
    return made


def load_projection(path: str | os.PathLike[str]) -> SharedProjection:
    """Read a file of `SharedProjection.save`, checked."""
    arrays, metadata, _ = read_arrays(path, FORMAT, FORMAT_VERSION)
    with valid_content("projection", path, remedy="make the projection again"):
        own, beginning = vocabulary_from(metadata["vocabulary"], arrays.get("words")), None
        assert own is not None
        if "start" in metadata:
            start = join_state(take_named(arrays, "start."), metadata["start"])
            beginning = SharedStart.from_state(start)
        daemons = metadata["daemons"] and Agreement(**metadata["daemons"])
        found = arrays["whitening"] if beginning is None else beginning
        return SharedProjection(found, own, metadata["settings"], daemons)


def read_turned(folder: Path) -> SharedStart | None:
    """Return the start that daemons of a folder begin again from, if their stream turned."""
    try:
        found = (folder / TURNED).stat()
    except FileNotFoundError:
        return None
    return _read_turned(folder / TURNED, found.st_ino, found.st_mtime_ns)


@lru_cache(1)
def _read_turned(path: Path, *version: int) -> SharedStart:
    """Read the start, again only where it has been replaced."""
    start = load_projection(path).beginning
    assert isinstance(start, SharedStart)
    return start


def check_same_words(one: Vocabulary, other: Vocabulary, where: str) -> None:
    """Raise `VocabularyError`, naming the file or folder `where`, if the columns differ."""
    FAULTS.check(
        one.fingerprint == other.fingerprint,
        "other words",
        kinds=(one.kind, other.kind),
        words=(one.n_features, other.n_features),
        path=where,
    )


def read_newest_engine(folder: str | os.PathLike[str]) -> tuple[Checkpoint, Engine]:
    """Read the newest whole generation of a folder, without disturbing its daemon.

    The engine has learned the documents that waited. Nothing is written, but that SQLite undoes
    what a crash left half done in the index.
    """
    path = Path(os.path.realpath(folder))
    FAULTS.check((path / "index").is_file(), "no index", path=str(path))
    index = CheckpointIndex(path)
    for _ in range(ATTEMPTS - 1):
        rows = index.rows()
        with suppress(ModelFileError, FileNotFoundError):
            checkpoint, engine = _read_newest(path, index)
            if not checkpoint.skipped:
                return checkpoint, engine
        if index.rows() == rows:
            break  # Nothing was saved meanwhile: it is damage, and not a race.
    return _read_newest(path, index)


def _read_newest(path: Path, index: CheckpointIndex) -> tuple[Checkpoint, Engine]:
    try:
        checkpoint = index.newest()
    except InvalidSettingError as error:
        raise FAULTS.make("private merge", path=str(path)) from error
    if checkpoint is None:
        raise FAULTS.make("no checkpoint", path=str(path))
    engine = checkpoint.restore()
    assert isinstance(engine, Engine)
    if checkpoint.rows is not None:
        engine.add(checkpoint.rows)
    return checkpoint, engine


@dataclass(frozen=True, eq=False)
class MergedCheckpoints:
    """One engine with the documents of all folders, and the checkpoints in their order.

    `tried` are the documents since a turn of one of them that were tried last, 0 without;
    `turned` is the start that all are to begin again from, which the engine has done.
    """

    engine: Engine
    vocabulary: Vocabulary
    checkpoints: tuple[Checkpoint, ...]
    tried: int
    turned: SharedStart | None


def merge_checkpoints(
    folders: Sequence[str | os.PathLike[str]], start: Beginning | None = None, tried: int = 0
) -> MergedCheckpoints:
    """Return one engine with all that the newest checkpoints of several daemons have learned.

    Where their stream has turned, it begins again from their newest documents if that predicts
    these better, and where it has not, with a new topic if many are predicted worst
    (`streamlda.engine.following`). `start` is the latest one of all, if it is known; `tried` are
    the documents since a turn that were tried before: twice as many are tried again.
    """
    taken: dict[str, Checkpoint] = {}
    merged: Engine | None = None
    kept: list[Newest] = []
    since = 0
    for folder in folders:
        path = os.path.realpath(folder)
        if path in taken:
            raise FAULTS.make("merged twice", paths=(path, path))
        checkpoint, engine = read_newest_engine(path)
        for before, other in taken.items():
            if (both := overlap(other.position, checkpoint.position)) is not None:
                raise FAULTS.make("merged twice", both=both, paths=(before, path))
        member = engine.following
        if member is not None and (newest := member.newest) is not None:
            since = max(since, member.since_turn)
            kept.append(newest)
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
    if isinstance(start, SharedStart):
        merged.begin_again(start)
    turned = None
    if tried <= since < 2 * tried:
        since = tried
    elif kept:
        turned = merged.turn(kept, since)
    return MergedCheckpoints(merged, checkpoints[0].vocabulary, checkpoints, since, turned)


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
