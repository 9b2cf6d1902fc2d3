"""Made-up payloads: nothing that comes from outside breaks the daemon.

`make soak` tries a million of them; here are some thousands.
"""

import json
import random
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.stream.blocks import Blocks
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from streamlda_connectors.kafka.client import Record, Run
from streamlda_connectors.kafka.decoding import Decoding
from streamlda_connectors.records import REASONS, BatchBuilder, ReadOptions
from tests.service.web import JSON_VALUES

pytestmark = pytest.mark.long

#: Payloads of one example: 3000 examples of `make soak` make a million.
PAYLOADS = 350

DOCUMENTS = st.one_of(
    st.binary(max_size=60),
    st.text().map(lambda text: json.dumps({"text": text}).encode()),
    st.text()
    .map(lambda text: json.dumps({"text": text}, ensure_ascii=False))
    .map(lambda line: line.encode("utf-8", "surrogatepass")),
    JSON_VALUES.map(lambda value: json.dumps({"text": value, "user": value}).encode()),
    JSON_VALUES.map(lambda value: json.dumps({"text": {"text": value}}).encode()),
)
#: What has broken readers of JSON before.
PIECES = [
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\x00", b"\xff", b"\xed\xa0\x80", b"\n"),
    *(b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"NaN", b"-Infinity", b"1e999", b"-0", b"9" * 400),
    *(b"[" * 2000, b'{"text":' * 300, b'"text":', b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8", b"null"),
]
VOCABULARIES = [
    Vocabulary.hashed(6),
    Vocabulary.given(["text", "null", "ab", "the", "\u00e9t\u00e9"]),
    Vocabulary.hashed(4, TextAnalyzer(token_pattern=r"\S+", stop_words="english")),
]


def mutated(documents, seed):
    """Return the documents and damaged descendants of them, `PAYLOADS` in all."""
    draw = random.Random(seed)
    made = [*documents, None, b"", b" \n"]
    whole = [*documents, b'{"text": "ab the null \\u00e9t\\u00e9", "user": "u1"}']
    while len(made) < PAYLOADS:
        value = bytearray(draw.choice(whole))
        for _ in range(draw.randint(1, 4)):
            at, stop = draw.randint(0, len(value)), draw.randint(1, 8)
            other = draw.choice(whole)
            match draw.randint(0, 4):
                case 0 if at < len(value):
                    value[at] ^= 1 << draw.randint(0, 7)
                case 1:
                    value[at:at] = draw.choice(PIECES)
                case 2:
                    del value[at : at + stop]
                case 3:
                    value[at:] = other[draw.randint(0, len(other)) :]
                case _:
                    value[at : at + 1] = draw.randbytes(draw.randint(0, 4))
        made.append(bytes(value))
    draw.shuffle(made)
    return made


def run_of(values):
    def record(index):
        return Record("t", 0, index, 0, None, values[index], ())

    return Run(0, range(len(values)), values, [-1] * len(values), record)


@pytest.mark.fuzz
@given(
    documents=st.lists(DOCUMENTS, max_size=8),
    seed=st.integers(0, 2**32 - 1),
    user_field=st.sampled_from([None, "user", "text.user"]),
    text_field=st.sampled_from(["text", "text.text", "", "."]),
    form=st.sampled_from(["jsonl", "jsonl", "jsonl", "text"]),
    size=st.integers(1, PAYLOADS),
)
def test_no_payload_breaks_decoding_or_counting(
    documents, seed, user_field, text_field, form, size
):
    values = mutated(documents, seed)
    rejected = []
    decoding = Decoding(
        *(
            "t",
            form,
            ReadOptions(text_field, 5000, user_field if form == "jsonl" else None),
        ),
        lambda record, reason: rejected.append((record.offset, reason)),
    )
    pending, next_ = deque([run_of(values)]), {0: 0}
    blocks, n_records, told = Blocks(), 0, []
    while next_[0] < len(values):
        builder = BatchBuilder(size, 1.0)
        assert decoding.take(builder, pending, next_)
        batch = builder.build(exhausted=False, users=decoding.known["users"])
        batch.check(size)
        told += [(reject.record - 1, reject.reason) for reject in batch.rejects]
        n_records += batch.n_records
        assert n_records == next_[0]
        rows = [text or "" for text in batch.texts]
        for vocabulary in VOCABULARIES:
            encoded = vocabulary.encode(rows)
            counts = encoded.batch
            assert counts.n_documents == batch.n_records
            assert np.isfinite(counts.counts).all()
            assert counts.counts.sum() == encoded.tokens - encoded.unseen_tokens
        list(blocks.add(VOCABULARIES[0].encode(rows).batch))
    assert told == rejected
    assert {reason for _, reason in told} <= {*REASONS}
    assert all(values[offset] is not None for offset, _ in told)
