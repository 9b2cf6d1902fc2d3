"""The newest model of a file that is replaced, or of a folder of snapshots."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import NamedTuple

from streamlda.checks import require
from streamlda.errors import ModelFileError, VocabularyError
from streamlda.model.topic_model import TopicModel, load
from streamlda.storage.snapshots import Snapshots, fingerprint
from streamlda.text.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


class NamedModel(NamedTuple):
    """A model that reads text, with the digest of its file."""

    model: TopicModel
    words: Vocabulary
    #: Number of the snapshot; None for a file.
    number: int | None
    digest: str


class NewestModel:
    """Reader of a model that may be replaced, or followed by a newer snapshot.

    A damaged model is skipped, with a warning, while there is another.
    """

    def __init__(self, path: str | os.PathLike[str], snapshots: Snapshots | None = None) -> None:
        self._path = Path(path)
        if snapshots is None and self._path.is_dir():
            snapshots = Snapshots(self._path)
        self._snapshots = snapshots
        self._seen: object = None
        self._newest: NamedModel | None = None

    def find(self) -> NamedModel | None:
        """Return the newest model; None if a folder has none yet."""
        seen: object = None
        try:
            number = None if self._snapshots is None else self._snapshots.latest()
            path = self._path
            if self._snapshots is not None:
                if number is None:
                    return self._newest
                path = self._snapshots.path(number)
            status = path.stat()
            seen = number, status.st_ino, status.st_mtime_ns, status.st_size
            if seen == self._seen:
                return self._newest
            found = _read(path, number)
        except (OSError, ModelFileError) as error:
            if self._newest is None:
                raise
            if seen is not None and seen != self._seen:
                logger.warning("a newer model cannot be read: error=%s", type(error).__name__)
                self._seen = seen
            return self._newest
        before = self._newest
        grown = "vocabulary_changes" in found.model.settings
        same = before is None or before.words.fingerprint == found.words.fingerprint
        require(
            same or grown,
            "a newer model must have the words of the one before",
            path=str(self._path),
            number=found.number,
            remedy="begin with the new model: start again",
            error=VocabularyError,
        )
        self._seen, self._newest = seen, found
        return found


def _read(path: Path, number: int | None) -> NamedModel:
    model, digest = load(path), ""
    # A file may be replaced while it is read.
    while (found := fingerprint(path)) != digest:
        model, digest = load(path), found
    return NamedModel(model, get_words(model), number, digest)


def get_words(model: TopicModel) -> Vocabulary:
    """Return the vocabulary of a model that reads text."""
    if model.vocabulary is None:
        raise VocabularyError(
            "a model must have a vocabulary to read text, got a model of matrices; "
            "learn one with streamlda fit"
        )
    return model.vocabulary
