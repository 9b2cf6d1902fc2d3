"""Made-up payloads: nothing that comes from outside breaks reading and counting."""

import json
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from streamlda_connectors.kafka.decoding import RecordOptions
from streamlda_connectors.kafka.partitions import Record, Run
from streamlda_connectors.records import REASONS, BatchBuilder, ReadOptions

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)

#: What has broken readers of JSON before.
PIECES = [
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\x00", b"\xff", b"\xed\xa0\x80", b"\n"),
    *(b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"NaN", b"-Infinity", b"1e999", b"-0", b"9" * 400),
    *(b"[" * 2000, b'{"text":' * 300, b'"text":', b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8", b"null"),
]
WHOLE = st.one_of(
    st.binary(max_size=60),
    st.text()
    .map(lambda text: json.dumps({"text": text}, ensure_ascii=False))
    .map(lambda line: line.encode("utf-8", "surrogatepass")),
    JSON_VALUES.map(lambda value: json.dumps({"text": value, "user": value}).encode()),
    JSON_VALUES.map(lambda value: json.dumps({"text": {"text": value}}).encode()),
)
#: Whole ones, and those with a piece at any place.
DAMAGED = st.tuples(WHOLE, st.integers(0, 80), st.sampled_from(PIECES))
PAYLOADS = st.one_of(
    st.none(), WHOLE, DAMAGED.map(lambda of: of[0][: of[1]] + of[2] + of[0][of[1] :])
)
VOCABULARIES = [
    Vocabulary.given(["text", "null", "ab", "the", "\u00e9t\u00e9"]),
    Vocabulary.hashed(4, TextAnalyzer(token_pattern=r"\S+", stop_words="english")),
]


@pytest.mark.long
@pytest.mark.fuzz
@given(
    values=st.lists(PAYLOADS, min_size=1, max_size=60),
    user_field=st.sampled_from([None, "user", "text.user"]),
    text_field=st.sampled_from(["text", "text.text", "", "."]),
    form=st.sampled_from(["jsonl", "jsonl", "jsonl", "text"]),
    size=st.integers(1, 60),
)
def test_no_payload_breaks_decoding_or_counting(values, user_field, text_field, form, size):
    rejected, told = [], []
    known = {"user_field": user_field} if form == "jsonl" else {}
    options = ReadOptions(text_field, max_document_bytes=5000, **known)
    decoding = RecordOptions("t", form, options, lambda at, why: rejected.append((at.offset, why)))
    run = Run(0, [Record("t", 0, at, 0, None, value) for at, value in enumerate(values)])
    pending, next_, n_records = deque([run]), {0: 0}, 0
    while next_[0] < len(values):
        builder = BatchBuilder(size, 1.0)
        assert decoding.take(builder, pending, next_)
        batch = builder.build(options)
        batch.check(size)
        told += [(reject.record - 1, reject.reason) for reject in batch.rejects]
        n_records += batch.n_records
        assert n_records == next_[0]
        for vocabulary in VOCABULARIES:
            encoded = vocabulary.encode([text or "" for text in batch.texts])
            assert encoded.batch.n_documents == batch.n_records
            assert np.isfinite(encoded.batch.counts).all()
            assert encoded.batch.counts.sum() == encoded.tokens - encoded.unseen_tokens
    assert told == rejected
    assert {reason for _, reason in told} <= {*REASONS}
    assert all(values[offset] is not None for offset, _ in told)
