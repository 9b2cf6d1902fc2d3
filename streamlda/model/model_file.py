"""The file of a topic model: arrays and metadata, as `docs/reference-model-file.md` describes it.

Version 1 is read as well: it lacks ``prevalence``, ``interval``, ``timeline`` and
``representative_documents``. No code is ever read from the file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.container import ArraysFile, read_arrays, write_arrays
from streamlda.errors import ModelFileError, require
from streamlda.model.faults import check, fault
from streamlda.model.over_time import Interval, Timeline
from streamlda.text.vocabulary import Vocabulary

FORMAT = "streamlda-topic-model"
FORMAT_VERSION = 2

#: Kind of a file of raw state (`streamlda.storage.checkpoint`), which is never taken for a model.
STATE_FORMAT = "streamlda-state"

OBJECTS = ("settings", "diagnostics", "versions", "privacy")
COUNTS = ("documents_seen", "tokens_seen")
ARRAYS = ("components", "alpha", "background")
#: Members that version 1 has not.
ADDED = ("interval", "timeline", "representative_documents")

_check_file = partial(require, error=ModelFileError)


def write(path: str | os.PathLike[str], model: Mapping[str, Any]) -> None:
    """Write a model, given as its members by name, whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {name: model[name] for name in ARRAYS}
    stored, words = vocabulary_parts(model["vocabulary"])
    metadata: dict[str, Any] = {"created": model["created"], "vocabulary": stored}
    metadata |= dict.fromkeys(ADDED)
    metadata["representative_documents"] = model["representative_documents"]
    if model["prevalence"] is not None:
        arrays["prevalence"] = model["prevalence"]
    if model["interval"] is not None:
        metadata["interval"] = model["interval"].to_json()
    if model["timeline"] is not None:
        metadata["timeline"] = model["timeline"].to_json()
        arrays["timeline_tokens"] = model["timeline"].tokens
    for name in OBJECTS + COUNTS:
        metadata[name] = model[name]
    write_arrays(path, FORMAT, FORMAT_VERSION, arrays | words, metadata)


def read(path: str | os.PathLike[str]) -> ArraysFile:
    """Return a model file, its checksums checked and its content not yet."""
    try:
        return read_arrays(path, FORMAT, FORMAT_VERSION, oldest=1)
    except ModelFileError as error:
        if _holds_state(path):
            raise fault("state", format=STATE_FORMAT, path=str(path)) from error
        raise


def _holds_state(path: str | os.PathLike[str]) -> bool:
    try:
        read_arrays(path, STATE_FORMAT, sys.maxsize, oldest=0)
    except ModelFileError:
        return False
    return True


def members(file: ArraysFile) -> dict[str, Any]:
    """Return the arguments that make the model of a file again."""
    arrays: dict[str, Any] = dict(file.arrays)
    metadata = dict(file.metadata)
    words = arrays.pop("words", None)
    added = () if file.format_version == 1 else ADDED
    names = {"vocabulary", "created", *OBJECTS, *COUNTS, *added}
    rule = "the metadata must be those of the format"
    _check_file(set(metadata) == names, rule, names=[*metadata][:16])
    optional = {"prevalence"} if added else set()
    names = {*ARRAYS} | ({"timeline_tokens"} if metadata.get("timeline") is not None else set())
    rule = "the arrays must be those of the format"
    _check_file(set(arrays) - optional == names, rule, names=[*arrays][:8])
    for name, array in arrays.items():
        rule = "an array must be float64"
        _check_file(array.dtype == np.float64, rule, array=name, dtype=array.dtype)
        array.flags.writeable = False  # not shared, so that it need not be copied
    if metadata.get("interval") is not None:
        metadata["interval"] = Interval(**metadata["interval"])
    if metadata.get("timeline") is not None:
        tokens = arrays.pop("timeline_tokens")
        metadata["timeline"] = Timeline(tokens=tokens, **metadata["timeline"])
    vocabulary = vocabulary_from(metadata.pop("vocabulary"), words)
    return {**arrays, **metadata, "vocabulary": vocabulary}


def vocabulary_parts(
    vocabulary: Vocabulary | None,
) -> tuple[dict[str, Any] | None, dict[str, NDArray[Any]]]:
    """Return metadata and arrays from which `vocabulary_from` makes a vocabulary again."""
    if vocabulary is None:
        return None, {}
    listed = vocabulary.listed
    return vocabulary.metadata(), {} if listed is None else {"words": words_to_bytes(listed)}


def vocabulary_from(stored: Any, words: NDArray[Any] | None) -> Vocabulary | None:
    """Return a vocabulary, or None, of the metadata and words that it was stored as."""
    if stored is None:
        check(words is None, "words")
        return None
    return Vocabulary.from_metadata(stored, None if words is None else _words_from_bytes(words))


def words_to_bytes(words: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return the words as they are stored."""
    try:
        text = "\n".join(words).encode("utf-8")
    except UnicodeEncodeError as error:
        raise fault("surrogate") from error
    if text.count(b"\n") != len(words) - 1:
        raise fault("line feed", word_id=next(i for i, word in enumerate(words) if "\n" in word))
    return np.frombuffer(text, np.uint8)


def _words_from_bytes(data: NDArray[Any]) -> tuple[str, ...]:
    is_text = data.dtype == np.uint8 and data.ndim == 1
    check(is_text, "bytes of words", dtype=data.dtype, ndim=data.ndim)
    return tuple(data.tobytes().decode("utf-8").split("\n"))
