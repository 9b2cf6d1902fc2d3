"""A shared beginning of several engines, in a file, so that they can be merged.

It is the projection W that all of them sum through, or the start that all of them refine from, with
the words (`streamlda.storage.merge`). The file is of kind ``streamlda-map`` and for its owner only:
frequencies of words can be read off it. It has the vocabulary as JSON text, the settings of the
engine that made it, and either the array ``whitening`` (W, leading directions first), or the arrays
``start.*`` and the metadata ``start`` of `SharedStart.state`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamlda.checks import require
from streamlda.container import read_arrays, to_json, valid_content, write_arrays
from streamlda.engine.engine import Engine
from streamlda.engine.members import Beginning, digest_of
from streamlda.engine.settings import EngineSettings
from streamlda.errors import VocabularyError
from streamlda.refinement.shared_start import SharedStart
from streamlda.storage.index import OWNER_ONLY
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays, named, with_prefix

FORMAT, FORMAT_VERSION = "streamlda-map", 3


@dataclass(frozen=True, eq=False)
class SharedProjection:
    """Common start of several engines: W, (d, m), float64, or the start of a refinement.

    Engines that share it must use its vocabulary, of d words. `settings` are those of the engine
    that made it, as plain JSON values; K and oversampling make up m.
    """

    beginning: Beginning
    vocabulary: Vocabulary
    settings: Mapping[str, Any]

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


def save_projection(
    path: str | os.PathLike[str], engine: Engine, vocabulary: Vocabulary, *, renew: bool = False
) -> SharedProjection:
    """Write a shared beginning to a file for its owner only, whole or not at all.

    It is the shared beginning of the engine itself, so that others can join it; else, or with
    `renew`, the topics of its snapshot, where they are refined, or the projection that its next
    round would begin with. Needs the solver ``"whitened-tensor"``. Time O(d m^2) and of a snapshot,
    memory O(d m).
    """
    require(
        vocabulary.n_features == engine.settings.n_features,
        "a projection must be saved with the vocabulary of its engine",
        words=vocabulary.n_features,
        n_features=engine.settings.n_features,
        remedy="pass that one",
    )
    shared = None if renew else engine.beginning
    beginning = engine.new_beginning() if shared is None else shared
    return write_projection(path, beginning, vocabulary, asdict(engine.settings))


def write_projection(
    path: str | os.PathLike[str],
    beginning: Beginning,
    vocabulary: Vocabulary,
    settings: Mapping[str, Any],
) -> SharedProjection:
    """Write a projection file, with the settings of the engine that made the beginning."""
    text = to_json({"metadata": vocabulary.metadata(), "words": vocabulary.words})
    arrays: Arrays = {"vocabulary": np.frombuffer(text.encode("ascii"), dtype=np.uint8)}
    metadata: dict[str, Any] = {"settings": dict(settings)}
    if isinstance(beginning, SharedStart):
        own, metadata["start"] = beginning.state()
        arrays |= with_prefix(own, "start.")
    else:
        arrays["whitening"] = beginning
    write_arrays(path, FORMAT, FORMAT_VERSION, arrays, metadata, mode=OWNER_ONLY)
    return SharedProjection(beginning, vocabulary, settings)


def load_projection(
    path: str | os.PathLike[str], vocabulary: Vocabulary | None = None
) -> SharedProjection:
    """Read a file of `save_projection`, checked; its words must be those of `vocabulary`, if given.

    Time O(bytes), memory twice the file's size.
    """
    arrays, metadata, _ = read_arrays(path, FORMAT, FORMAT_VERSION)
    with valid_content("projection", path, remedy="make the projection again"):
        words = json.loads(arrays["vocabulary"].tobytes())
        own = Vocabulary.from_metadata(words["metadata"], words["words"])
        if "start" in metadata:
            start = SharedStart.from_state(named(arrays, "start."), metadata["start"])
            found = SharedProjection(start, own, metadata["settings"])
        else:
            found = SharedProjection(arrays["whitening"], own, metadata["settings"])
    if vocabulary is not None:
        check_same_words(own, vocabulary, str(path))
    return found


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
