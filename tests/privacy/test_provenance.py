"""Fingerprints of documents, their file beside a ledger, and the accumulator of a release."""

import json
import pickle
from contextlib import nullcontext
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlda.errors import LedgerError
from streamlda.privacy.ledger import (
    Cohort,
    Container,
    FingerprintKey,
    KnownRecords,
    Provenance,
)
from streamlda.privacy.ledger.documents import (
    ReleasedDocuments,
    values_of,
    values_of_fingerprints,
)
from streamlda.privacy.ledger.provenance import MOST_PARTS

KEY = FingerprintKey(bytes(range(32)))
OTHER = FingerprintKey(bytes(32))


def provenance():
    return Provenance(KEY, "source", container_of=Container)


def known_by(*cohorts):
    """Return what a ledger knows of releases, as it stores them."""
    return KnownRecords(Cohort.from_json(json.loads(json.dumps(c.to_json()))) for c in cohorts)


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
    """Return ranges and fingerprints of cohorts, which have the value of each record."""
    found = [cohort.fingerprints for cohort in cohorts]
    every = np.concatenate([values_of(each.documents) for each in found])
    np.testing.assert_array_equal(every, values_of_fingerprints(KEY.of_texts(records(files)[1])))
    return list(zip([cohort.documents for cohort in cohorts], found, strict=True))


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
    found, cohorts = Provenance(KEY, "source"), []
    found.names = names
    for begin, end in pairwise(sorted({0, len(at), *cuts, *released})):
        found.add_texts(at[begin:end], texts[begin:end])
        if end in released:
            cohorts.append(found.cohort(begin, end, 0))
            found.clear()
        if restored:
            state = json.loads(json.dumps(found.to_json()))
            found = Provenance(KEY, "source")
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


@pytest.mark.parametrize("files", [[100], [20, 40], [3] * 200])
def test_a_file_is_met_again_where_its_release_ended(files):
    known = known_by(*fed(files, released={sum(files) // 2}))
    for number, size in enumerate(files):
        name, link = f"f{number}", b""
        marks = known.marks_of(KEY.value_of_name(name))
        assert max(marks) == size
        for n in range(1, size + 1):
            link = KEY.link(link, KEY.of_text(f"{name} {n}"))
            if n in marks:
                assert marks[n] == KEY.mark(name, n, link).value
                assert marks[n] != KEY.mark(name, n, KEY.link(link, b"")).value


def test_equal_files_do_not_show_without_the_key():
    at = [(f"f{i}", 1) for i in range(200)]
    found = provenance()
    found.add_texts(at, ["the same"] * 200)
    marks = found.cohort(0, 200, 0).fingerprints.marks
    assert len({mark.value for mark in marks}) == len({mark.name for mark in marks}) == 200


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


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(2**64 - 40, 2**64 - 1), min_size=1), max_size=5), st.data())
def test_documents_are_counted_exactly_and_what_is_not_on_record_is_overwritten(releases, data):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "L.documents"
        kept = data.draw(st.integers(0, len(releases)))
        for begun in (0, kept):
            found = ReleasedDocuments(path, begun)
            for number, values in enumerate(releases[begun:], begun + 1):
                found.add(number, np.array(values, np.uint64))
        assert path.stat().st_mode & 0o777 == 0o600 if releases else not path.exists()
        found = ReleasedDocuments(path, len(releases))
        every = [value for values in releases for value in values]
        asked = [*range(2**64 - 40, 2**64)]
        wanted = sum(value in every for value in asked)
        assert found.count_repeats(np.array(asked, np.uint64)) == (wanted, 40)
        repeated = sum(every.count(value) > 1 for value in every)
        assert found.count_records() == (repeated, len(every))
        prices = {number: 0.5 + number for number in range(1, len(releases) + 1)}
        costs = [
            sum(prices[i] * each.count(value) ** 2 for i, each in enumerate(releases, 1))
            for value in every
        ]
        most = found.find_most_charged(prices, power=2)
        assert sum(prices[i] * n**2 for i, n in most.items()) == max(costs, default=0)
        path.write_bytes(path.read_bytes()[:-3] if releases else b"123")
        assert ReleasedDocuments(path, 9).count_records().documents <= len(every)


@pytest.mark.parametrize(("again", "is_refused"), [(100, True), (99, False), (0, False)])
def test_a_third_of_documents_that_were_released_is_refused(tmp_path, again, is_refused):
    found = ReleasedDocuments(tmp_path / "L.documents", 0)
    values = np.random.default_rng(1).integers(2**64, size=500, dtype=np.uint64)
    found.add(1, values[:200])
    with pytest.raises(LedgerError, match="repeated=100") if is_refused else nullcontext():
        found.check_new(values[200 - again : 500 - again], remedy="take others")


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


def test_a_key_that_travels_is_the_same():
    assert pickle.loads(pickle.dumps(KEY)).of_text("a") == KEY.of_text("a")
