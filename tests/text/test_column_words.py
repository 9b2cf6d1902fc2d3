"""Words of hashed columns: counters against their slow twin, names, samples, and what is kept."""

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.text import column_words
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.column_words import COLUMN_BYTES, COUNTERS, ColumnWords, merge_words
from streamlda.text.vocabulary import COLLISION, Vocabulary
from tests import oracle_text

ANY = TextAnalyzer(token_pattern=r"\S+", lowercase=False)
ALL = 10**9

#: All lengths around eight bytes and around the 32 that are kept; two that differ behind them.
LONG = ["naïve" * n for n in range(1, 9)] + ["x" * 40 + "a", "x" * 40 + "b", "y" * 32]
some_words = st.lists(st.sampled_from([*"abcdefgh", *LONG]), max_size=60)


def counted(texts, bits=1, analyzer=ANY, full_tokens=ALL):
    made = ColumnWords(Vocabulary.hashed(bits, analyzer), full_tokens)
    made.add(texts)
    return made


def held(made):
    """Return of each column with words its tokens and counters, as the twin does."""
    state = made.state()
    words = state["words"].astype("<i8").view("S32")[:, :, 0]
    return {
        column: [
            tokens,
            {w: c for w, c in zip(own, counts, strict=True) if c > 0},
        ]
        for column, tokens, own, counts in zip(
            *(state[name].tolist() for name in ("columns", "tokens")),
            words.tolist(),
            state["counts"].tolist(),
            strict=True,
        )
    }


def same_bits(one, other):
    pairs = zip(one.state().items(), other.state().items(), strict=True)
    return all(a[0] == b[0] and a[1].tobytes() == b[1].tobytes() for a, b in pairs)


@given(some_words, st.integers(1, 3))
def test_counters_equal_their_twin_in_the_columns_that_the_encoder_names(words, bits):
    columns = Vocabulary.hashed(bits, ANY).token_ids([" ".join(words)])[0].tolist()
    expected = oracle_text.count_column_words(words, columns, COUNTERS)
    assert held(counted([" ".join(words)], bits)) == expected


@given(st.lists(some_words, min_size=1, max_size=4))
def test_counters_are_never_too_high_and_miss_no_word_with_a_quarter_of_its_column(parts):
    made = merge_words([None, *(counted([" ".join(words)]) for words in parts)])
    words = [word for part in parts for word in part]
    assert made.state()["tally"][:2].tolist() == [len(parts), len(words)]
    columns = Vocabulary.hashed(1, ANY).token_ids([" ".join(words)])[0].tolist()
    truth = {column: Counter() for column in columns}
    for word, column in zip(words, columns, strict=True):
        truth[column][word.encode()[:32]] += 1
    found = held(made)
    assert set(found) == set(truth)
    for column, (tokens, counters) in found.items():
        assert tokens == truth[column].total()
        lowered = (tokens - sum(counters.values())) / (COUNTERS + 1)
        for word, times in truth[column].items():
            assert times - lowered <= counters.get(word, 0) <= times
            assert word in counters or times <= tokens / (COUNTERS + 1)


@given(
    st.lists(some_words, max_size=12),
    st.lists(st.integers(0, 12), max_size=3),
    st.sampled_from([0, 20, ALL]),
)
def test_what_is_counted_depends_on_the_stream_alone(documents, cuts, full_tokens):
    texts = [" ".join(words) for words in documents]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_words, "STRIDE", 3)
        whole = counted(texts, full_tokens=full_tokens)
        parts, start = counted([], full_tokens=full_tokens), 0
        for stop in [*sorted(cuts), len(texts)]:
            parts.add(texts[start:stop])
            # Cut short, and gone on with.
            start, parts = max(start, stop), pickle.loads(pickle.dumps(parts))
    assert same_bits(parts, whole)
    assert parts.name_columns().names == whole.name_columns().names


def test_every_document_is_counted_at_first_and_then_a_sample():
    made = counted([f"first{'ab'[n % 2]}" for n in range(10)], 8, full_tokens=4)
    # The 129th document.
    made.add(["late"] * 118)
    assert sum(tokens for tokens, _ in held(made).values()) == 4
    made.add(["late"])
    assert sum(tokens for tokens, _ in held(made).values()) == 4 + 1
    made.add(["late"] * 127 + ["last"])
    assert sum(tokens for tokens, _ in held(made).values()) == 4 + 2


def test_memory_is_bounded_by_the_columns_whatever_comes():
    rng = np.random.default_rng(0)
    made = counted([" ".join(f"w{n}" for n in rng.integers(10**9, size=20_000))], 4)
    made.add(["x" * 10**6])
    state = made.state()
    assert sum(state[name].nbytes for name in ("tokens", "counts", "words")) == 16 * COLUMN_BYTES
    # A word that has its column to a third outlives all rare ones.
    made = counted([" ".join(f"often w{n} w{n}b" for n in range(5000))], 1)
    column = Vocabulary.hashed(1).token_ids(["often"])[0][0]
    assert made.name_columns().feature_name(column).split("|")[0] == "often"


def words_of_column_0():
    """Return words that share a column."""
    found = [f"w{n}" for n in range(60)]
    ids = Vocabulary.hashed(1, ANY).token_ids([" ".join(found)])[0]
    return [word for word, column in zip(found, ids, strict=True) if column == 0]


CAT, DOG, *RARE = words_of_column_0()


@pytest.mark.parametrize(
    ("text", "name", "shared"),
    [
        (f"{CAT} " * 9, CAT, False),
        (f"{DOG} {DOG} " * 9 + f"{CAT} " * 9, f"{DOG}|{CAT}", True),
        (f"{CAT} " * 9 + f"{DOG} " * 2, CAT, False),
        (f"{CAT} " * 8 + f"{DOG} " * 2, f"{CAT}|{DOG}", True),
        # Others have more than half of the column, and none of them is frequent.
        (f"{CAT} " * 20 + " ".join(RARE[:24]), f"{CAT}|…", True),
        (f"{CAT} " * 30 + " ".join(RARE[:24]), CAT, False),
        ("", "h0", False),
    ],
)
def test_a_name_is_the_most_frequent_word_and_says_what_shares_its_column(text, name, shared):
    named = counted([text]).name_columns()
    assert named.feature_name(0) == name
    assert (COLLISION in named.feature_name(0)) is shared
    assert (named.names is None) is (not text)


def test_long_words_are_cut_between_letters_and_unprintable_ones_have_no_name():
    texts = ["ж" * 30, "a|b", "a\ud800", "c\x1bd", "plain"]
    vocabulary = Vocabulary.hashed(12, ANY)
    names = {vocabulary.token_ids([t])[0][0]: t for t in texts}
    named = counted(texts, 12).name_columns()
    shown = {text: named.feature_name(int(column)) for column, text in names.items()}
    assert shown.pop("ж" * 30) == "ж" * 15 + "…"
    assert shown.pop("plain") == "plain"
    assert len(shown) == 3
    assert all(name.startswith("h") for name in shown.values())


def test_names_are_distinct():
    texts = [" ".join("x" * 40 + end for end in "abcdefgh"), "short"]
    names = [name for name in counted(texts, 6).name_columns().names if name]
    assert sorted(names) == ["short", "x" * 31 + "…"]
