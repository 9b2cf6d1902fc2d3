"""Checkpoints: the state of a learner and the positions of its source, of one moment, or none.

A folder of checkpoints has an ``index`` with a row for each generation (`streamlda.storage.index`),
and files of each: ``state-000007``; its vocabulary, ``words-000007``; and ``rows-000007``, if there
is any of it: documents that wait for their block, as counts, and, after `BESIDE`, arrays that the
pipeline keeps for models to show. No two generations share a file.

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

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import failure, require
from streamlda.container import read_arrays, to_json, valid_content, write_arrays
from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.errors import (
    InvalidSettingError,
    LedgerError,
    ModelFileError,
    NewerFormatError,
    OlderFormatError,
)
from streamlda.model.model_file import STATE_FORMAT
from streamlda.privacy.ledger import LedgerReader, digest_file
from streamlda.private.engine import PrivateEngine
from streamlda.private.learner import PrivateLearner
from streamlda.storage.index import OWNER_ONLY, CheckpointIndex, Row
from streamlda.stream.source import Position
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays, named

STATE_VERSION = 2
WORDS_FORMAT, WORDS_VERSION = "streamlda-checkpoint-words", 1
ROWS_FORMAT, ROWS_VERSION = "streamlda-checkpoint-rows", 1

#: Files of a generation.
PARTS = ("state", "words", "rows")

#: Begins the names of arrays that are no documents, in ``rows``.
BESIDE = "beside."


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
    #: Ledger and its epoch when the checkpoint was made; None if the run is not private.
    ledger_id: str | None
    epoch: int | None
    #: Problems of newer generations; empty for the newest. To be logged as errors.
    skipped: tuple[str, ...]
    #: Releases begun since then, for which the caller must make up: 0, or 1 if that was allowed.
    releases_behind: int
    _path: Path
    _rows: Path | None

    def restore(self, learner: PrivateLearner | None = None) -> Engine | PrivateLearner:
        """Return the engine, or fill a new private learner, as `load_state`.

        Time O(bytes), memory twice the size of the state.
        """
        if learner is None:
            return load_state(self._path)
        return load_state(self._path, learner, releases_behind=self.releases_behind)

    def rows(self) -> DocumentBatch | None:
        """Return the documents that waited for their block, or None."""
        arrays = {k: v for k, v in self._read_rows().items() if not k.startswith(BESIDE)}
        if not arrays:
            return None
        return DocumentBatch(**arrays, n_features=self.vocabulary.n_features, integral=False)

    def beside(self) -> Arrays:
        """Return the arrays of `Pipeline.beside`."""
        return named(self._read_rows(), BESIDE)

    def _read_rows(self) -> Mapping[str, NDArray[Any]]:
        if self._rows is None:
            return {}
        return read_arrays(self._rows, ROWS_FORMAT, ROWS_VERSION).arrays


class PendingCheckpoint(NamedTuple):
    """A copy of what a checkpoint holds, not written yet. Made by `Store.capture`."""

    arrays: Arrays
    metadata: dict[str, Any]
    rows: Arrays
    vocabulary: Vocabulary
    body: dict[str, Any]

    @property
    def size_bytes(self) -> int:
        """Bytes of its arrays."""
        return sum(a.nbytes for a in (*self.arrays.values(), *self.rows.values()))


def copy_into(spare: NDArray[Any] | None, array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of an array, in the spare one if it has the same form.

    Memory that was written to before is filled several times as fast as new memory.
    """
    if spare is None or spare.shape != array.shape or spare.dtype != array.dtype:
        return np.array(array, order="C")
    np.copyto(spare, array)
    return spare


def write_words(path: Path, vocabulary: Vocabulary) -> dict[str, Any]:
    """Write the vocabulary of a generation; return the description of the file."""
    text = to_json({"metadata": vocabulary.metadata(), "words": vocabulary.words})
    data = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    write_arrays(path, WORDS_FORMAT, WORDS_VERSION, {"text": data}, {}, mode=OWNER_ONLY)
    return _describe(path)


def write_learner(folder: Path, name: str, pending: PendingCheckpoint) -> dict[str, Any]:
    """Write state and rows of a generation; return the descriptions of the files."""
    rows, state = folder / f"rows-{name}", folder / f"state-{name}"
    if pending.rows:
        write_arrays(rows, ROWS_FORMAT, ROWS_VERSION, pending.rows, {}, mode=OWNER_ONLY)
    write_state(state, pending.arrays, pending.metadata)
    return {"rows": _describe(rows) if pending.rows else None, "state": _describe(state)}


def _describe(path: Path) -> dict[str, Any]:
    digest, size_bytes = digest_file(path)
    return {"name": path.name, "digest": digest, "size_bytes": size_bytes}


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
    paths = {part: folder / body[part]["name"] for part in PARTS if body[part] is not None}
    for part, path in paths.items():
        found, stored = _describe(path), body[part]
        require(
            found == stored,
            "a file of a checkpoint must be unaltered",
            name=path.name,
            size_bytes=found["size_bytes"],
            stored=stored["size_bytes"],
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
    words = read_arrays(paths["words"], WORDS_FORMAT, WORDS_VERSION).arrays["text"]
    values = json.loads(words.tobytes())
    return Checkpoint(
        generation=row.number,
        position=body["position"],
        vocabulary=Vocabulary.from_metadata(values["metadata"], values["words"]),
        about=body["about"],
        ledger_id=body["ledger_id"],
        epoch=body["epoch"],
        skipped=skipped,
        releases_behind=behind,
        _path=paths["state"],
        _rows=paths.get("rows"),
    )


def save_state(path: str | os.PathLike[str], learner: Engine | PrivateLearner) -> None:
    """Write the state of a learner to a file that only its owner can read, whole or not at all.

    A private learner ends its running group of documents here (`PrivateEngine.state`): save at
    record slots or times that do not depend on document text. Its next release makes the file
    useless.
    """
    write_state(path, *collect_state(learner))


def collect_state(learner: Engine | PrivateLearner) -> tuple[Arrays, dict[str, Any]]:
    """Return arrays, which are still those of the learner, and metadata of a state file."""
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
            **_run_of(learner),
            "missed": learner.lost[-1] if learner.lost else None,
            "ledger_id": ledger.ledger_id,
            "epoch": ledger.generation,
        }
    return arrays, {"state": state, "run": run}


def write_state(path: str | os.PathLike[str], arrays: Arrays, metadata: dict[str, Any]) -> None:
    """Write what `collect_state` returned, for its owner only."""
    write_arrays(path, STATE_FORMAT, STATE_VERSION, arrays, metadata, mode=OWNER_ONLY)


def load_state(
    path: str | os.PathLike[str],
    learner: PrivateLearner | None = None,
    *,
    releases_behind: int = 0,
) -> Engine | PrivateLearner:
    """Return the learner of a state file, bit for bit.

    A private state fills a new `learner` with the settings, the ledger and the first record slot of
    the saved one. The caller makes up for `releases_behind`, the releases that were begun since the
    save (`PrivateLearner.catch_up`). Time O(bytes), memory twice the size of the file.
    """
    file = read_arrays(path, STATE_FORMAT, STATE_VERSION)
    remedy = "start in an empty folder, after the last cohort of the ledger"
    with valid_content("state", path, remedy=remedy, but=(InvalidSettingError, LedgerError)):
        state, run = file.metadata["state"], file.metadata["run"]
        require(
            (run is None) == (learner is None),
            "a private state must be loaded into a new PrivateLearner, and another state into none",
            private=run is not None,
            learner=learner is not None,
            path=str(path),
            remedy="pass the learner that fits",
        )
        if learner is None:
            return Engine.from_state(file.arrays, state)
        _check_fits(path, learner, state, run, releases_behind)
        engine = PrivateEngine.from_state(file.arrays, state)
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
    require(
        ledger is not None and not learner.documents_seen,
        "a private state must be loaded into a new learner with its ledger",
        ledger=ledger and str(ledger.path),
        documents_seen=learner.documents_seen,
        remedy="open the ledger that the state was made with, and make a new learner",
        error=LedgerError,
    )
    assert ledger is not None
    ledger.check_epoch(run["epoch"] + releases_behind, run["ledger_id"])
    found = _run_of(learner)
    others = [
        f"{name}={found[name]!r} (saved: {run[name]!r})"
        for name in found
        if found[name] != run[name]
    ]
    others += learner.settings.differing(state["settings"])
    require(
        not others,
        f"a state must go on with the settings it was made with, not {', '.join(others)}",
        path=str(path),
        remedy="use those, or drop the state and begin after the last cohort",
    )


def _run_of(learner: PrivateLearner) -> dict[str, Any]:
    return {
        "first_place": learner.first_slot,
        "vocabulary": learner.vocabulary,
        "delta": learner.delta,
        "secure": learner.releaser.noise.secure,
    }
