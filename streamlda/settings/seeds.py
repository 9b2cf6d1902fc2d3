"""Seed words from settings and files, as columns of a vocabulary."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from streamlda.engine.settings import EngineSettings
from streamlda.errors import Faults, InvalidSettingError
from streamlda.private.settings import PrivateSettings
from streamlda.spectral.seeds import SeedTopic
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary

Seeded = TypeVar("Seeded", EngineSettings, PrivateSettings)

#: Unknown words that are shown.
SHOWN_WORDS = 10

_EXAMPLE = "write it as in 'space: orbit launch nasa'"
_FAULTS = Faults(
    {
        InvalidSettingError: {
            "same name": "seeded topics must have names of their own; name each once",
            "few topics": "there must be at least as many topics as seeded ones; ask for more "
            "topics, or seed fewer",
            "no word": "a seeded topic must have a word of the vocabulary; seed it by other words, "
            "or bring a vocabulary with these",
            "no words": f"a seeded topic must be a name, a colon and words; {_EXAMPLE}",
            "no file": "a seeded topic must be 'name: words', or the name of a file of such lines; "
            f"{_EXAMPLE}, or check the name",
            "no line": f"a file of seeds must have a line 'name: words'; {_EXAMPLE}",
        }
    }
)


class SeedWords(NamedTuple):
    """A name, and the words that a topic is to be about."""

    name: str
    words: tuple[str, ...]


def read_seeds(given: Sequence[str], n_topics: int) -> list[SeedWords]:
    """Return the seeds of settings: ``name: words``, and files of such lines."""
    found: list[SeedWords] = []
    for text in given:
        found += [_parsed(text)] if ":" in text else _read(text)
    names = [seed.name for seed in found]
    distinct = len(set(names))
    _FAULTS.check(distinct == len(names), "same name", seeded=len(names), names=distinct)
    _FAULTS.check(len(found) <= n_topics, "few topics", topics=n_topics, seeded=len(found))
    return found


def seed_topics(
    seeds: Sequence[SeedWords],
    columns_of: Callable[[str], list[int]],
    warn: Callable[[str], object] = lambda message: None,
) -> tuple[SeedTopic, ...]:
    """Return the seeds in columns; warn of words that are not known."""
    found, unknown = [], []
    for name, words in seeds:
        columns: dict[int, None] = {}
        for word in words:
            own = columns_of(word)
            columns |= dict.fromkeys(own)
            unknown += [word] * (not own)
        missing = {"topic": name, "words": len(words), "unknown": _listed(words)}
        _FAULTS.check(columns, "no word", **missing)
        found.append(SeedTopic(name, tuple(columns)))
    if unknown:
        warn(
            f"seed words should be words of the vocabulary, got unknown={len(unknown)}: "
            f"{_listed(unknown)}; they seed nothing"
        )
    return tuple(found)


def seed_by_columns(
    asked: Seeded, given: Sequence[str], columns: Mapping[str, Any], stacklevel: int = 3
) -> Seeded:
    """Return settings of an estimator with seeds that are names of its columns, or numbers."""
    known = names_of(names_of_columns(columns), asked.n_features)
    warn = partial(warnings.warn, stacklevel=stacklevel + 1)
    found = seed_topics(read_seeds(given, asked.n_components), known, warn)
    return replace(asked, seed_topics=found)


def seed_by_words(
    asked: Seeded,
    seeds: Sequence[SeedWords],
    vocabulary: Vocabulary,
    warn: Callable[[str], None] = lambda message: None,
) -> Seeded:
    """Return settings of a run with seeds that are words of its vocabulary."""
    return replace(asked, seed_topics=seed_topics(seeds, words_of(vocabulary), warn))


def names_of_columns(columns: Mapping[str, Any]) -> Sequence[str] | None:
    """Return the names of the columns of an estimator, by its attributes; None without any."""
    vocabulary: Vocabulary | None = columns.get("vocabulary_")
    return columns.get("feature_names_in_") if vocabulary is None else vocabulary.words


def words_of(vocabulary: Vocabulary) -> Callable[[str], list[int]]:
    """Return what finds the columns of a word as it would be read in a text."""
    return lambda word: [int(i) for i in vocabulary.token_ids([word])[0] if i >= 0]


def split_seeds(seeds: Sequence[SeedWords], analyzer: TextAnalyzer) -> list[str]:
    """Return the words of seeds as texts have them; `InvalidSettingError` where one has none."""
    analyze, found = analyzer.build_analyzer(), dict[str, int]()
    seed_topics(seeds, lambda word: [found.setdefault(each, len(found)) for each in analyze(word)])
    return list(found)


def names_of(names: Sequence[str] | None, n_features: int) -> Callable[[str], list[int]]:
    """Return what finds the column of a name, or without names of a number."""
    known = map(str, range(n_features)) if names is None else names
    numbers = {name: i for i, name in enumerate(known)}
    return lambda word: [numbers[word]] if word in numbers else []


def _parsed(given: str, **where: Any) -> SeedWords:
    name, colon, words = given.partition(":")
    is_whole = colon and name.strip() and words.split()
    _FAULTS.check(is_whole, "no words", **where or {"seed_topic": given[:80]})
    return SeedWords(name.strip(), tuple(dict.fromkeys(words.split())))


def _read(path: str) -> list[SeedWords]:
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise _FAULTS.make("no file", seed_topic=path, reason=reason) from None
    # What a file holds is not quoted: it may be documents, by mistake.
    found = [
        _parsed(line, path=path, line=number)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    _FAULTS.check(found, "no line", path=path, lines=len(lines))
    return found


def _listed(words: Sequence[str]) -> str:
    more = ", ..." if len(words) > SHOWN_WORDS else ""
    return ", ".join(words[:SHOWN_WORDS]) + more
