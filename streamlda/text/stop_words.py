"""Stop words of 34 languages: scikit-learn's for English, of the package stop-words for others."""

import re
from collections.abc import Collection
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from unicodedata import normalize

from streamlda.errors import MissingExtraError
from streamlda.text.faults import check, fault

#: Pieces that the default pattern leaves of "don't", "we've" and "she'll".
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

#: Signs around words of the package: quotes and commas in Hebrew, apostrophes in French.
_AROUND = "\"',"

#: No default leaves out a word in no more documents than this: frequent words of few documents are
#: those of the topics.
FEW_DOCUMENTS = 20


def most_documents(n_topics: int) -> float:
    """Return the largest share of documents of a word that still says something of a topic.

    With fewer than 5 topics, one may well be in a third of the documents, with its words.
    """
    return 0.3 if n_topics >= 5 else 0.5


def parse_languages(stop_words: str) -> list[str] | None:
    """Return the languages that ``"english,german"`` names; None if it is the name of a file."""
    names = [name.strip() for name in stop_words.split(",")]
    languages = all(name.isalpha() and name.isascii() and name.islower() for name in names)
    return names if languages else None


def begins_with_turkish(stop_words: str | Collection[str] | None) -> bool:
    """Return whether names of languages begin with one whose I has no dot in small letters."""
    names = parse_languages(stop_words) if isinstance(stop_words, str) else None
    return names is not None and names[0] in TURKISH


def read_stop_words(stop_words: str | Collection[str] | None) -> str | tuple[str, ...] | None:
    """Return stop words as an analyzer keeps them: ``"english"``, sorted words, or None.

    Those of other languages become words here, so that a model does not change with the package
    that has them.
    """
    if stop_words is None or stop_words == ENGLISH:
        return stop_words
    if isinstance(stop_words, str):
        names = parse_languages(stop_words)
        check(names is not None, "stop words", stop_words=stop_words)
        return tuple(sorted({word for name in names or () for word in get_stop_words(name)}))
    words = list(stop_words)
    check(all(isinstance(word, str) for word in words), "stop words of text")
    return tuple(sorted(set(words)))


def get_stop_words(language: str) -> frozenset[str]:
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
        known = ", ".join(sorted(package.AVAILABLE_LANGUAGES))
        raise fault("language", language=language, known=known) from error
    if language in TURKISH:
        words = [word.translate(_LATIN_5) for word in words]
    if language in ARABIC:
        words = [form for word in words for form in _with_signs(word)]
    return frozenset(normalize("NFC", word.strip(_AROUND)) for word in words)


def _with_signs(word: str) -> list[str]:
    """Return an Arabic word, and its forms with a sign on one of its Alifs."""
    places = [i for i, letter in enumerate(word) if letter == _ALIF]
    return [word, *(word[:i] + alif + word[i + 1 :] for i in places for alif in _ALIFS)]


@cache
def english(*, contractions: bool = True) -> frozenset[str]:
    """Return scikit-learn's list, with pieces of contractions, which it lacks."""
    return _load_list() | (CONTRACTED if contractions else frozenset())


def _load_list() -> frozenset[str]:
    # From its own file: importing all of it takes a second.
    package = find_spec("sklearn")
    folders = None if package is None else package.submodule_search_locations
    try:
        file = Path(*folders or (), "feature_extraction", "_stop_words.py")
        return frozenset(run_path(str(file))["ENGLISH_STOP_WORDS"])
    except (OSError, KeyError):
        # Where a later version has moved it.
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return frozenset(ENGLISH_STOP_WORDS)
