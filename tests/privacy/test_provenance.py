"""Fingerprints of documents, their file beside a ledger, and the accumulator of a release."""

import json
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Cohort, Container, FingerprintKey, Provenance
from streamlda.privacy.ledger.documents import ReleasedDocuments, values_of_fingerprints
from streamlda.privacy.ledger.records import ReleasedRecords

KEY = FingerprintKey(bytes(range(32)))
OTHER = FingerprintKey(bytes(32))


def in_files(sizes):
    return [(f"f{i}", n) for i, size in enumerate(sizes) for n in range(1, size + 1)]


def in_logs(sizes, block=7):
    """Return the records of logs that are read by turns, a block of each."""
    rounds = -(-max(sizes) // block)
    return [
        (f"log{number}", record)
        for turn in range(rounds)
        for number, size in enumerate(sizes)
        for record in range(turn * block + 1, min((turn + 1) * block, size) + 1)
    ]


def fed(at, cuts=(), restored=False, released=()):
    """Return the cohorts of releases at some records, of a stream that was cut into polls."""

    def provenance():
        files = {name: Container(name) for name, _ in at if name.startswith("f")}
        return Provenance(KEY, "source", files=files)

    texts = [f"{name} {n}" for name, n in at]
    found, cohorts = provenance(), []
    for begin, end in pairwise(sorted({0, len(at), *cuts, *released})):
        found.add_texts(at[begin:end], texts[begin:end])
        if end in released:
            cohorts.append(found.cohort(0, end))
            found.clear()
        if restored:
            state = json.loads(json.dumps(found.to_json()))
            found = provenance()
            found.restore(state)
    return [*cohorts, found.cohort(0, len(at))]


def stored(cohorts):
    return [json.dumps([c.to_json(), c.values.tolist()]) for c in cohorts]


@settings(max_examples=40)
@given(
    st.sampled_from([in_files, in_logs]),
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.lists(st.integers(1, 400), max_size=5),
    st.lists(st.integers(1, 400), max_size=2),
)
def test_cuts_and_restarts_change_nothing(arranged, sizes, cuts, released):
    at = arranged(sizes)
    n = len(at)
    cuts, released = {c for c in cuts if c < n}, {r for r in released if r < n}
    cohorts = fed(at, released=released)
    for restored in (False, True):
        assert stored(fed(at, cuts, restored, released)) == stored(cohorts)
    every = np.concatenate([cohort.values for cohort in cohorts])
    texts = [f"{name} {n}" for name, n in at]
    np.testing.assert_array_equal(every, values_of_fingerprints(map(KEY.of_text, texts)))
    # Every record is in one range, of which a release has one for each file or log.
    behind = {}
    for cohort in cohorts:
        names = [part.stream for part in cohort.documents]
        assert len(set(names)) == len(names)
        for part in cohort.documents:
            assert part.start == behind.get(part.stream, 0)
            behind[part.stream] = part.stop
    assert sum(behind.values()) == n


@pytest.mark.parametrize("files", [[100], [20, 40], [3] * 200])
def test_a_file_is_met_again_where_its_release_ended(files):
    cohorts = fed(in_files(files), released={sum(files) // 2})
    kept = [json.dumps(cohort.to_json()) for cohort in cohorts]
    assert sum(map(len, kept)) < 60 * len(files) + 200
    known = ReleasedRecords(Cohort.from_json(json.loads(each)) for each in kept)
    for number, size in enumerate(files):
        name, link = f"f{number}", b""
        assert known.reach(name) == size
        seals = known.seals(name)
        for n in range(1, size + 1):
            link = KEY.link(link, KEY.of_text(f"{name} {n}"))
            if n in seals:
                assert seals[n] == KEY.seal(name, link)
                assert seals[n] != KEY.seal(name, KEY.link(link, b""))
        assert size in seals


def test_equal_files_do_not_show_without_the_key():
    at = [(f"f{i}", 1) for i in range(200)]
    found = Provenance(KEY, "source", files={name: Container(name) for name, _ in at})
    found.add_texts(at, ["the same"] * 200)
    assert len({part.seal for part in found.cohort(0, 200).documents}) == 200


def test_without_the_key_fingerprints_are_other_numbers():
    one, two = (key.of_text("a document") for key in (KEY, OTHER))
    assert one != two
    assert KEY.name != OTHER.name
    assert KEY.of_text("  a document\r") == one
    assert KEY.of_text(None) == KEY.of_text(" \t") == b""
    assert KEY.of_text("\ud800") != b""


@given(st.text(st.characters(max_codepoint=127)))
@example("A_b-C\x1c\t9")
@example("__ \x1f -")
def test_ascii_is_known_as_all_text_is(text):
    # A character without a width takes it the way of other text.
    assert KEY.of_text(text) == KEY.of_text(text + "\u200b")


def test_rows_are_known_by_columns_and_counts():
    rows = np.array([[0, 2, 0, 1], [0, 1, 0, 2], [0, 0, 0, 0], [0, 2, 0, 1], [2, 0, 1, 0]])
    one, other, blank, again, moved = KEY.of_rows(DocumentBatch.from_matrix(rows))
    assert (one, blank) == (again, b"")
    assert len({one, other, moved}) == 3


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(2**64 - 40, 2**64 - 1)), max_size=5), st.data())
def test_documents_are_counted_exactly_and_what_is_cut_short_is_overwritten(releases, data):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "L.documents"
        key, cut = ReleasedDocuments(path).make(), data.draw(st.integers(1, 15))
        assert path.stat().st_mode & 0o777 == 0o600
        for number, values in enumerate(releases, 1):
            ReleasedDocuments(path).add(number, np.array([1, 2], np.uint64))
            path.write_bytes(path.read_bytes()[:-cut])
            assert ReleasedDocuments(path).newest == number - 1
            ReleasedDocuments(path).add(number, np.array(values, np.uint64))
        found = ReleasedDocuments(path)
        assert (found.newest, found.key.name) == (len(releases), key.name)
        every = [value for values in releases for value in values]
        asked = [*range(2**64 - 40, 2**64)]
        wanted = sum(value in every for value in asked)
        assert found.count_repeats(np.array(asked, np.uint64)) == wanted
        repeated = sum(every.count(value) > 1 for value in every)
        prices = {number: 0.5 + number for number in range(1, len(releases) + 1)}
        costs = [
            sum((prices[i] * each.count(value)) ** 2 for i, each in enumerate(releases, 1))
            for value in every
        ]
        *counted, most = found.find_most_charged(prices, power=2)
        assert counted == [len(every), repeated]
        assert sum((prices[i] * n) ** 2 for i, n in most.items()) == max(costs, default=0)


def test_repeats_of_many_releases_are_counted_in_few_looks_at_each(tmp_path, monkeypatch):
    found, looked, merged = ReleasedDocuments(tmp_path / "L.documents"), [], []
    found.make()

    def search(run, values, look=np.searchsorted):
        looked.append(len(values))
        return look(run, values)

    def merge(parts, join=found._merge):
        merged.append(sum(map(len, parts)))
        return join(parts)

    monkeypatch.setattr(np, "searchsorted", search)
    monkeypatch.setattr(found, "_merge", merge)
    rng, known, n = np.random.default_rng(2), set(), 256
    for number in range(1, n + 1):
        values = rng.integers(4 * n, size=rng.integers(20), dtype=np.uint64)
        assert found.count_repeats(values) == sum(value in known for value in values.tolist())
        found.add(number, values)
        known.update(values.tolist())
    # Of n releases each would be asked for n / 2 others, were they not merged.
    assert 0 < max(len(looked) / n, sum(merged) / (10 * n)) <= np.log2(n)
    assert [path.name for path in tmp_path.iterdir()] == ["L.documents"]


@pytest.mark.parametrize(("again", "is_refused"), [(100, True), (99, False), (0, False)])
def test_a_third_of_documents_that_were_released_is_refused(tmp_path, again, is_refused):
    found = ReleasedDocuments(tmp_path / "L.documents")
    found.make()
    values = np.random.default_rng(1).integers(2**64, size=500, dtype=np.uint64)
    found.add(1, values[:200])
    with pytest.raises(LedgerError, match="repeated=100") if is_refused else nullcontext():
        found.check_new(values[200 - again : 500 - again], remedy="take others")


@pytest.mark.parametrize(
    ("text", "other"),
    [
        *(
            ("apple bread", each)
            for each in ("Apple, bread", "  APPLE\tbread\n", "apple -- bread.")
        ),
        ("caf\u00e9 cr\u00e8me", "cafe\u0301 cre\u0300me"),
        ("caf\u00e9", "cafe"),
        ("co\u00adoperate", "cooperate"),
        ("\ufeffapple", "apple"),
        ("apple_bread", "apple bread"),
        ("\ufb01ne \u2160", "FINE i"),
        ("Stra\u00dfe", "STRASSE"),
        ("  <b>caf\u00e9</b> &amp; th\u00e9 ", "cafe the"),
    ],
)
def test_a_text_that_is_written_or_encoded_otherwise_is_the_same(text, other):
    assert KEY.of_text(text) == KEY.of_text(other) != KEY.of_text("other")
    assert KEY.of_text("apple bread") != KEY.of_text("bread apple")
    assert KEY.of_text(" \n") == KEY.of_text(None) == b"" != KEY.of_text("?")
