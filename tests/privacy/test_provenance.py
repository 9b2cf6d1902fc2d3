"""What documents are known by: fingerprints, sketches, and the accumulator of a release."""

import json
import pickle
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlda.errors import LedgerError
from streamlda.privacy.ledger import (
    Cohort,
    Container,
    DocumentRange,
    FingerprintKey,
    Fingerprints,
    KnownDocuments,
    Provenance,
)
from streamlda.privacy.ledger.fingerprints import text_of, value_of
from streamlda.privacy.ledger.provenance import MOST_PARTS
from streamlda.privacy.ledger.sketches import SKETCH, Sample, Sketch

KEY = FingerprintKey(bytes(range(32)))
OTHER = FingerprintKey(bytes(32))


def provenance(known=None, **more):
    return Provenance(KEY, known or KnownDocuments(), "source", **more)


def known_by(*cohorts):
    """Return what a ledger knows of releases, as it stores them."""
    known = KnownDocuments()
    known.key = KEY
    for cohort in cohorts:
        known.add(Cohort.from_json(json.loads(json.dumps(cohort.to_json()))))
    return known


def records(files):
    """Return the locations and texts of files, given as numbers of records."""
    at = [(f"f{i}", n) for i, size in enumerate(files) for n in range(1, size + 1)]
    return at, [f"{name} {n}" for name, n in at]


def fed(files, cuts=(), restored=False, released=()):
    """Return the cohorts of releases at some records, of a stream that was cut into polls."""
    at, texts = records(files)
    found, found_cohorts = provenance(), []
    for begin, end in pairwise(sorted({0, len(at), *cuts, *released})):
        found.add_texts(at[begin:end], texts[begin:end])
        if end in released:
            found_cohorts.append(found.cohort(begin, end, 0))
            found.clear()
        if restored:
            state = json.loads(json.dumps(found.to_json()))
            found = provenance()
            found.restore(state)
    return [*found_cohorts, found.cohort(0, len(at), 0)]


def opened(cohorts, files):
    """Return documents and fingerprints of cohorts, and what sketches hold of the records."""
    values = {value_of(KEY.of_text(text)) for text in records(files)[1]}
    marks = [c.fingerprints for c in cohorts]
    drawn = [values.intersection(KEY.opened(each.sketch).values) for each in marks]
    assert all(drawn)
    marks = [replace(f, sketch=(), files=KEY.opened_files(f.files)) for f in marks]
    return [(c.documents, *each) for c, *each in zip(cohorts, marks, drawn, strict=True)]


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=50),
    st.lists(st.integers(1, 400), max_size=5),
    st.lists(st.integers(1, 400), max_size=2),
)
@example([3] * 90, [1, 50, 100, 101, 200], [40, 203])
def test_cuts_and_restarts_change_nothing(files, cuts, released):
    n = sum(files)
    cuts, released = {c for c in cuts if c < n}, {r for r in released if r < n}
    wanted = opened(fed(files, released=released), files)
    for restored in (False, True):
        assert opened(fed(files, cuts, restored, released), files) == wanted
    # Every record is in one range.
    assert sum(p.stop - p.start for c, *_ in wanted for p in c) == n
    assert all(len(documents) <= MOST_PARTS + 1 for documents, *_ in wanted)


def of_logs(sizes, block, cuts=(), restored=False, released=()):
    """Return the cohorts of releases of logs that are read by turns, a block of each."""
    rounds = -(-max(sizes) // block)
    at = [
        (f"t/{number}", record)
        for turn in range(rounds)
        for number, size in enumerate(sizes)
        for record in range(turn * block + 1, min((turn + 1) * block, size) + 1)
    ]
    texts = [f"{name} {n}" for name, n in at]
    names = {f"t/{number}": f"kafka:c/t/{number}" for number in range(len(sizes))}
    found, cohorts = provenance(), []
    found.names = names
    for begin, end in pairwise(sorted({0, len(at), *cuts, *released})):
        found.add_texts(at[begin:end], texts[begin:end])
        if end in released:
            cohorts.append(found.cohort(begin, end, 0))
            found.clear()
        if restored:
            state = json.loads(json.dumps(found.to_json()))
            found = provenance()
            found.names = names
            found.restore(state)
    return [*cohorts, found.cohort(0, len(at), 0)]


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
    st.integers(1, 30),
    st.lists(st.integers(1, 200), max_size=5),
    st.lists(st.integers(1, 200), max_size=2),
)
def test_of_logs_that_are_read_by_turns_a_release_has_one_range_each(sizes, block, cuts, released):
    """However they were cut; and they are known as logs that are read one after the other."""
    n = sum(sizes)
    cuts, released = {c for c in cuts if c < n}, {r for r in released if r < n}
    wanted = of_logs(sizes, block, released=released)
    for restored in (False, True):
        again = of_logs(sizes, block, cuts, restored, released)
        assert [(c.documents, c.fingerprints.marks) for c in again] == [
            (c.documents, c.fingerprints.marks) for c in wanted
        ]
    behind = dict.fromkeys(range(len(sizes)), 0)
    for cohort in wanted:
        names = [part.stream for part in cohort.documents]
        assert len(set(names)) == len(names)
        for part in cohort.documents:
            number = int(part.stream.rpartition("/")[2])
            assert part.start == behind[number]
            behind[number] = part.stop
    assert list(behind.values()) == sizes
    if not released:
        (by_turns,), (one_by_one,) = wanted, of_logs(sizes, 60)
        assert set(by_turns.fingerprints.marks) == set(one_by_one.fingerprints.marks)


@pytest.mark.parametrize("files", [[100], [20, 40], [3] * 200])
def test_what_was_released_is_met_again(files):
    known = known_by(*fed(files, released={sum(files) // 2}))
    for name in range(len(files)):
        link = b""
        for n in range(1, files[name] + 1):
            link = KEY.link(link, KEY.of_text(f"f{name} {n}"))
        assert known.find(value_of(link)) is not None
        assert known.find(value_of(KEY.link(link, b""))) is None


def test_a_container_is_met_where_its_records_double():
    (cohort,) = fed([100])
    known = known_by(cohort)
    assert [mark.records for mark in cohort.fingerprints.marks] == [16, 32, 64, 100]
    at, texts = records([100])
    for n, refused in ((15, False), (16, True), (70, True)):
        again = provenance(known)
        again.add_texts([("other", record) for _, record in at[:n]], texts[:n])
        if refused:
            with pytest.raises(LedgerError, match=r"first_records=(16|64) origin='f0'"):
                again.cohort(0, n, 0)
        else:
            assert again.cohort(0, n, 0)
    # From its middle on it is no beginning, and behind what is spent it is another one.
    again = provenance(known, container_of=lambda name: Container("f0", 16, b"x"))
    again.add_texts([("other", record) for _, record in at[16:]], texts[16:])
    assert [tuple(vars_of(part)) for part in again.cohort(0, 84, 0).documents] == [("f0", 16, 100)]


def vars_of(part):
    return part.stream, part.start, part.stop


def test_equal_files_do_not_show_without_the_key():
    at = [(f"f{i}", 1) for i in range(200)]
    found = provenance()
    found.add_texts(at, ["the same"] * 200)
    files = found.cohort(0, 200, 0).fingerprints.files
    values = {files[i : i + 8] for i in range(0, len(files), 8)}
    assert len(values) == len(files) // 8 > 320
    opened = KEY.opened_files(files)
    assert len({opened[i : i + 8] for i in range(8, len(opened), 16)}) == 1


def test_without_the_key_fingerprints_are_other_numbers():
    one, two = (key.of_text("a document") for key in (KEY, OTHER))
    assert one != two
    assert KEY.name != OTHER.name
    (cohort,) = fed([100])
    stored = json.dumps(cohort.to_json())
    assert bytes(range(32)).hex() not in stored
    assert KEY.of_text("  a document\r") == one
    assert KEY.of_text(None) == KEY.of_text(" \t") == b""
    assert KEY.of_text("\ud800") != b""


@given(st.lists(st.none() | st.text() | st.text(st.sampled_from("aB <&>\n"))))
def test_a_document_is_known_whatever_is_beside_it(texts):
    assert KEY.of_texts(texts) == [KEY.of_text(text) for text in texts]


def test_fingerprints_are_those_of_ledgers_that_are_there():
    texts = ["A  Tensor_of\tOrder-3!", "  <b>caf\u00e9</b> &amp; th\u00e9 ", "-- --"]
    keyed = blake2b(key=bytes(range(32)), digest_size=16)
    expected = []
    for words in (b"a tensor of order 3", b"cafe the", b"-- --"):
        one = keyed.copy()
        one.update(b"text" + words)
        expected.append(one.digest())
    assert KEY.of_texts(texts) == expected


@given(st.text(st.characters(max_codepoint=127)))
@example("A_b-C\x1c\t9")
@example("__ \x1f -")
def test_ascii_is_known_as_all_text_is(text):
    # A character without a width takes it the way of other text.
    assert KEY.of_text(text) == KEY.of_text(text + "\u200b")


def test_rows_are_known_by_columns_and_counts():
    columns, counts = np.array([1, 5], np.int32), np.array([2.0, 1.0])
    row = KEY.of_counts(columns, counts)
    assert row == KEY.of_counts(columns.copy(), counts.copy())
    assert row != KEY.of_counts(columns, counts[::-1].copy())
    assert row != KEY.of_counts(columns + np.int32(1), counts)
    assert KEY.of_counts(columns[:0], counts[:0]) == b""


@given(st.lists(st.integers(0, 2**64 - 1), max_size=300))
def test_a_sketch_is_of_the_smallest(values):
    assert Sketch.of(values + values[:50]).values == tuple(sorted(set(values))[:SKETCH])


@given(st.lists(st.integers(0, 2**64 - 1), max_size=300))
def test_a_sealed_sketch_opens(values):
    sketch = Sketch.of(values)
    opened = KEY.opened(KEY.sealed(sketch))
    assert (opened.values, opened.documents) == (sketch.values, len(values))
    assert KEY.sealed(sketch) != KEY.sealed(sketch)


@pytest.mark.parametrize("documents", [64, 500, 700, 1300, 20_000])
def test_whether_documents_are_all_different_is_no_estimate(documents):
    """How many differ is one, off by a tenth in one set of fifty; a refusal must not hang on it."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        values = rng.integers(2**64, size=documents, dtype=np.uint64).tolist()
        halves = [Sketch.of(values[::2]), Sketch.of(values[1::2])]
        joined = Sketch()
        for half in halves:
            joined.join(KEY.opened(KEY.sealed(half)))
        first, second = map(Sample.of, halves)
        for sample in (Sample.of(Sketch.of(values)), Sample.of(joined), first.with_(second)):
            assert sample.is_diverse
        # Of a third of them that come again, those drawn tell: .25 of 512, s.d. .02.
        again = Sketch.of(values + values[: documents // 3])
        for sketch in (again, KEY.opened(KEY.sealed(again))):
            assert not Sample.of(sketch).is_diverse


def refused(old, new, releases=1):
    """Return whether documents are refused behind releases of others, each of a part of these."""
    known = KnownDocuments()
    known.key = KEY
    for number, some in enumerate(np.array_split(old, releases)):
        of = DocumentRange("s", number, number + 1)
        sketch = KEY.sealed(Sketch.of(some.tolist()))
        known.add(Cohort("", (of,), 0, run="before", fingerprints=Fingerprints("", sketch=sketch)))
    sample = Sample.of(Sketch.of(new.tolist()))
    return known.repeats(sample, lambda whose: False, judge_own=True) is not None


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("old", "new", "shared", "wanted"),
    [
        # Of equal sets: odds of a mistake below 1e-9 at .45 (mean .45 of 512, sd .022) and at .22.
        (20_000, 20_000, 9000, True),
        (20_000, 20_000, 4400, False),
        # A part: some 25 are drawn, all of them known; of the others 8 of 25 by chance at 1e-6.
        (20_000, 1000, 1000, True),
        (1000, 20_000, 1000, True),
        (1000, 20_000, 100, False),
        (20_000, 1000, 50, False),
        (15, 15, 15, True),
        (7, 7, 7, False),
    ],
)
def test_the_share_that_is_refused(old, new, shared, wanted):
    rng = np.random.default_rng(5)
    for releases in (1, 4):
        for _ in range(5):
            before = rng.permutation(rng.integers(2**63, size=old, dtype=np.uint64) * 2)
            fresh = rng.integers(2**63, size=new - shared, dtype=np.uint64) * 2
            after = np.concatenate([rng.choice(before, shared, replace=False), fresh])
            assert refused(before, after, min(releases, old // 7)) == wanted


@pytest.mark.parametrize(
    "text", ["Apple, bread", "apple bread.", "  APPLE\tbread\n", "apple -- bread"]
)
def test_case_marks_and_white_space_make_no_other_document(text):
    assert KEY.of_text(text) == KEY.of_text("apple bread")
    assert KEY.of_text(text) != KEY.of_text("bread apple")
    assert KEY.of_text(" \n") == KEY.of_text(None) == b"" != KEY.of_text("?")


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("caf\u00e9 cr\u00e8me", "cafe\u0301 cre\u0300me"),
        ("caf\u00e9", "cafe"),
        ("co\u00adoperate", "cooperate"),
        ("\ufeffapple", "apple"),
        ("apple_bread", "apple bread"),
        ("\ufb01ne \u2160", "FINE i"),
        ("Stra\u00dfe", "STRASSE"),
    ],
)
def test_a_text_that_is_encoded_otherwise_is_the_same(text, other):
    assert KEY.of_text(text) == KEY.of_text(other) != KEY.of_text("other")


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ('{"text": "a b", "title": "c"}', "a b"),
        ('{"body": {"plain": "a b"}, "title": "c"}', "a b"),
        ('{"message": "a b", "number": 3}', "a b"),
        *(
            (record, record)
            for record in (
                '{"x": "a", "y": "b"}',
                '{"text": 1}',
                "{a b}",
                "{}",
                "[1]",
                "{" * 9999,
                "",
            )
        ),
        (None, None),
    ],
)
def test_a_line_of_json_is_known_by_its_text(record, text):
    assert text_of(record, ["body.plain", "text"]) == text


def test_a_key_that_travels_is_the_same():
    assert pickle.loads(pickle.dumps(KEY)).of_text("a") == KEY.of_text("a")
