"""The state of a refinement after each round, in a folder that a later fit goes on from.

A fit whose client, scheduler or workers died reads the documents again and comes to the same start;
the rounds that were saved are not made again. The topics are those of a fit that was never cut
short, to the last bit.
"""

from __future__ import annotations

import tempfile
from dataclasses import astuple
from hashlib import blake2b
from pathlib import Path
from typing import Any

import fsspec

from streamlda.container import parse_arrays, write_arrays
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.schedule import LocalSchedule
from streamlda.scaleout.faults import check
from streamlda.utils.arrays import State

KIND, FORMAT_VERSION, NAME = "refinement-round", 2, "refinement.state"


class SavedRounds:
    """The newest round, in a folder or at a URL that fsspec can write: as secret as documents."""

    def __init__(self, folder: str) -> None:
        self._system, self._folder = fsspec.core.url_to_fs(folder)
        self._path = f"{str(self._folder).rstrip('/')}/{NAME}"

    def load(self, digest: str) -> tuple[int, State] | None:
        """Return how many rounds were made, and the state then; None if there is none.

        Raises `InvalidSettingError` if it is of another start, and `ModelFileError` if the file is
        damaged.
        """
        if not self._system.exists(self._path):
            return None
        data = self._system.cat_file(self._path)
        found = parse_arrays(data, KIND, FORMAT_VERSION, self._path)
        check(found.metadata["digest"] == digest, "state", folder=self._folder)
        return int(found.metadata["rounds"]), (found.arrays, found.metadata["values"])

    def save(self, digest: str, rounds: int, state: State) -> None:
        """Take the place of what was saved, in one step."""
        arrays, values = state
        about: dict[str, Any] = {"digest": digest, "rounds": rounds, "values": values}
        self._system.makedirs(self._folder, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            # Elsewhere an object takes its name when it is whole.
            local = "file" in self._system.protocol
            path = Path(self._path) if local else Path(folder, NAME)
            write_arrays(path, KIND, FORMAT_VERSION, arrays, about, mode=0o600)
            if not local:
                self._system.put_file(str(path), self._path)


def digest_of(start: TopicModel, plan: LocalSchedule, documents: int) -> str:
    """Return what tells a refinement from others: its start, its steps, and how much it reads."""
    digest = blake2b(repr((astuple(plan), documents)).encode(), digest_size=16)
    for array in (start.components, start.alpha, start.background):
        digest.update(array.tobytes())
    return digest.hexdigest()
