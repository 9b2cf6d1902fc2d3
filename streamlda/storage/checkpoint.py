"""Checkpoints: the state of a learner and the positions of its source, of one moment, or none.

A folder of checkpoints has an ``index`` with a row for each generation (`streamlda.storage.index`),
and a file of each, ``state-000007``: the arrays of the learner, its words, documents that wait for
their block, as counts, and arrays that the pipeline keeps for models to show. A file has its own
name inside: that of another generation is not taken for it.

All of it has sums without noise: it is as secret as the documents. A private state is restored with
its ledger only: after a later release, the documents of the running stage would take part twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from streamlda.checks import failure, require
from streamlda.container import ArraysFile, read_arrays, valid_content, write_arrays
from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.errors import (
    InvalidSettingError,
    LedgerError,
    ModelFileError,
    NewerFormatError,
    OlderFormatError,
)
from streamlda.model.model_file import STATE_FORMAT, vocabulary_from, vocabulary_parts
from streamlda.privacy.ledger import LedgerReader
from streamlda.private.engine import PrivateEngine
from streamlda.private.learner import PrivateLearner
from streamlda.storage.index import OWNER_ONLY, CheckpointIndex, Row
from streamlda.stream.source import Position
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays, named, with_prefix

STATE_VERSION = 3

#: Begin the names of arrays in the file of a state.
LEARNER, ROWS, BESIDE = "learner.", "rows.", "beside."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole generation, from which a run resumes."""

    #: From 1.
    generation: int
    #: Position of the source at the moment of the state, for `Source.seek`.
    position: Position
    vocabulary: Vocabulary = field(repr=False)
    #: Plain JSON values that were stored beside the state.
    about: dict[str, Any]
    #: Documents that waited for their block, if any.
    rows: DocumentBatch | None = field(repr=False)
    #: The arrays of `Pipeline.beside`.
    beside: Arrays = field(repr=False)
    #: Problems of newer generations; empty for the newest. To be logged as errors.
    skipped: tuple[str, ...]
    #: Releases begun since then, for which the caller must make up: 0, or 1 if that was allowed.
    releases_behind: int
    _path: Path

    def restore(self, learner: PrivateLearner | None = None) -> Engine | PrivateLearner:
        """Return the engine, or fill a new private learner, as `load_state`."""
        return load_state(self._path, learner, releases_behind=self.releases_behind)


class PendingCheckpoint(NamedTuple):
    """A copy of what a checkpoint holds, not written yet. Made by `Store.capture`."""

    arrays: Arrays
    metadata: dict[str, Any]
    body: dict[str, Any]

    @property
    def size_bytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def collect_state(
    learner: Engine | PrivateLearner,
    vocabulary: Vocabulary | None = None,
    rows: DocumentBatch | None = None,
    beside: Mapping[str, NDArray[Any]] | None = None,
) -> tuple[Arrays, dict[str, Any]]:
    """Return arrays, still those of the learner, and metadata of a state file.

    A private learner ends its running group of documents: save at times that no text decides.
    """
    run = None
    if isinstance(learner, Engine):
        arrays, state = learner.state()
    else:
        ledger = learner.releaser.ledger
        if ledger is None:
            raise failure(
                "a private state must be saved beside a ledger, without which nothing notices that "
                "its documents are released twice",
                ledger=None,
                remedy="run with a ledger",
            )
        arrays, state = learner.engine.state()
        run = {
            **_describe_run(learner),
            "missed": learner.lost[-1] if learner.lost else None,
            "ledger_id": ledger.ledger_id,
            "epoch": ledger.generation,
        }
    about, words = vocabulary_parts(vocabulary)
    waiting = {} if rows is None or not rows.n_documents else rows.arrays
    arrays = with_prefix(arrays, LEARNER) | with_prefix(waiting, ROWS) | words
    arrays |= with_prefix(beside or {}, BESIDE)
    return arrays, {"state": state, "run": run, "vocabulary": about}


def write_state(path: str | os.PathLike[str], arrays: Arrays, metadata: dict[str, Any]) -> None:
    """Write what `collect_state` returned for its owner only, whole or not at all."""
    named_here = metadata | {"name": Path(path).name}
    write_arrays(path, STATE_FORMAT, STATE_VERSION, arrays, named_here, mode=OWNER_ONLY)


def read_state(path: str | os.PathLike[str]) -> ArraysFile:
    """Read a file of `write_state`, checked."""
    return read_arrays(path, STATE_FORMAT, STATE_VERSION)


def read_newest(
    folder: Path,
    index: CheckpointIndex,
    ledger: LedgerReader | None = None,
    *,
    catch_up: bool = False,
) -> Checkpoint | None:
    """Return the newest whole generation of a folder, as `Store.newest`."""
    rows = index.rows()
    problems: list[str] = []
    for row in rows:
        try:
            return _read_generation(folder, row, ledger, tuple(problems), catch_up)
        except (ModelFileError, FileNotFoundError) as error:
            if isinstance(error, NewerFormatError | OlderFormatError):
                raise
            problems.append(f"generation {row.number}: {error}")
    if not rows:
        return None
    raise failure(
        f"one of {len(rows)} checkpoints must be whole, and none is: {'; '.join(problems)}",
        path=str(folder),
        remedy="restore the folder from a copy, or start in an empty one",
        error=ModelFileError,
    )


def _read_generation(
    folder: Path, row: Row, ledger: LedgerReader | None, skipped: tuple[str, ...], catch_up: bool
) -> Checkpoint:
    if not row.is_whole:
        raise ModelFileError(f"the checksum of row {row.number} of the index differs")
    body = json.loads(row.text)
    path = folder / body["name"]
    arrays, metadata, _ = read_state(path)
    require(
        metadata["name"] == path.name,
        "a file of a checkpoint must be that of its generation",
        name=path.name,
        found=metadata["name"],
        remedy="restore it from a copy",
        error=ModelFileError,
    )
    require(
        (body["epoch"] is None) == (ledger is None),
        "a private checkpoint must be loaded with its ledger, and another without",
        epoch=body["epoch"],
        ledger=ledger and str(ledger.path),
        remedy="run with the settings it was made with, or in an empty folder",
    )
    behind = 0
    if ledger is not None:
        behind = int(catch_up and body["epoch"] == ledger.generation - 1)
        ledger.check_epoch(body["epoch"] + behind, body["ledger_id"])
    vocabulary = vocabulary_from(metadata["vocabulary"], arrays.get("words"))
    assert vocabulary is not None
    rows, width = named(arrays, ROWS), vocabulary.n_features
    return Checkpoint(
        generation=row.number,
        position=body["position"],
        vocabulary=vocabulary,
        about=body["about"],
        rows=DocumentBatch(**rows, n_features=width, integral=False) if rows else None,
        beside=named(arrays, BESIDE),
        skipped=skipped,
        releases_behind=behind,
        _path=path,
    )


def load_state(
    path: str | os.PathLike[str],
    learner: PrivateLearner | None = None,
    *,
    releases_behind: int = 0,
) -> Engine | PrivateLearner:
    """Return the learner of a state file, bit for bit; a private state fills a new `learner`."""
    file = read_state(path)
    remedy = "start in an empty folder, after the last cohort of the ledger"
    with valid_content("state", path, remedy=remedy, but=(InvalidSettingError, LedgerError)):
        arrays, state, run = (
            named(file.arrays, LEARNER),
            file.metadata["state"],
            file.metadata["run"],
        )
        require(
            (run is None) == (learner is None),
            "a private state must be loaded into a new PrivateLearner, and another state into none",
            private=run is not None,
            learner=learner is not None,
            path=str(path),
            remedy="pass the learner that fits",
        )
        if learner is None:
            return Engine.from_state(arrays, state)
        _check_fits(path, learner, state, run, releases_behind)
        engine = PrivateEngine.from_state(arrays, state)
    learner.engine = engine
    if run["missed"] is not None:
        learner.lost.append(str(run["missed"]))
    return learner


def _check_fits(
    path: str | os.PathLike[str],
    learner: PrivateLearner,
    state: Any,
    run: Any,
    releases_behind: int,
) -> None:
    ledger = learner.releaser.ledger
    if ledger is None or learner.documents_seen:
        raise failure(
            "a private state must be loaded into a new learner with its ledger",
            ledger=ledger and str(ledger.path),
            documents_seen=learner.documents_seen,
            remedy="open the ledger that the state was made with, and make a new learner",
            error=LedgerError,
        )
    ledger.check_epoch(run["epoch"] + releases_behind, run["ledger_id"])
    others = [
        f"{name}={found!r} (saved: {run[name]!r})"
        for name, found in _describe_run(learner).items()
        if found != run[name]
    ]
    others += learner.settings.differing(state["settings"])
    require(
        not others,
        f"a state must go on with the settings it was made with, not {', '.join(others)}",
        path=str(path),
        remedy="use those, or drop the state and begin after the last cohort",
    )


def _describe_run(learner: PrivateLearner) -> dict[str, Any]:
    return {
        "first_place": learner.first_slot,
        "vocabulary": learner.vocabulary,
        "delta": learner.delta,
        "secure": learner.releaser.noise.secure,
    }
