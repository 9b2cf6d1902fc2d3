"""A shared projection in a file: the W that several engines sum through, and its words.

A projection file is a checked file of `streamlda.container` of kind ``streamlda-map``, version 1,
readable and writable by its owner only: how often words occur, and together, can be read off W. It
has the arrays ``whitening`` (F64, (d, m): W, leading directions first) and ``vocabulary`` (U8: the
vocabulary as JSON text), and the metadata ``fingerprint`` (of the vocabulary) and ``settings`` (of
the engine that made W). `streamlda.storage.merge` says what it is for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.container import ArraysFile, read_arrays, to_json, valid_content, write_arrays
from streamlda.engine.engine import Engine
from streamlda.engine.warmup import projection_digest
from streamlda.errors import VocabularyError
from streamlda.storage.state import OWNER_ONLY
from streamlda.text.vocabulary import Vocabulary

FORMAT, FORMAT_VERSION = "streamlda-map", 1


@dataclass(frozen=True, eq=False)
class SharedProjection:
    """W for several engines, (d, m), float64: `Engine(settings, shared_projection=...)`.

    Engines that share it must use its vocabulary, of d words. `settings` are those of the engine
    that made it, as plain JSON values; K and oversampling make up m.
    """

    whitening: NDArray[np.float64]
    vocabulary: Vocabulary
    settings: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """16 hex digits that tell W from other projections."""
        return projection_digest(self.whitening)


def save_projection(
    path: str | os.PathLike[str], engine: Engine, vocabulary: Vocabulary, *, renew: bool = False
) -> SharedProjection:
    """Write the projection of an engine to a file for its owner only, whole or not at all.

    That is the shared one, if the engine has one, so that others can join it; else the one that its
    next round would begin with. `renew` makes a better one even so: for a new beginning of all.
    Needs the solver ``"whitened-tensor"``. Time O(d m^2), memory O(d m).
    """
    require(
        vocabulary.n_features == engine.settings.n_features,
        "a projection must be saved with the vocabulary of its engine",
        words=vocabulary.n_features,
        n_features=engine.settings.n_features,
        remedy="pass that one",
    )
    shared = None if renew else engine.shared_projection
    whitening = engine.better_projection() if shared is None else shared
    text = to_json({"metadata": vocabulary.metadata(), "words": vocabulary.words})
    arrays: dict[str, NDArray[Any]] = {
        "whitening": whitening,
        "vocabulary": np.frombuffer(text.encode("ascii"), dtype=np.uint8),
    }
    settings = asdict(engine.settings)
    metadata = {"fingerprint": vocabulary.fingerprint, "settings": settings}
    write_arrays(path, FORMAT, FORMAT_VERSION, arrays, metadata, mode=OWNER_ONLY)
    return SharedProjection(whitening, vocabulary, settings)


def load_projection(
    path: str | os.PathLike[str], vocabulary: Vocabulary | None = None
) -> SharedProjection:
    """Read a file of `save_projection`, checked; its words must be those of `vocabulary`, if given.

    Time O(bytes), memory twice the file's size.
    """
    file = read_arrays(path, FORMAT, FORMAT_VERSION)
    with valid_content("projection", path, remedy="make the projection again"):
        found = _projection_from(file)
    if vocabulary is not None:
        check_same_words(found.vocabulary, vocabulary, str(path))
    return found


def _projection_from(file: ArraysFile) -> SharedProjection:
    whitening = file.arrays["whitening"]
    words = json.loads(file.arrays["vocabulary"].tobytes())
    vocabulary = Vocabulary.from_metadata(words["metadata"], words["words"])
    if vocabulary.fingerprint != file.metadata["fingerprint"]:
        raise ValueError("the fingerprint is not that of the vocabulary")
    if whitening.ndim != 2 or whitening.dtype != np.float64 or not np.isfinite(whitening).all():
        raise ValueError(f"{whitening.dtype} of shape {whitening.shape} is no finite projection")
    if len(whitening) != vocabulary.n_features:
        raise ValueError(f"{len(whitening)} rows for {vocabulary.n_features} words")
    return SharedProjection(whitening, vocabulary, dict(file.metadata["settings"]))


def check_same_words(one: Vocabulary, other: Vocabulary, where: str) -> None:
    """Raise `VocabularyError`, naming the file or folder `where`, if the columns differ."""
    require(
        one.fingerprint == other.fingerprint,
        "documents that are summed through one projection must be read by the same words",
        fingerprints=(one.fingerprint[:16], other.fingerprint[:16]),
        kinds=(one.kind, other.kind),
        words=(one.n_features, other.n_features),
        path=where,
        remedy="use one vocabulary, that of the projection, for all",
        error=VocabularyError,
    )
