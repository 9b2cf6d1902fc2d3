"""Names of topics, by ids that last: given by hand or by a function, kept in the model.

A model holds names as ``settings["topic_names"]``, by the id of the topic (`Topics.ids`), so that
a topic that leaves a stream and comes back has its name again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamlda.model.faults import check
from streamlda.model.matching import match_topics
from streamlda.model.topics import LONGEST_NAME, TOPIC_NAMES, Model, Topics, check_name

#: Returns a name for a topic (None or "": none), by its words and its documents.
Label = Callable[[list[str], list[Mapping[str, Any]]], str | None]


def rename(model: Model, names: Mapping[int, str | None]) -> Model:
    """Return the model with names of topics, by their rows; None takes a given name away.

    Names are kept by the id of a topic, through updates, merging and files, and shown wherever
    its words are. Names of the seeds are those of topics without another.

    Raises
    ------
    InvalidSettingError
        If a topic is none of the model, or a name is no line of 1 to 100 characters.

    Examples
    --------
    >>> model.rename({3: "sport"})  # doctest: +SKIP
    """
    found, ids = dict(model.settings.get(TOPIC_NAMES, {})), model.ids
    for row, name in names.items():
        is_topic = type(row) is int and 0 <= row < len(ids)
        check(is_topic, "topic to name", topic=row, topics=len(ids))
        found.pop(str(ids[row]), None)
        if name is not None:
            check_name(name)
            found[str(ids[row])] = name
    return _set_names(model, found)


def label_topics(model: Model, label: Label, *, n_words: int = 10) -> Model:
    """Return the model with the names that a function of yours finds for its topics.

    Nothing is sent anywhere but by `label`.

    Parameters
    ----------
    label : callable
        Gets the words of a topic, the first first, and its documents (``id``, ``proportion``,
        and ``text`` where the fit kept it; none of a private model), and returns a name. None
        and "" leave the topic without one.
    n_words : int, default 10
        Words of a topic.

    Examples
    --------
    >>> model.label_topics(lambda words, documents: " / ".join(words[:2]))  # doctest: +SKIP
    """
    held = None if model.counts_slots else model.representative_documents
    found = {}
    for k, words in enumerate(model.top_words(n_words)):
        documents: list[Mapping[str, Any]] = [] if held is None else [*held[k]]
        found[k] = label([word for word, _ in words], documents) or None
    return rename(model, found)


def name_rows(model: Model, names: Sequence[str | None]) -> Model:
    """Return the model with these names of its topics, and no others."""
    own = zip(model.ids, names, model.seed_names, strict=True)
    return _set_names(
        model, {str(i): name for i, name, seed in own if name is not None and name != seed}
    )


def carry_names(model: Model, earlier: Topics) -> Model:
    """Return the model with the names of the same topics of an earlier one.

    Topics are the same by their ids, and where a model has none by `match_topics`.
    """
    given: Mapping[str, str] = earlier.settings.get(TOPIC_NAMES, {})
    if not given:
        return model
    if not (model.has_ids and earlier.has_ids):
        ids, names = model.ids, [given.get(str(id_)) for id_ in earlier.ids]
        pairs = match_topics(earlier, model)
        given = {str(ids[j]): name for i, j, _ in pairs if (name := names[i]) is not None}
    return _set_names(model, given)


def join_names(names: Sequence[str | None]) -> str | None:
    """Return the name of a topic that is made of topics with these."""
    parts = dict.fromkeys(part for name in names if name is not None for part in name.split(" + "))
    return " + ".join(parts)[:LONGEST_NAME] or None


def _set_names(model: Model, given: Mapping[str, str]) -> Model:
    rest = {name: value for name, value in model.settings.items() if name != TOPIC_NAMES}
    return replace(model, settings=rest | ({TOPIC_NAMES: dict(given)} if given else {}))
