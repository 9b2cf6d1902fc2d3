"""Words of any script, and forms of Unicode, whatever marks texts have."""

# ruff: noqa: RUF001

import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.privacy.ledger.fingerprints import FingerprintKey
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.scripts import find_script_words, find_unsegmented
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.unicode_forms import normalize_text
from tests.texts import LETTERS, any_text

#: Letters, marks, joiners, digits and separators of many scripts, two of them beyond U+FFFF.
SCRIPTS = (
    "aZé9צכיя'’\"״·lL\ufe0f\u05b8\u0640ʼ"
    "_ -²\u0301हिन्ी५กำิ中文かナعَรี\u200c\u200d\u00ad\U00011103\U00011127ßİ一"
)


#: Points of Hebrew and Arabic, and the stroke between Arabic letters.
POINTS = {*range(0x591, 0x5BE), *range(0x5BF, 0x5C8), 0x640, *range(0x64B, 0x653), 0x670}


def slow_words(text):
    text = [each for each in text if ord(each) not in POINTS]
    words, run = [], []
    for i, each in enumerate([*text, " "]):
        kind = unicodedata.category(each)[0]
        if is_inner(each, text[max(0, i - 1) : i], text[i + 1 : i + 3]):
            run.append(({"’": "'", "׳": "'", "ʼ": "'", "״": '"', "”": '"'}.get(each, each), "L"))
        elif kind in "LMN" or each in "_\u200c\u200d":
            run.append((each, kind))
        else:
            words += slow_pieces(run)
            run = []
    return words


def slow_pieces(run):
    """Return the words of a run: what single underscores join, from a letter or number on."""
    pieces, marked = [[]], [(" ", "_"), *run, (" ", "_")]
    for before, each, after in zip(marked, run, marked[2:], strict=False):
        if each[0] == "_" and "_" in (before[0], before[1], after[0], after[1]):
            pieces.append([])
        else:
            pieces[-1].append(each)
    for piece in pieces:
        kinds = [kind for _, kind in piece]
        if "L" in kinds:
            first = next(i for i, kind in enumerate(kinds) if kind in "LN")
            word = "".join(each for each, _ in piece)[first:].rstrip("\u200c\u200d")
            if len(word) > 1:
                yield word


def is_inner(each, before, behind):
    """Return whether a sign is part of a word, by the letter before and the two after."""
    if each == "ʼ":
        return True
    before, after, behind = "".join(before), "".join(behind[:1]), "".join(behind[1:])
    hebrew = "\u05d0" <= before <= "\u05ea" and "\u05d0" <= after <= "\u05ea"
    if each in ("'", "’", "׳"):
        return hebrew or ("\u0400" <= before <= "\u04ff" and "\u0400" <= after <= "\u04ff")
    if each in ('"', "”", "״"):
        return hebrew and not "\u05d0" <= behind <= "\u05ea"
    return each == "·" and before in ("l", "L") and after in ("l", "L")


@given(text=any_text | st.text(st.sampled_from(SCRIPTS), max_size=30))
def test_words_are_runs_of_letters_and_their_marks(text):
    # What Python calls alphanumeric beyond letters and numbers is nothing here.
    assert find_script_words(text) == slow_words(text)
    if text.isascii():
        assert TextAnalyzer(lowercase=False).build_tokenizer()(text) == find_script_words(text)


def test_texts_of_many_languages_are_split_into_their_words():
    for text, words in (
        ("हिन्दी भाषा में समाचार", "हिन्दी भाषा में समाचार"),
        ("ภาษาไทย ข่าว วันนี้", "ภาษาไทย ข่าว วันนี้"),
        ("اللُّغَةُ اللغـــة می\u200cخواهم", "اللغة اللغة می\u200cخواهم"),
        ("יְרוּשָׁלַיִם", "ירושלים"),
        ('צה"ל, ג\'ירפה ו"שלום רב"', "צה\"ל ג'ירפה שלום רב"),
        ("пам'ять м’яч обʼєднання «п'ять» 'так'", "пам'ять м'яч об'єднання п'ять так"),
        ("paral·lel, l'home", "paral·lel home"),
        ("❤️love 👍🏽like, कृपया\u200d", "love like कृपया"),
        ("İSTANBUL'da İ güzel", "istanbul da güzel"),
        ("Cafe\u0301 café", "café café"),
        ("Straße, Doku\u00admentation x86 2019", "straße dokumentation x86"),
        ("ﬁnance ＦＵＬＬ ﾊﾝｶｸ 𝐁old ﻣﺮﺣﺒﺎ, m² น้ำ ™", "finance full ハンカク bold مرحبا m² น้ำ"),
        ("error_code covid19 mp3 été_1 _été_ 1_000 2019 a__b", "error_code covid19 mp3 été_1 été"),
        ("Новости и\u0306ода", "новости йода"),
        ("我爱北京。天安门", "我爱北京 天安门"),
        ("தமிழ் மொழி", "தமிழ் மொழி"),
    ):
        assert TextAnalyzer().build_analyzer()(text) == words.split()
        vocabulary = Vocabulary.given(dict.fromkeys(words.split()))
        assert vocabulary.encode([text]).unseen_tokens == 0


def test_turkish_has_two_letters_i():
    text = "IŞIK ışık, I\u0307STANBUL İstanbul; Iğdır ILIK DİYARBAKIR ve birşey altı WIKI"
    words = ["ışık", "ışık", "istanbul", "istanbul", "ığdır", "ılık", "diyarbakır", "wıkı"]
    turkish = TextAnalyzer(stop_words="turkish,english")
    assert turkish.build_analyzer()(text) == words
    assert turkish.build_analyzer()("WIKI") == ["wıkı"]
    assert Vocabulary.given(dict.fromkeys(words), turkish).encode([text, "WIKI"]).unseen_tokens == 0
    assert TextAnalyzer.from_metadata(turkish.metadata()) == turkish
    split = TextAnalyzer(lowercase="turkish", function=str.split).build_analyzer()
    assert split("IŞIK") == ["ışık"]
    for other in (TextAnalyzer(), TextAnalyzer(stop_words="english,tr")):
        assert other.build_analyzer()("IŞIK Işık") == ["işik", "işık"]
    assert TextAnalyzer(stop_words="tr", lowercase=False).build_analyzer()("IŞIK") == ["IŞIK"]


def test_stop_words_are_as_texts_have_them():
    """The package has Arabic without signs on Alif, and quotes and apostrophes around words."""
    text = "أن إلى إن أو المدرسة, היא של ירושלים, qu'il d'école, ім'я п’ять слів"
    found = TextAnalyzer(stop_words="arabic,hebrew,french,ukrainian").build_analyzer()
    assert found(text) == ["المدرسة", "ירושלים", "école", "слів"]


def test_what_version_0_1_made_is_read_as_it_was():
    metadata = {"lowercase": True, "token_pattern": LETTERS, "stop_words": None}
    metadata["ngram_range"] = [1, 1]
    stored = TextAnalyzer.from_metadata(metadata)
    assert stored.metadata() == metadata
    assert stored.build_analyzer()("cafe\u0301") == ["cafe"]


def test_sentences_without_spaces_are_warned_of():
    phrases = ["今天天气很好我们去公园散步", "他在北京大学学习计算机科学"]
    assert find_unsegmented(Counter(phrases)) == "Chinese or Japanese"
    assert find_unsegmented(Counter(["今天", "天气", "公园", "计算机"])) is None
    assert find_unsegmented(Counter(["words"] * 99 + phrases[:1])) is None
    assert find_unsegmented(Counter(["สวัสดีครับวันนี้อากาศดี", "ไปเที่ยวทะเลกันเถอะ"])).startswith("Thai")
    assert find_unsegmented(Counter(["ข่าว", "วันนี้", "อากาศ"])) is None
    with pytest.warns(UserWarning, match="rjieba:cut"):
        Vocabulary.learn(["\u3002".join(phrases)])
    with pytest.warns(UserWarning, match=r"Thai.*pythainlp:word_tokenize \(Thai\)"):
        Vocabulary.learn(["สวัสดีครับวันนี้อากาศดี ไปเที่ยวทะเลกันเถอะ"])


def test_chinese_words_by_jieba():
    words = TextAnalyzer(function="rjieba:cut", stop_words="chinese")
    assert words.build_analyzer()("我爱北京天安门, 12 abc。") == ["爱", "北京", "天安门", "abc"]


#: Marks of several classes, some that others are made of, one beyond the first plane.
MARKS = "\u0301\u0316\u0344\u0f73\u0f71\u3099\uff9e\U0001d165"


@pytest.mark.parametrize("form", ["NFC", "NFKD"])
@given(
    text=st.text(st.sampled_from(MARKS + "aé한\u1100\u1161\U0001f600"), min_size=30, max_size=90)
)
def test_many_marks_are_put_in_order_before_the_text_is_normalized(form, text):
    assert normalize_text(form, text) == unicodedata.normalize(form, text)


def read(text):
    """Read a text as words, and as what a ledger knows it by."""
    TextAnalyzer().build_analyzer()(text)
    FingerprintKey(bytes(32)).of_text(text)


def test_normalizing_moves_no_mark_past_many(monkeypatch):
    """The library takes the square of the marks that are not in order."""
    given = []

    def normalize(form, text):
        given.append((form.replace("C", "D"), text))
        return unicodedata.normalize(form, text)

    monkeypatch.setattr("streamlda.utils.unicode_forms.normalize", normalize)
    for mark in ("\u0301\u0316", "\u0f73", "\u0301\uff9e"):
        read("a" + mark * 1000)
    long = [(form, text) for form, text in given if len(text) > 100]
    assert len(long) > 3
    for form, text in long:
        decomposed = "".join(unicodedata.normalize(form, each) for each in text)
        classes = map(unicodedata.combining, decomposed)
        assert not [pair for pair in pairwise(classes) if pair[0] > pair[1] > 0]
