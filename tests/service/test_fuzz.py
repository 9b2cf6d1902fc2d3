"""Made-up payloads and settings: nothing that comes from outside breaks the daemon.

`make soak` tries a million payloads and hundreds of thousands of settings; here are some thousands.
"""

import json
import math
import random
from collections import deque

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError, StreamLDAError
from streamlda.service.running import check, rules_of
from streamlda.settings.load import load_settings
from streamlda.settings.run_settings import SETTINGS, TABLE
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

# Payloads

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
            ReadOptions(text_field, "utf-8", 5000, user_field if form == "jsonl" else None),
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


# Settings

ANYTHING = st.one_of(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    st.lists(st.text(max_size=4) | st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
AMOUNTS = st.builds(
    "{}{}{}".format,
    st.integers(-1, 10**6) | st.floats() | st.sampled_from(["", "1e3", ".", "1.2.3", "9" * 400]),
    st.sampled_from(["", " "]),
    st.sampled_from(["", "B", "MiB", "gb", "s", "min", "d", "x"]),
)


def likely(setting):
    """Return values of which many are right, and others nearly."""
    if setting.choices:
        return st.sampled_from(setting.choices)
    near = [setting.default, setting.least, setting.most, 0, 1, "all", "0", "0/2", "127.0.0.1"]
    near = [value for value in near if value not in (None, -math.inf, math.inf)]
    return st.sampled_from(near) | AMOUNTS | st.integers(0, 60)


NAMES = [s.name for s in TABLE] + [f"{s.name}_file" for s in TABLE if s.kind == "secret"]
ENTRIES = st.dictionaries(st.sampled_from(NAMES), st.none(), max_size=12).flatmap(
    lambda names: st.fixed_dictionaries({name: value_of(name) for name in names})
)


def value_of(name):
    setting = SETTINGS.get(name) or SETTINGS[name.removesuffix("_file")]
    return st.one_of(likely(setting), likely(setting), likely(setting), ANYTHING)


def toml(value):
    """Return a value as TOML, as far as there is such a thing."""
    match value:
        case bool() | str():
            return json.dumps(value)
        case None:
            return '""'
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{toml(k)} = {toml(v)}' for k, v in value.items())}}}"
    return repr(value)


def loaded(*args):
    """Load settings; None if they were refused, which must be said by its own error."""
    try:
        found = load_settings(*args)
    except InvalidSettingError as error:
        message = str(error)
        assert ("got problems=" in message) == (message.count("\n- ") > 1)
        assert "; see streamlda" in message or "\n- " in message
        assert all(line.startswith("- ") for line in message.split("\n")[1:])
        return None
    for setting in TABLE:
        assert found[setting.name] is not ...
    rules_of(found)
    try:
        plan = check(found)
    except StreamLDAError:
        # Of files that are not there, and of what only the engine can tell.
        plan = []
    assert all(size >= 0 for _, size in plan)
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "streamlda.toml"


@pytest.mark.fuzz
@given(content=st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(content=b"a = " + b"[" * 5000)
@example(content=b"a." * 2000 + b"a = 1")
@example(content=b"[topics]\ncount = 1e400")
@example(content=b"x = 1979-05-27T07:32:00Z\n[[topics]]\n[[topics]]")
def test_no_bytes_break_the_settings_file(file, content):
    file.write_bytes(content)
    # Nothing that random bytes say is enough to run: a topic must be named.
    assert loaded(file, {}) is None


@pytest.mark.fuzz
@given(entries=ENTRIES, environment=ENTRIES, flags=ENTRIES, kafka=st.booleans())
def test_no_values_break_the_settings(file, entries, environment, flags, kafka):
    required = {"kafka.bootstrap": "127.0.0.1:1", "kafka.topic": "t"} if kafka else {}
    lines = [f"{name} = {toml(value)}\n" for name, value in {**required, **entries}.items()]
    file.write_text("".join(lines), "utf-8")
    variables = {
        "STREAMLDA_" + name.replace(".", "_").upper(): str(value)
        for name, value in environment.items()
    }
    loaded(file, variables, flags)


@pytest.mark.fuzz
@given(
    section=st.text(max_size=8) | st.sampled_from([s.section for s in TABLE]),
    key=st.text(max_size=12) | st.sampled_from([s.key for s in TABLE]),
    variable=st.text(st.characters(codec="ascii", exclude_characters="=\x00"), max_size=12),
    value=ANYTHING,
)
def test_no_names_break_the_settings(file, section, key, variable, value):
    row = f"{json.dumps(section)}.{json.dumps(key)} = {toml(value)}\n"
    file.write_text(row, "utf-8")
    assert loaded(file, {f"STREAMLDA_{variable}": "1"}) is None


def test_right_values_are_among_those_tried(file):
    passed = []

    @settings(max_examples=300, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(entries=ENTRIES)
    def tried(entries):
        flags = {"kafka.bootstrap": "127.0.0.1:1", "kafka.topic": "t"} | entries
        passed.append(loaded(None, {}, flags) is not None)

    tried()
    assert 10 <= sum(passed) < len(passed)
