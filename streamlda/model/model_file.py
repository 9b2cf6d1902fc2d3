"""The file of a topic model: arrays and metadata, as `docs/reference-model-file.md` describes it.

Version 1 is read as well: it lacks ``prevalence``, ``interval``, ``timeline`` and
``representative_documents``. No code is ever read from the file.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.container import ArraysFile, write_arrays
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


def write(path: str | os.PathLike[str], model: Mapping[str, Any]) -> None:
    """Write a model, given as its members by name, whole or not at all."""
    arrays = {name: model[name] for name in (*ARRAYS, "prevalence") if model[name] is not None}
    metadata = {name: model[name] for name in ("created", *ADDED, *OBJECTS, *COUNTS)}
    metadata["vocabulary"], words = vocabulary_parts(model["vocabulary"])
    if (interval := model["interval"]) is not None:
        metadata["interval"] = interval.to_json()
    if (timeline := model["timeline"]) is not None:
        metadata["timeline"], arrays["timeline_tokens"] = timeline.to_json(), timeline.tokens
    write_arrays(path, FORMAT, FORMAT_VERSION, arrays | words, metadata)


def members(file: ArraysFile) -> dict[str, Any]:
    """Return the arguments that make the model of a file again."""
    arrays: dict[str, Any] = dict(file.arrays)
    metadata = dict(file.metadata)
    added = () if file.format_version == 1 else ADDED
    names = {"vocabulary", "created", *OBJECTS, *COUNTS, *added}
    check(set(metadata) == names, "metadata", names=[*metadata][:16])
    stored = metadata["vocabulary"]
    # Words without a vocabulary stay where nothing takes them.
    words = None if stored is None else arrays.pop("words", None)
    metadata["vocabulary"] = vocabulary_from(stored, words)
    for name, array in arrays.items():
        check(array.dtype == np.float64, "type of array", array=name, dtype=array.dtype)
        array.flags.writeable = False  # not shared, so that it need not be copied
    if metadata.get("interval") is not None:
        metadata["interval"] = Interval(**metadata["interval"])
    if metadata.get("timeline") is not None:
        tokens = arrays.pop("timeline_tokens")
        metadata["timeline"] = Timeline(tokens=tokens, **metadata["timeline"])
    return arrays | metadata


def vocabulary_parts(
    vocabulary: Vocabulary | None,
) -> tuple[dict[str, Any] | None, dict[str, NDArray[Any]]]:
    """Return metadata and arrays from which `vocabulary_from` makes a vocabulary again."""
    if vocabulary is None:
        return None, {}
    if (listed := vocabulary.listed) is None:
        return vocabulary.metadata(), {}
    for i, word in enumerate(listed):
        check("\n" not in word, "line feed", word_id=i)
    try:
        text = "\n".join(listed).encode("utf-8")
    except UnicodeEncodeError as error:
        raise fault("surrogate") from error
    return vocabulary.metadata(), {"words": np.frombuffer(text, np.uint8)}


def vocabulary_from(stored: Any, words: NDArray[Any] | None) -> Vocabulary | None:
    """Return a vocabulary, or None, of the metadata and words that it was stored as."""
    if stored is None:
        return None
    listed = None if words is None else words.tobytes().decode("utf-8").split("\n")
    return Vocabulary.from_metadata(stored, listed)
