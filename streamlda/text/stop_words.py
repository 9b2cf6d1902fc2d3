"""Lists of words that say nothing of a topic: scikit-learn's for English, of 33 languages more."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from unicodedata import normalize

from streamlda.checks import failure, require
from streamlda.errors import MissingExtraError

#: What the default pattern makes of "don't", "we've" and "she'll".
CONTRACTED = frozenset(
    re.findall(
        "[a-z]+",
        "ain aren couldn didn doesn don hadn hasn haven isn ll mightn mustn needn shan shouldn ve "
        "wasn weren won wouldn",
    )
)

NONE, ENGLISH = "none", "english"

#: Names of Turkish; and its letters, which the package has as ISO 8859-1 shows bytes of ISO 8859-9.
TURKISH = ("turkish", "tr")
_LATIN_5 = str.maketrans("\u00fd\u00fe\u00f0", "\u0131\u015f\u011f")

#: Names of Arabic; and Alif, which the package has without the signs that many write it with.
ARABIC = ("arabic", "ar")
_ALIF, _ALIFS = "\u0627", "\u0623\u0625\u0622"

#: What stands around words of the package: quotes and commas in Hebrew, apostrophes in French.
_AROUND = "\"',"

#: A word in no more documents than this is left out by no default: in few documents, frequent words
#: are those of the topics. With 0.3 alone, one word of 12 documents stayed.
FEW_DOCUMENTS = 20


def most_documents(n_topics: int) -> float:
    """Return from which share of documents on a word says little of any topic.

    Of 0.2, 0.3, 0.5 and 1, 0.3 is the least that costs no more than 1 % of perplexity on the same
    words: against 0.5, NPMI of 20 topics rises from 0.077 to 0.086 on 20 Newsgroups and from 0.074
    to 0.081 on KOS, and stays on arXiv, where no word is left out; 0.2 costs 2 % on KOS. Of fewer
    than 5 topics, one may well be in a third of the documents, with its words.
    """
    return 0.3 if n_topics >= 5 else 0.5


def languages_of(stop_words: str) -> list[str] | None:
    """Return the languages that ``"english,german"`` names; None if it is the name of a file."""
    names = [name.strip() for name in stop_words.split(",")]
    languages = all(name.isalpha() and name.isascii() and name.islower() for name in names)
    return names if languages else None


def begins_with_turkish(stop_words: str | Collection[str] | None) -> bool:
    """Return whether names of languages begin with one whose I has no dot in small letters."""
    names = languages_of(stop_words) if isinstance(stop_words, str) else None
    return names is not None and names[0] in TURKISH


def listed(stop_words: str | Collection[str] | None) -> str | tuple[str, ...] | None:
    """Return stop words as an analyzer keeps them: ``"english"``, sorted words, or None.

    Those of other languages become words here, so that a model does not change with the package
    that has them.
    """
    if stop_words is None or stop_words == ENGLISH:
        return stop_words
    if isinstance(stop_words, str):
        rule = "stop_words must be languages such as english,german, a list of words or None"
        require(languages_of(stop_words) is not None, rule, stop_words=stop_words)
        return tuple(sorted({word for name in languages_of(stop_words) or () for word in of(name)}))
    words = list(stop_words)
    only_text = all(isinstance(word, str) for word in words)
    require(only_text, "stop_words must hold strings only, got something else in it")
    return tuple(sorted(set(words)))


def of(language: str) -> frozenset[str]:
    """Return the stop words of a language, by its English name or its code (``de``)."""
    if language == ENGLISH:
        return english()
    try:
        import stop_words as package
    except ImportError as error:
        raise MissingExtraError("stop-words", "languages", f"stop words of {language}") from error
    try:
        words = package.get_stop_words(language)
    except package.StopWordError as error:
        raise failure(
            "stop words must be of a known language",
            language=language,
            remedy=f"known: {', '.join(sorted(package.AVAILABLE_LANGUAGES))}; or give a file",
        ) from error
    if language in TURKISH:
        words = [word.translate(_LATIN_5) for word in words]
    if language in ARABIC:
        words = [form for word in words for form in _with_signs(word)]
    return frozenset(normalize("NFC", word.strip(_AROUND)) for word in words)


def _with_signs(word: str) -> list[str]:
    """Return an Arabic word, and what it is with signs on one of its Alifs."""
    places = [i for i, letter in enumerate(word) if letter == _ALIF]
    return [word, *(word[:i] + alif + word[i + 1 :] for i in places for alif in _ALIFS)]


@cache
def english(*, contractions: bool = True) -> frozenset[str]:
    """Return scikit-learn's list, and what is left of contractions, which it lacks."""
    return _scikit_learns() | (CONTRACTED if contractions else frozenset())


def _scikit_learns() -> frozenset[str]:
    # From its own file: importing all of it takes a second.
    package = find_spec("sklearn")
    where = package.submodule_search_locations if package else None
    file = Path(where[0], "feature_extraction", "_stop_words.py") if where else Path()
    if file.is_file():
        spec = spec_from_file_location("_stop_words", file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, "ENGLISH_STOP_WORDS"):
            return frozenset(module.ENGLISH_STOP_WORDS)
    # Where a later version has moved it.
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)
