"""Texts that more than one test module draws from, and scikit-learn's way with them."""

import numpy as np
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

#: The default pattern of version 0.1, for models of that version.
LETTERS = r"(?u)\b[^\W\d_]{2,}\b"
SKLEARN_PATTERN = r"(?u)\b\w\w+\b"
TEXTS = ["the red cat, the cat", "A dog", "", "cats x86 dog dog"]

#: Letters that change length or script when lower-cased, digits that are letters to some, joins.
tricky = st.text(
    st.sampled_from(
        "abzABZ019_-' \n\t.éÉß\u0130\u0131\u017f\u212a\u03a3\u03c3\u03c2"
        "²½\u0663中\u0301\u200d\u00a0\x1c\x00"
    ),
    max_size=40,
)
any_text = tricky | st.text(max_size=30) | st.text(st.characters(max_codepoint=127), max_size=60)
#: Few words, so that they meet again.
small_text = st.lists(
    st.sampled_from(["ab", "cd", "Ef", "gh", "ij", "the", "x", "k2", "éa"]), max_size=12
).map(" ".join)
word_list = st.lists(
    st.sampled_from(["ab", "cd", "ef", "gh", "ij", "the", "éa", "ab cd", "zz"]),
    min_size=1,
    unique=True,
)


def reference(analyzer, **settings):
    return CountVectorizer(
        lowercase=analyzer.lowercase,
        token_pattern=analyzer.token_pattern,
        stop_words=None if analyzer.stop_words is None else list(analyzer.stop_set),
        ngram_range=analyzer.ngram_range,
        **settings,
    )


def endless(n_documents, seed):
    """Yield texts of 20 frequent words among words that never come back."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnop"))
    for _ in range(n_documents):
        rare = ("".join(rng.choice(letters, 9)) for _ in range(30))
        often = (f"often{letters[i]}" for i in rng.geometric(0.3, 30).clip(1, 16) - 1)
        yield " ".join([*rare, *often])
