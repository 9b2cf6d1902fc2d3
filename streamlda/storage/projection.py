"""A shared map in a file: the W that several engines sum through, and its words.

A map file is a checked file of `streamlda.container` of kind ``streamlda-map``, version 1,
readable and writable by its owner only: how often words occur, and together, can be told from W. It
has the arrays ``whitening`` (F64, (d, m): W, leading directions first) and ``vocabulary`` (U8: the
vocabulary as JSON text), and the metadata ``fingerprint`` (of the vocabulary) and ``settings`` (of
the engine that made W). What it is for is told in `streamlda.storage.merge`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.container import ArraysFile, read_arrays, to_json, write_arrays
from streamlda.engine.engine import Engine
from streamlda.engine.warmup import projection_digest
from streamlda.errors import InvalidSettingError, ModelFileError, StreamLDAError, VocabularyError
from streamlda.storage.state import OWNER_ONLY
from streamlda.text.vocabulary import Vocabulary

MAP_FORMAT, MAP_VERSION = "streamlda-map", 1


@dataclass(frozen=True, eq=False)
class SharedProjection:
    """A map for several engines, with the words that it is a map of.

    Attributes
    ----------
    whitening : ndarray of shape (d, m), float64
        W, for `Engine(settings, shared_projection=...)`.
    vocabulary : Vocabulary
        Of d words. Engines that share the map must use it.
    settings : mapping
        Of the engine that made it, as plain JSON values; K and oversampling make up m.
    """

    whitening: NDArray[np.float64]
    vocabulary: Vocabulary
    settings: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """16 hex digits that tell W from other maps."""
        return projection_digest(self.whitening)


def save_projection(
    path: str | os.PathLike[str], engine: Engine, vocabulary: Vocabulary, *, anew: bool = False
) -> SharedProjection:
    """Write the best map of an engine to a file that only its owner can read, whole or not at all.

    Time O(d m^2), memory O(d m).

    Parameters
    ----------
    path : str or path-like
        A file of that name is replaced.
    engine : Engine
        With the solver ``"whitened-tensor"``. Its shared map is saved, if it has one, so that
        others can join it; else the map that its next round would begin with.
    vocabulary : Vocabulary
        Of the engine.
    anew : bool, default False
        Make a better map even if the engine has a shared one: for a new beginning of all.

    Raises
    ------
    InvalidSettingError
        If the solver makes maps of another kind, or the vocabulary has another size.
    InsufficientDataError
        If the map is to be made from fewer than 2 documents.
    OSError
        If the file cannot be written; what was there before stays.
    """
    if vocabulary.n_features != engine.settings.n_features:
        raise InvalidSettingError(
            "a map must be saved with the vocabulary of its engine, got "
            f"words={vocabulary.n_features} n_features={engine.settings.n_features}; pass that one"
        )
    shared = None if anew else engine.shared_projection
    whitening = engine.better_projection() if shared is None else shared
    text = to_json({"metadata": vocabulary.metadata(), "words": vocabulary.words})
    arrays: dict[str, NDArray[Any]] = {
        "whitening": whitening,
        "vocabulary": np.frombuffer(text.encode("ascii"), dtype=np.uint8),
    }
    settings = asdict(engine.settings)
    metadata = {"fingerprint": vocabulary.fingerprint, "settings": settings}
    write_arrays(path, MAP_FORMAT, MAP_VERSION, arrays, metadata, mode=OWNER_ONLY)
    return SharedProjection(whitening, vocabulary, settings)


def load_projection(
    path: str | os.PathLike[str], vocabulary: Vocabulary | None = None
) -> SharedProjection:
    """Read a file of `save_projection`, checked. Time O(bytes), memory twice the file's size.

    Parameters
    ----------
    path : str or path-like
    vocabulary : Vocabulary, optional
        The words that documents will be read by, if they are known already.

    Raises
    ------
    FileNotFoundError, PermissionError, OSError
        As the system gives them, if the file cannot be opened.
    ModelFileError
        If it is not a whole, unaltered map file.
    NewerFormatError
        If a later version of streamlda wrote it.
    VocabularyError
        If the map is one of other words.
    """
    file = read_arrays(path, MAP_FORMAT, MAP_VERSION)
    try:
        found = _map_from(file)
    except (StreamLDAError, LookupError, TypeError, ValueError) as error:
        raise ModelFileError(
            "a map file must hold a valid map, got "
            f"error={type(error).__name__}({str(error)[:200]!r}) path={str(path)!r}; "
            "it was not written by streamlda: make the map again"
        ) from error
    if vocabulary is not None:
        check_same_words(found.vocabulary, vocabulary, str(path))
    return found


def _map_from(file: ArraysFile) -> SharedProjection:
    whitening = file.arrays["whitening"]
    words = json.loads(file.arrays["vocabulary"].tobytes())
    vocabulary = Vocabulary.from_metadata(words["metadata"], words["words"])
    if vocabulary.fingerprint != file.metadata["fingerprint"]:
        raise ValueError("the fingerprint is not that of the vocabulary")
    if whitening.ndim != 2 or whitening.dtype != np.float64 or not np.isfinite(whitening).all():
        raise ValueError(f"{whitening.dtype} of shape {whitening.shape} is no finite map")
    if len(whitening) != vocabulary.n_features:
        raise ValueError(f"{len(whitening)} rows for {vocabulary.n_features} words")
    return SharedProjection(whitening, vocabulary, dict(file.metadata["settings"]))


def check_same_words(one: Vocabulary, other: Vocabulary, where: str) -> None:
    """Raise `VocabularyError`, naming the file or folder `where`, if the columns differ."""
    if one.fingerprint != other.fingerprint:
        raise VocabularyError(
            "documents that are summed through one map must be read by the same words, got "
            f"fingerprint={one.fingerprint[:16]},{other.fingerprint[:16]} "
            f"kind={one.kind},{other.kind} words={one.n_features},{other.n_features} "
            f"path={where!r}; use one vocabulary, that of the map file, for all"
        )
