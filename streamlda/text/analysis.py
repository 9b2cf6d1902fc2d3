"""Settings that split a text into words, and phrases: runs of words that count as one."""

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import Any, Self

from streamlda.text import functions, stop_words
from streamlda.text.cleaning import STEPS, clean_text
from streamlda.text.faults import check, fault
from streamlda.text.functions import Analyze, UnreadableTextError
from streamlda.text.scripts import TURKISH, find_script_words, fold_text, split_runs
from streamlda.texts import TokenizedText

_find_runs = re.compile(r"\w+").findall
_NO_LETTERS = string.digits + "_"

#: Least NPMI of the words of a phrase that is learned, 1 where they are never apart, and fewest
#: times that it is met.
LEAST_NPMI, LEAST_COUNT = 0.5, 10


@dataclass(frozen=True)
class TextAnalyzer:
    r"""Settings that split a text into words; equal and hashed by content.

    The meaning of each setting is that of scikit-learn's ``CountVectorizer``: lower-casing, then
    matching, then dropping stop words, then joining neighbours to n-grams.

    Parameters
    ----------
    lowercase : bool or "turkish", default True
        Lower-case the text first. Word lists and stop words are not lower-cased. The small form
        of I is ``\u0131`` in Turkish, which it is where that is the first language of stop words.
    token_pattern : str, optional
        Regular expression of a word, with at most one group. By default a word has two or more
        letters, marks and digits of any script, and single underscores between them
        (``"error_code"``, ``"mp3"``); what has no letter, as ``"2019"``, is none, since numbers
        rarely name a topic. scikit-learn's own default is ``r"(?u)\b\w\w+\b"``. Scripts written
        without spaces need a `function`.
    stop_words : str or collection of str, optional
        Words to drop: ``"english"`` for scikit-learn's list, names of languages as
        ``"english,german"`` for those of the package stop-words too, or those given. All but
        ``"english"`` are kept as a sorted tuple. One that is never met has no effect.
    ngram_range : (int, int), default (1, 1)
        Shortest and longest run of neighbouring words that counts as a word.
    normalize : bool, default True
        Compose letters and marks (Unicode NFC), write ligatures and full-width letters as plain
        ones (NFKC) and drop soft hyphens first; lower-case a dotted capital I to ``i``. False is
        for models of version 0.1.
    clean : tuple of str, default all
        Removed first: ``"attachments"`` (lines of uuencode and base64), ``"urls"``,
        ``"emails"``, ``"html"`` (tags, and entities are read). ``"initialisms"`` become one word:
        ``U.S.A.`` is ``u_s_a``.
    phrases : collection of str, default ()
        Runs of words that are one word, as ``"new york"``, the longest first: joined once stop
        words are dropped, before n-grams are made. They are read as texts are (``"New York"`` as
        ``"new york"``, stop words dropped), and kept as a sorted tuple.
    function : str or callable, optional
        Finds the words in place of `token_pattern`: ``"module:function"``, or a function from a
        text to the list of its words. Kept by name.
        Its words are lower-cased; those without a letter are dropped. It must look at the text
        alone: then equal documents are equal, and a private run keeps its promise.

    Raises
    ------
    InvalidSettingError
        Naming the setting and its rule.
    """

    lowercase: bool | str = True
    token_pattern: str | None = None
    stop_words: str | Collection[str] | None = None
    ngram_range: tuple[int, int] = (1, 1)
    normalize: bool = True
    function: str | Analyze | None = None
    clean: tuple[str, ...] = STEPS
    phrases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        normalize, lowercase = self.normalize, self.lowercase
        check(isinstance(normalize, bool), "normalize", normalize=normalize)
        known = isinstance(lowercase, bool) or (lowercase == TURKISH and normalize)
        check(known, "lowercase", lowercase=lowercase)
        if lowercase and normalize and stop_words.begins_with_turkish(self.stop_words):
            object.__setattr__(self, "lowercase", TURKISH)
        pattern = "" if self.token_pattern is None else self.token_pattern
        try:
            groups = re.compile(pattern).groups
        except (re.error, TypeError) as error:
            raise fault("pattern", token_pattern=pattern, cause=str(error)) from error
        check(groups < 2 and isinstance(pattern, str), "groups", token_pattern=pattern)
        object.__setattr__(self, "stop_words", stop_words.read_stop_words(self.stop_words))
        object.__setattr__(self, "ngram_range", _check_ngram_range(self.ngram_range))
        known = not isinstance(self.clean, str) and set(self.clean) <= set(STEPS)
        check(known, "clean", clean=self.clean)
        object.__setattr__(self, "clean", tuple(step for step in STEPS if step in self.clean))
        if self.function is not None:
            check(self.token_pattern is None, "function", token_pattern=pattern)
            object.__setattr__(self, "function", functions.allow(self.function))
        object.__setattr__(self, "phrases", self._read_phrases())

    def _read_phrases(self) -> tuple[str, ...]:
        """Return the phrases as texts have them."""
        check(not isinstance(self.phrases, str), "phrases")
        split, found = self._build_splitter() if self.phrases else str.split, set()
        for phrase in self.phrases:
            try:
                words = split(phrase) if isinstance(phrase, str) else []
            except UnreadableTextError:
                words = []
            check(len(words) > 1, "phrase", phrase=phrase, words=len(words))
            found.add(" ".join(words))
        return tuple(sorted(found))

    def with_settings(self, **changes: Any) -> Self:
        """Return a copy with some settings changed; phrases are not read again."""
        phrases = changes.pop("phrases", self.phrases)
        analyzer = replace(self, phrases=(), **changes)
        object.__setattr__(analyzer, "phrases", tuple(sorted(set(phrases))))
        return analyzer

    @property
    def function_name(self) -> str | None:
        """Name of the user's function."""
        return None if self.function is None else str(self.function)

    @property
    def unigrams(self) -> bool:
        """True if words are single tokens, in the order of the text."""
        return self.ngram_range == (1, 1) and not self.phrases

    @property
    def bytewise(self) -> bool:
        """True if the words of an ASCII text follow from `ascii_classes`, byte by byte."""
        default = self.token_pattern is None and self.normalize and self.lowercase != TURKISH
        return self.unigrams and default and self.function is None

    @cached_property
    def stop_set(self) -> frozenset[str]:
        """The words that are dropped before n-grams are made."""
        if self.stop_words == "english":
            return stop_words.english(contractions=self.normalize)
        return frozenset(self.stop_words or ())

    def build_tokenizer(self) -> Analyze:
        """Return the function from a clean text to its tokens in order, stop words among them.

        Words that are given are kept. It raises `UnreadableTextError` where a function of the user
        fails.
        """
        split = self._build_text_tokenizer()

        def tokenize(text: str) -> list[str]:
            return [*text.words] if isinstance(text, TokenizedText) else split(text)

        return tokenize

    def _build_text_tokenizer(self) -> Analyze:
        if self.function_name is not None:
            return self._by_function(functions.find(self.function_name))
        pattern, lowercase = self.token_pattern, self.lowercase
        findall = find_script_words if pattern is None else re.compile(pattern).findall

        def match(text: str) -> list[str]:
            if self.normalize:
                return findall(fold_text(text, lowercase))
            return findall(text.lower() if lowercase else text)

        if pattern is not None or lowercase == TURKISH:
            return match
        # In a quarter of the time of an expression. All that is in no word becomes a space first,
        # so that ``str.split`` meets no other separator.
        ascii_table = dict(enumerate(ascii_classes(lowercase)))

        def split(text: str) -> list[str]:
            if not text.isascii():
                return match(text)
            runs = split_runs(text.translate(ascii_table))
            return [run for run in runs if len(run) > 1 and run.strip(_NO_LETTERS)]

        return split

    def _by_function(self, function: Analyze) -> Analyze:
        def split(text: str) -> list[str]:
            words = functions.call_analyzer(function, fold_text(text, lowercase=False))
            if self.lowercase:
                words = [fold_text(word, self.lowercase) for word in words]
            return [word for word in words if any(map(str.isalpha, word))]

        return split

    def _build_splitter(self) -> Analyze:
        """Return the function from a text to its tokens without stop words."""
        tokenize, stop, clean = self.build_tokenizer(), self.stop_set, self.clean

        def split(text: str) -> list[str]:
            words = tokenize(clean_text(text, clean))
            return [word for word in words if word not in stop] if stop else words

        return split

    def build_analyzer(self, *, strict: bool = False) -> Analyze:
        """Return the function from a text to its words: no stop words, n-grams made.

        The n-grams come after one another by length: all single tokens in the order of the text,
        then all pairs in the order of the text, and so on. A text on which the user's function
        fails has no words, or raises `UnreadableTextError` if `strict`.
        """
        split, join = self._build_splitter(), build_joiner(self.phrases)

        def analyze(text: str) -> list[str]:
            return join(split(text))

        made: Analyze = analyze
        if self.ngram_range != (1, 1):
            from sklearn.feature_extraction.text import CountVectorizer

            made = CountVectorizer(
                lowercase=False, tokenizer=made, token_pattern=None, ngram_range=self.ngram_range
            ).build_analyzer()

        def lenient(text: str) -> list[str]:
            try:
                return made(text)
            except UnreadableTextError:
                return []

        return made if strict or self.function is None else lenient

    def count_runs(self, texts: Iterable[str]) -> dict[str, int] | None:
        """Return runs of letters and digits by what is counted: words, stop words, or none of them.

        None where a pattern or a function finds the words.
        """
        if self.token_pattern is not None or self.function is not None:
            return None
        tokenize, stop, found = self.build_tokenizer(), self.stop_set, Counter[str]()
        for text in texts:
            if isinstance(text, TokenizedText):
                continue
            text = clean_text(text, self.clean)
            tokens = tokenize(text)
            stopped = sum(token in stop for token in tokens)
            found.update({"words": len(tokens) - stopped, "stop words": stopped})
            runs = _find_runs(text)
            found["numbers"] += sum(run.isdecimal() for run in runs)
            found["single letters"] += sum(len(run) == 1 and run.isalpha() for run in runs)
        return dict(found)

    def __reduce__(self) -> tuple[Any, ...]:
        # The function may be called where it is unpickled, if it may here.
        name = self.function_name
        return _unpickle, (self.metadata(), name if name and functions.is_allowed(name) else None)

    def metadata(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        listed = isinstance(self.stop_words, tuple)
        values = {
            "lowercase": self.lowercase,
            "token_pattern": self.token_pattern,
            "stop_words": list(self.stop_words or ()) if listed else self.stop_words,
            "ngram_range": list(self.ngram_range),
        }
        # Only where it is: files of version 0.1 stay as they were.
        values |= {"normalize": True} if self.normalize else {}
        values |= {"clean": list(self.clean)} if self.clean else {}
        values |= {"phrases": list(self.phrases)} if self.phrases else {}
        return values if self.function is None else values | {"function": self.function}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """Return the analyzer whose `metadata` this is; a function is not called before its use."""
        values = {"normalize": False, "clean": (), **metadata}
        function, phrases = values.pop("function", None), values.pop("phrases", ())
        analyzer = cls(**values)
        object.__setattr__(analyzer, "function", function)
        object.__setattr__(analyzer, "phrases", tuple(phrases))
        return analyzer


def _unpickle(metadata: Mapping[str, Any], function: str | None) -> TextAnalyzer:
    if function is not None and not functions.is_allowed(function):
        functions.allow(function)
    return TextAnalyzer.from_metadata(metadata)


def ascii_classes(lowercase: bool | str) -> str:
    """Return the class of each ASCII character under the default pattern, 128 characters.

    A letter is itself, or its small form, a digit and an underscore are themselves, and a space
    ends a word (all others, control characters among them).
    """
    classes = [" "] * 128
    for character in string.ascii_letters:
        classes[ord(character)] = character.lower() if lowercase else character
    for character in string.digits + "_":
        classes[ord(character)] = character
    return "".join(classes)


def _check_ngram_range(ngram_range: Any) -> tuple[int, int]:
    two = isinstance(ngram_range, list | tuple) and [*map(type, ngram_range)] == [int, int]
    check(two and 1 <= ngram_range[0] <= ngram_range[1], "ngrams", ngram_range=ngram_range)
    return ngram_range[0], ngram_range[1]


def build_joiner(phrases: Iterable[str]) -> Callable[[list[str]], list[str]]:
    """Return the function that joins each phrase to one word, the longest first.

    Time O(words), and a run for each length of the phrases that begin with a word.
    """
    known = frozenset(phrases)
    lengths: dict[str, set[int]] = {}
    for phrase in known:
        words = phrase.split()
        lengths.setdefault(words[0], set()).add(len(words))
    tried = {word: sorted(found, reverse=True) for word, found in lengths.items()}

    def join(words: list[str]) -> list[str]:
        if tried.keys().isdisjoint(words):
            return words
        joined, at = [], 0
        while at < len(words):
            end = at + 1
            for length in tried.get(words[at], ()):
                if " ".join(words[at : at + length]) in known:
                    end = at + length
                    break
            joined.append(" ".join(words[at:end]))
            at = end
        return joined

    return join


def learn_phrases(counts: Mapping[str, int], most: int) -> tuple[str, ...]:
    """Return the most frequent pairs of words that meet far more often than by chance, sorted.

    `counts` are of words and of neighbours, joined by a space. The normalized pointwise mutual
    information of a pair is log(p(a b) / (p(a) p(b))) / -log p(a b), of shares of all tokens.
    """
    tokens = sum(count for word, count in counts.items() if " " not in word)
    found = []
    for pair, count in counts.items():
        first, _, second = pair.partition(" ")
        if count < LEAST_COUNT or not second or not (counts.get(first) and counts.get(second)):
            continue
        chance = counts[first] / tokens * counts[second]
        if log(count / chance) >= LEAST_NPMI * log(tokens / count):
            found.append((-count, pair))
    return tuple(sorted(pair for _, pair in sorted(found)[:most]))
