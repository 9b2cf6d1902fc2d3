"""Numbers, lists and privacy statements as the page writes them: without mathematics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, exp, inf
from typing import Any, NamedTuple
from unicodedata import bidirectional

from streamlda.errors import InvalidSettingError
from streamlda.model.table import percent, plural
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.ledger import figure, plain
from streamlda.privacy.statement import PRIVATE, SEEDED, check_statement, statement_lines


def short(value: float) -> str:
    """Return a number with one decimal at most: no eye sees more, and the page is smaller."""
    return f"{value:.1f}".removesuffix(".0")


def utc(moment: str) -> str:
    """Return an ISO time to the minute, in UTC."""
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def pairs(values: Mapping[str, Any]) -> str:
    """Return settings or versions in a line, without those that are None."""
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
        if value is not None
    )


def join_words(words: Iterable[str], between: str = " ") -> str:
    """Return words in a line, those that run from the right isolated, so that all stay in order."""
    return between.join(f"\u2068{word}\u2069" if _from_right(word) else word for word in words)


def _from_right(word: str) -> bool:
    return any(bidirectional(letter) in ("R", "AL", "AN") for letter in word)


def lines(value: Any) -> str:
    """Return a list in lines, and nothing for what is not a list: diagnostics may hold anything."""
    return "\n".join(map(str, value)) if isinstance(value, list) else ""


def counts_slots(model: TopicModel) -> bool:
    """Tell whether a model counts record slots: its number of documents is private."""
    return model.privacy.get("statement") in (PRIVATE, SEEDED)


FILTERS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (percent, plural, short, utc, pairs, join_words, lines, counts_slots)
}


#: Where the columns come from, in words.
_VOCABULARIES = {
    "public": "The list of words was public, and does not come from the documents.",
    "hashed": "Words are known by numbers that a fixed rule gives; no list of them was learned.",
    "private selection": "The list of words was chosen from the documents under this same promise.",
    "columns of a matrix: public": "The columns were public, and do not come from the documents.",
}


class Statement(NamedTuple):
    """A privacy statement and the models that have it: in words, in lines, and in full as JSON."""

    labels: list[str]
    is_private: bool
    sentences: list[str]
    lines: str
    full: str


def statements(models: Sequence[TopicModel], labels: Sequence[str]) -> list[Statement]:
    """Return the statements of models, each once, that of the newest model first."""
    owners: dict[str, list[str]] = {}
    for label, model in zip(labels, models, strict=True):
        full = json.dumps(dict(model.privacy), indent=1, ensure_ascii=False, sort_keys=True)
        owners.setdefault(full, []).append(label)
    found = []
    for full, names in reversed(owners.items()):
        statement = json.loads(full)
        lines = "\n".join(statement_lines(statement))
        found.append(
            Statement(names, is_private(statement), in_plain_words(statement), lines, full)
        )
    return found


def is_private(statement: Mapping[str, Any]) -> bool:
    """Tell whether a statement says that the model is private, and what it says adds up."""
    if statement.get("statement") != PRIVATE:
        return False
    try:
        check_statement(statement)
    except InvalidSettingError:
        return False
    return True


def in_plain_words(statement: Mapping[str, Any]) -> list[str]:
    """Return what a statement of any version promises, a sentence or two each."""
    if not is_private(statement):
        return _no_promise(statement)
    epsilon, delta = float(statement["epsilon"]), float(statement["delta"])
    unit = statement["privacy_unit"]
    one = unit
    if unit == "user":
        most = statement["documents_per_user"]
        one = f"user, with at most {most:,} documents in a stage,"
    change = f"blank records stood in place of one {one}"
    if statement["neighboring_relation"] == "replace-one":
        change = f"one {one} were replaced by another"
    factor = exp(epsilon) if epsilon < 700 else inf
    # The best guess between two equally likely worlds, under (epsilon, delta).
    right = 1.0 if factor == inf else (factor + delta) / (factor + 1.0)
    times = f"e^{plain(epsilon)}" if factor == inf else figure(factor, upward=True)
    guess = min(100.0, ceil(1000 * right) / 10)
    return [
        f"These topics are differentially private with epsilon {plain(statement['epsilon'])} and "
        f"delta {plain(statement['delta'])}: if {change}, no outcome would become more than "
        f"{times} times as likely, apart from a chance of "
        f"{plain(statement['delta'])}.",
        f"Someone who knows everything else, and finds it equally likely that a given {unit} is in "
        f"the data or not, guesses right in at most {guess:.1f} % of cases after seeing this page, "
        "and in 50 % without it.",
        _scope(statement),
        f"Noise of at least {figure(statement['noise_multiplier'], upward=False)} times what one "
        f"{unit} can contribute was added to every sum from which the topics are computed. It was "
        "drawn from the secure source of the operating system.",
        _VOCABULARIES[statement["vocabulary"]],
        "Everything else on this page follows from those sums, and costs no more privacy.",
        "Not covered: " + "; ".join(statement["excluded"]) + ".",
    ]


def _no_promise(statement: Mapping[str, Any]) -> list[str]:
    claim = statement.get("statement")
    secret = "Keep this page as secret as the documents."
    if claim == SEEDED:
        return [
            "Nothing is promised: the noise was drawn from a seed, and anyone who knows it can "
            "remove the noise. Such a run is a trial.",
            secret,
        ]
    if claim == PRIVATE:
        return ["The model says that it is private, but its statement is inconsistent.", secret]
    return [
        "Nothing is promised: topics were learned without noise, and a rare word or an unusual "
        "topic may come from a single document.",
        secret,
    ]


def _scope(statement: Mapping[str, Any]) -> str:
    what = "This covers all that was and will be released under the same ledger"
    if statement["mode"] == "prefix":
        most = statement["horizon"]
        limit = "" if most is None else f", at most {most:,} of them"
        return f"{what}: every snapshot of all documents since the start{limit}."
    return f"{what}: snapshots of windows of the stream that do not overlap."
