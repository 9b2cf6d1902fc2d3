"""Words, analyzers, seeds and engine settings, made from the settings of a run."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from streamlda.engine.settings import SUMMING_WARMUP, EngineSettings
from streamlda.errors import Faults, InvalidSettingError
from streamlda.model.topic_model import TopicModel, load
from streamlda.private.public_start import PublicTopics, words_of
from streamlda.private.settings import PrivateSettings
from streamlda.refinement.schedule import Passes
from streamlda.settings import table
from streamlda.spectral.seeds import SeedTopic
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.frequencies import FrequencyLimits
from streamlda.text.stop_words import FEW_DOCUMENTS, NONE, most_documents, parse_languages
from streamlda.text.vocabulary import Vocabulary

Seeded = TypeVar("Seeded", EngineSettings, PrivateSettings)

#: Documents that words are learned from by default.
WORD_DOCUMENTS = 20_000

#: Unknown words of seeds that are shown.
SHOWN_WORDS = 10


_FAULTS = Faults(
    {
        InvalidSettingError: {
            "few words": "there are fewer words than topics; ask for fewer topics or more words: "
            "learned ones come from more documents, or with a higher max_document_frequency (1.0 "
            "keeps all)",
            "window": "partial_fit does not know how many rows a private snapshot is made of; set "
            "it, or pass all rows to fit",
            "same name": "seeded topics share a name; name each once",
            "few topics": "there are fewer topics than seeded ones; ask for more topics, or seed "
            "fewer",
            "no word": "a seeded topic has no word of the vocabulary; seed it by other words, or "
            "bring a vocabulary with these",
            "no seed": "a seeded topic is not a name, a colon and words; write it as in 'space: "
            "orbit launch nasa'",
        }
    }
)

#: Record slots that choose the words for each one of a window, by default.
WORDS_OF_WINDOW = 0.25


def make_analyzer(words: table.VocabularySettings) -> TextAnalyzer:
    """Return the analyzer that splits texts into words."""
    stop: Any = words.stop_words
    if stop == NONE:
        stop = None
    elif parse_languages(stop) is None:
        stop = Vocabulary.from_file(stop).words
    clean = () if words.clean == NONE else tuple(words.clean.split(","))
    options: dict[str, Any] = {"stop_words": stop, "ngram_range": (1, words.ngrams), "clean": clean}
    if words.phrases is not None and not words.phrases.isdecimal():
        options["phrases"] = Vocabulary.from_file(words.phrases).words
    if words.token_pattern is not None:
        options["token_pattern"] = words.token_pattern
    if words.analyzer is not None:
        options["function"] = words.analyzer
    return TextAnalyzer(**options)


def public_words(settings: table.RunSettings) -> Vocabulary | None:
    """Return the words if they are known before a document is read, else None."""
    words = settings.vocabulary
    if words.kind == "hashed":
        return Vocabulary.hashed(words.hash_bits, make_analyzer(words))
    if words.kind != "given":
        return None
    if words.file is not None:
        return Vocabulary.from_file(words.file, make_analyzer(words))
    model = load_public_model(settings.privacy)
    assert model is not None
    listed = words_of(model)
    assert model.vocabulary is not None
    return Vocabulary.given(listed, model.vocabulary.analyzer)


def load_public_model(privacy: table.PrivacySettings) -> TopicModel | None:
    """Return the model of public documents, read from its file if it is one."""
    model = privacy.public_model
    return load(model) if isinstance(model, str) else model


def public_topics(
    settings: table.RunSettings, n_features: int, words: Sequence[str] | None
) -> PublicTopics | None:
    """Return the topics of the public model over words, or over columns without names."""
    model = load_public_model(settings.privacy)
    if model is None:
        return None
    return PublicTopics.of(model, settings.topics.count, n_features, words)


def word_documents(settings: table.RunSettings) -> int:
    """Return documents that words are learned from, or slots of a private choice: public facts."""
    words, snapshots = settings.vocabulary, settings.snapshots
    if words.documents is not None:
        return words.documents
    if words.kind != "private":
        return WORD_DOCUMENTS
    return max(1, round(WORDS_OF_WINDOW * (snapshots.every or DEFAULT_EVERY)))


def text_settings(settings: table.RunSettings) -> dict[str, Any]:
    """Return the settings of text and words that a checkpoint depends on, as JSON has them."""
    names = [f"vocabulary.{each.name}" for each in fields(settings.vocabulary)]
    names = [name for name in names if name != "vocabulary.file"]
    names += [f"source.{each}_field" for each in ("text", "user", "time")]
    names += [f"topics.representative_{each}" for each in ("documents", "texts")]
    if settings.source.time_field is not None:
        names.append("snapshots.time_bins")
    found = {name: settings[name] for name in names}
    found["vocabulary.documents"] = word_documents(settings)
    # As states of this version have it.
    found["vocabulary.ngrams"] = 1, settings.vocabulary.ngrams
    values: dict[str, Any] = json.loads(json.dumps(found))
    return values


def words_to_learn(settings: table.RunSettings) -> VocabularyLearner:
    """Return the learner of words from the first documents."""
    words = settings.vocabulary
    low, high = words.min_document_frequency, words.max_document_frequency
    few = FEW_DOCUMENTS if high is None else 0
    high = most_documents(settings.topics.count) if high is None else high
    FrequencyLimits(words.size, 1 if low is None else low, high)  # raises if one is out of range
    return VocabularyLearner(
        size=words.size,
        min_document_frequency=low,
        max_document_frequency=high,
        few_documents=few,
        documents=word_documents(settings),
        analyzer=make_analyzer(settings.vocabulary),
        grow_every=words.grow_every,
        phrases=int(words.phrases) if words.phrases and words.phrases.isdecimal() else 0,
    )


def most_words(words: table.VocabularySettings) -> int:
    """Return the most words there will be; for a file, ``vocabulary.size`` until it is read."""
    return int(2**words.hash_bits) if words.kind == "hashed" else words.size


def engine_settings(
    settings: table.RunSettings,
    n_features: int,
    sums: bool | None = None,
    too_frequent: int | None = None,
    *,
    keeps: bool = False,
) -> EngineSettings:
    """Return the settings of an engine without privacy.

    `sums` says whether what it begins with is a projection; None if it begins by itself. An engine
    that `keeps` documents fits those of a source that ends together, within `memory.kept`.
    """
    topics = settings.topics
    refine = False if sums or topics.refinement_passes == 0 else topics.refine
    # Sums of a warm-up that was asked for, and words that grow, continue while documents come.
    keeps &= settings.ends and topics.warmup_documents is None
    keeps &= settings.vocabulary.grow_every is None and refine is not False
    return EngineSettings(
        n_features=n_features,
        refine=refine,
        kept_entries=settings.memory.kept // 12 if keeps else 0,
        **_get_parameters(settings, EngineSettings, n_features, too_frequent),
    )


def private_settings(
    settings: table.RunSettings,
    n_features: int,
    delta: float | None = None,
    public: PublicTopics | None = None,
) -> PrivateSettings:
    """Return the settings of a private run; `delta` is the rest after a choice of words."""
    privacy, topics_alone = settings.privacy, settings.topics.refinement_passes == 0
    found = _get_parameters(settings, PrivateSettings, n_features)
    found |= {} if delta is None else {"delta": delta}
    return PrivateSettings(
        n_features=n_features,
        refinement_rounds=0 if topics_alone else privacy.refinement_rounds,
        public_model=None if public is None else public.digest,
        **{"documents_per_snapshot": DEFAULT_EVERY, **found},
    )


def choose_passes(topics: table.TopicsSettings) -> Passes:
    """Return the passes of a fit; None leaves them to the documents."""
    wanted = topics.refinement_passes
    return None if wanted == "auto" else wanted


def fit_settings(settings: table.RunSettings, n_features: int) -> EngineSettings:
    """Return the settings of an engine that has all documents in memory, and no stream."""
    asked = engine_settings(settings, n_features)
    if settings.topics.warmup_documents is None:
        asked = replace(asked, warmup_documents=SUMMING_WARMUP)
    return asked


def window_settings(
    settings: table.RunSettings,
    n_features: int,
    rows: int | None,
    words: Sequence[str] | None = None,
) -> tuple[PrivateSettings, PublicTopics | None]:
    """Return settings of a private run, whose one window are `rows`, and its public topics."""
    every, most = settings.snapshots.every, settings.snapshots.most
    _FAULTS.check(rows is not None or every is not None, "window", documents_per_snapshot=every)
    if rows is not None:
        counted = settings.privacy.unit == "user" or settings.privacy.mode == "prefix"
        every, most = rows, most or (1 if counted else None)
    snapshots = replace(settings.snapshots, every=every, most=most)
    public = public_topics(settings, n_features, words)
    asked = private_settings(replace(settings, snapshots=snapshots), n_features, public=public)
    return asked, public


#: Records between the snapshots of a source without an end.
DEFAULT_EVERY = 100_000


def snapshot_every(settings: table.RunSettings) -> int | None:
    """Return the records between snapshots; None for one at the end of the source."""
    every = settings.snapshots.every
    return every if every is not None or settings.ends else DEFAULT_EVERY


def time_bins(settings: table.RunSettings) -> str | None:
    """Return the unit of the bins of event time; None where none is read."""
    return None if settings.source.time_field is None else settings.snapshots.time_bins


def _get_parameters(
    settings: table.RunSettings, made: type, n_features: int, too_frequent: int | None = None
) -> dict[str, Any]:
    """Return the settings that an engine calls as `StreamLDA` calls its parameters."""
    topics = settings.topics
    # The estimator warns of this instead: its columns are given.
    found = {"topics": topics.count, "words": n_features}
    found |= {} if too_frequent is None else {"in_too_many_documents": too_frequent}
    _FAULTS.check(topics.count <= n_features or not settings.command, "few words", **found)
    names = {each.name for each in fields(made)} - {"seed_topics", "public_model"}
    values = {s.parameter: settings[s.name] for s in table.TABLE if s.parameter in names}
    asked = {name: value for name, value in values.items() if value is not None}
    alpha_0 = None if topics.alpha_0 == "auto" else topics.alpha_0
    return asked | {"seed": topics.seed, "alpha_0": alpha_0}


# Seeds.


class SeedWords(NamedTuple):
    """A name, and the words that a topic is to be about."""

    name: str
    words: tuple[str, ...]


def read_seeds(given: Sequence[str], n_topics: int) -> list[SeedWords]:
    """Return the seeds of settings, ``name: words``."""
    found: list[SeedWords] = []
    for text in given:
        name, _, words = (part.strip() for part in text.partition(":"))
        _FAULTS.check(name and words, "no seed", seed_topic=text[:80])
        found.append(SeedWords(name, tuple(dict.fromkeys(words.split()))))
    names = {seed.name for seed in found}
    _FAULTS.check(len(names) == len(found), "same name", seeded=len(found), names=len(names))
    _FAULTS.check(len(found) <= n_topics, "few topics", topics=n_topics, seeded=len(found))
    return found


def seed_topics(
    seeds: Sequence[SeedWords],
    find_columns: Callable[[str], list[int]],
    warn: Callable[[str], object] = lambda message: None,
) -> tuple[SeedTopic, ...]:
    """Return the seeds in columns; warn of words that are not known."""
    found, unknown = [], []
    for name, words in seeds:
        columns: dict[int, None] = {}
        for word in words:
            own = find_columns(word)
            columns |= dict.fromkeys(own)
            unknown += [word] * (not own)
        _FAULTS.check(columns, "no word", topic=name, words=len(words), unknown=_quote_words(words))
        found.append(SeedTopic(name, tuple(columns)))
    if unknown:
        warn(
            f"seed words should be words of the vocabulary, got unknown={len(unknown)}: "
            f"{_quote_words(unknown)}; they seed nothing"
        )
    return tuple(found)


def _quote_words(words: Sequence[str]) -> str:
    return ", ".join([*words[:SHOWN_WORDS], *["..."] * (len(words) > SHOWN_WORDS)])


def seed_by_columns(
    asked: Seeded, given: Sequence[str], columns: Mapping[str, Any], stacklevel: int = 3
) -> Seeded:
    """Return settings of an estimator with seeds that are names of its columns, or numbers."""
    vocabulary: Vocabulary | None = columns.get("vocabulary_")
    names = columns.get("feature_names_in_") if vocabulary is None else vocabulary.words
    known = range(asked.n_features) if names is None else names
    numbers = {str(name): i for i, name in enumerate(known)}
    warn = partial(warnings.warn, stacklevel=stacklevel + 1)
    seeds = read_seeds(given, asked.n_components)
    found = seed_topics(seeds, lambda word: [numbers[word]] if word in numbers else [], warn)
    return replace(asked, seed_topics=found)


def seed_by_words(
    asked: Seeded,
    seeds: Sequence[SeedWords],
    vocabulary: Vocabulary,
    warn: Callable[[str], None] = lambda message: None,
) -> Seeded:
    """Return settings of a run with seeds that are words of its vocabulary, read as in a text."""

    def find_columns(word: str) -> list[int]:
        return [int(i) for i in vocabulary.token_ids([word])[0] if i >= 0]

    return replace(asked, seed_topics=seed_topics(seeds, find_columns, warn))
