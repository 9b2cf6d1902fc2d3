"""The batch type: every rule with a planted violation, every kind of matrix, sharing of memory."""

import math
import pickle
from itertools import pairwise
from operator import itemgetter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

from streamlda.documents import MAX_TOKENS, DocumentBatch
from streamlda.errors import InvalidDocumentsError

#: Four documents over five words; the second and the last are empty.
DENSE = np.array([[2, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 5, 0, 0, 7], [0, 0, 0, 0, 0]])


def parts(**changes):
    right = {
        "counts": np.array([2.0, 1.0, 5.0, 7.0]),
        "word_ids": np.array([0, 3, 1, 4], dtype=np.int32),
        "row_pointers": np.array([0, 2, 2, 4, 4], dtype=np.int64),
        "n_features": 5,
    }
    return {**right, **changes}


def test_batch_holds_what_it_was_given():
    given_arrays = parts()
    batch = DocumentBatch(**given_arrays)
    assert (len(batch), batch.n_documents, batch.n_features) == (4, 4, 5)
    np.testing.assert_array_equal(batch.lengths, [3, 0, 12, 0])
    np.testing.assert_array_equal(batch.usable, [True, False, True, False])
    np.testing.assert_array_equal(batch.to_csr().toarray(), DENSE)
    assert repr(batch) == "DocumentBatch(n_documents=4, n_features=5, nnz=4)"
    for name in ("counts", "word_ids", "row_pointers"):
        assert np.shares_memory(getattr(batch, name), given_arrays[name])
        assert given_arrays[name].flags.writeable
    for name in (*("counts", "word_ids", "row_pointers"), "lengths", "usable"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(batch, name)[0] = 0
    matrix = sp.csr_matrix(DENSE.astype(np.float64))
    for one, other in ((DocumentBatch.from_matrix(matrix), matrix), (batch, batch.to_csr())):
        assert np.shares_memory(one.counts, other.data)
        assert np.shares_memory(one.word_ids, other.indices)
    assert matrix.data.flags.writeable


I32, I64, F64 = np.int32, np.int64, np.float64


def counts(*values):
    return parts(counts=np.array(values))


def word_ids(*values, dtype=I32):
    return parts(word_ids=np.array(values, dtype))


def pointers(*values, dtype=None):
    return parts(row_pointers=np.array(values, dtype))


POINTERS = "row pointers do not rise from 0"
VIOLATIONS = {
    "no row pointer": (pointers(dtype=I64), POINTERS),
    "pointers in a matrix": (parts(row_pointers=np.zeros((5, 1), I64)), POINTERS),
    "a count too few": (counts(1.0, 1.0, 1.0), POINTERS),
    "counts in a matrix": (parts(counts=np.ones((4, 1))), POINTERS),
    "ids in a matrix": (parts(word_ids=np.zeros((4, 1), I32)), POINTERS),
    "first pointer": (pointers(1, 2, 2, 4, 4), POINTERS),
    "last pointer": (pointers(0, 2, 2, 4, 9), POINTERS),
    "falling pointers": (pointers(0, 3, 2, 4, 4), POINTERS),
    "wrapping difference": (pointers(0, 2**63 - 1, -(2**62), 4, 4), POINTERS),
    "float pointers": (pointers(0, 2.5, 2.5, 4, 4), "pointers .* integers .* dtype=float64"),
    "huge pointers": (pointers(0, 2, 2, 4, 2**64 - 1, dtype=np.uint64), "integers that fit int64"),
    "no words": (parts(n_features=0), "n_features=0"),
    "wrapping words": (word_ids(0, 3, 1, 2**32 + 4, dtype=I64), "that fit int32, got dtype=int64"),
    "float words": (word_ids(0, 3.5, 1, 4, dtype=F64), "ids .* integers .* dtype=float64"),
    "complex": (counts(1j, 1, 1, 1), "real numbers, got dtype=complex128"),
    "objects": (counts(2, 2, 2, None), "real numbers, got dtype=object"),
    "overflow": (counts(1e308, 1e308, 5, 7), "got document=0"),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_a_batch_refuses_arrays_that_do_not_fit(case):
    arguments, message = VIOLATIONS[case]
    with pytest.raises(InvalidDocumentsError, match=message) as raised:
        DocumentBatch(**arguments)
    assert all(part in str(raised.value) for part in ("got ", ";"))


entries = st.tuples(
    st.integers(-2, 6),
    st.sampled_from([1.0, 2.0, 7.0, 0.0, -0.0, -1.0, -2.5, 0.5, MAX_TOKENS, np.nan, np.inf]),
)
#: What may be wrong with a list of (word, count), in the order in which it is said.
FAULTS = {
    "word ids lie outside": lambda row: any(not 0 <= word < 5 for word, _ in row),
    "word ids do not rise": lambda row: any(b <= a for (a, _), (b, _) in pairwise(row)),
    "counts are not finite": lambda row: any(not math.isfinite(count) for _, count in row),
    "Negative values": lambda row: any(count < 0 for _, count in row),
    "counts that are not above 0": lambda row: any(count == 0 for _, count in row),
    "a document has more than": lambda row: sum(count for _, count in row) > MAX_TOKENS,
    "counts are no whole": lambda row: any(count != round(count) for _, count in row),
}


@given(st.lists(st.lists(entries, max_size=4), max_size=5))
def test_the_first_document_with_the_first_fault_is_named(rows):
    given = (
        [float(count) for row in rows for _, count in row],
        np.array([word for row in rows for word, _ in row], dtype=np.int32),
        np.cumsum([0, *map(len, rows)]),
    )
    found = next(
        ((rule, n) for rule, is_so in FAULTS.items() for n, row in enumerate(rows) if is_so(row)),
        None,
    )
    if found is None:
        assert len(DocumentBatch(*given, n_features=5)) == len(rows)
        return
    with pytest.raises(InvalidDocumentsError) as caught:
        DocumentBatch(*given, n_features=5)
    assert found[0] in str(caught.value)
    assert f"document={found[1]};" in f"{caught.value};"


def test_what_is_near_a_violation_is_taken():
    # Words fall between documents, also across empty ones; the longest document.
    pointers = np.array([0, 0, 1, 1, 2, 3, 3])
    batch = DocumentBatch(np.ones(3), np.array([4, 2, 0], dtype=I32), pointers, 5)
    np.testing.assert_array_equal(batch.lengths, [0, 1, 0, 1, 1, 0])
    batch = DocumentBatch(**counts(2, 1, 1, MAX_TOKENS - 1.0))
    assert batch.lengths[2] == MAX_TOKENS
    # Weights, when counts need not be whole.
    batch = DocumentBatch(**counts(0.5, 2.75, 5, 7), integral=False)
    np.testing.assert_array_equal(batch.lengths, [3.25, 0, 12, 0])
    matrix = sp.csr_matrix(DENSE * 0.5)
    assert DocumentBatch.from_matrix(matrix, integral=False).counts[1] == 0.5


FORMATS = {
    "list": lambda x: x.tolist(),
    "dense": lambda x: x,
    "fortran": np.asfortranarray,
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "csr": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "csc": sp.csc_matrix,
    "coo": sp.coo_matrix,
    "coo_array": sp.coo_array,
    "lil": sp.lil_matrix,
}
DTYPES = ["bool", "int8", "uint8", "uint16", "int32", "int64", "uint64", "float32", "float64"]


@pytest.mark.parametrize(
    ("form", "dtype"),
    [*((form, "uint8") for form in FORMATS), *(("dense", dtype) for dtype in (*DTYPES, "float16"))],
)
def test_from_matrix_takes_every_format_and_dtype(form, dtype):
    batch = DocumentBatch.from_matrix(FORMATS[form](DENSE.astype(dtype)))
    dtypes = (batch.counts.dtype, batch.word_ids.dtype, batch.row_pointers.dtype)
    assert dtypes == (F64, I32, I64)
    np.testing.assert_array_equal(batch.to_csr().toarray(), DENSE.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_keep_their_type_without_a_copy_and_are_the_same_in_every_part(dtype):
    matrix = sp.csr_matrix(DENSE.astype(dtype))
    same, batch = DocumentBatch.from_matrix(DENSE), DocumentBatch.from_matrix(matrix)
    assert np.shares_memory(batch.raw, matrix.data)
    if dtype == "bool":
        same = DocumentBatch.from_matrix(DENSE > 0)
    even = np.arange(len(batch)) % 2 == 0
    ways = {
        "itself": lambda documents: documents,
        "rows": lambda documents: documents.rows(1, 3),
        "where": lambda documents: documents.where(even),
        "sharing": lambda documents: documents.sharing(even),
        "rows of some": lambda documents: documents.sharing(even).rows(0, 1),
        "without words": lambda documents: documents.without(np.arange(5) == 3, 5),
        "copy": lambda documents: documents.copy(),
        "joined": lambda documents: DocumentBatch.joined([documents, same]),
    }
    for way in ways.values():
        found, expected = way(batch), way(same)
        np.testing.assert_array_equal(found.counts, expected.counts)
        assert found.counts.dtype == F64
        np.testing.assert_array_equal(found.word_ids, expected.word_ids)
        np.testing.assert_array_equal(found.lengths, expected.lengths)
        assert found.whole


@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_a_batch_travels_with_one_copy_of_its_counts(dtype):
    counts = np.ones(1000, dtype)
    batch = DocumentBatch(counts, np.arange(1000), np.array([0, 1000]), 1000)
    before = len(pickle.dumps(batch))
    assert batch.counts.sum() == 1000
    assert len(pickle.dumps(batch)) == before < 1000 * (counts.itemsize + 4) + 1000
    found = pickle.loads(pickle.dumps(batch))
    np.testing.assert_array_equal(found.counts, batch.counts)


def test_more_columns_than_ids_are_refused_before_memory_is_taken():
    # A conversion by columns would take 64 GiB.
    wide = sp.coo_matrix(([1.0], ([0], [2**33 - 1])), shape=(1, 2**33))
    with pytest.raises(
        InvalidDocumentsError, match=r"2147483647 columns, got n_features=8589934592;"
    ):
        DocumentBatch.from_matrix(wide)


#: Rows, columns and values in any order, some of them more than once or zero.
UNTIDY = st.lists(st.tuples(*(st.integers(0, most) for most in (3, 4, 100))), max_size=12)


@given(UNTIDY, st.sampled_from(["csr", "csc", "coo"]), st.sampled_from(["bool", "int8", "float64"]))
@example([(0, 1, 1), (1, 3, 2), (1, 3, -2)], "csr", "float64")
@example([(0, 3, 100)] * 2, "csr", "int8")
@example([(0, 3, 100)] * 2, "csc", "int8")
@example([(0, 3, 100)] * 2, "coo", "int8")
def test_from_matrix_tidies_a_copy(entries, form, dtype):
    """Sums of duplicates may be more than their own dtype can hold."""
    rows, columns, values = np.array(sorted(entries, key=itemgetter(0)), int).reshape(-1, 3).T
    stored, starts = values.astype(dtype), np.searchsorted(rows, np.arange(5))
    matrix = {
        "csr": lambda: sp.csr_matrix((stored, columns, starts), shape=(4, 5)),
        "csc": lambda: sp.csc_matrix((stored, columns, starts), shape=(5, 4)),
        "coo": lambda: sp.coo_matrix((stored, (rows, columns)), shape=(4, 5)),
    }[form]()
    before = pickle.dumps(matrix)
    expected = matrix.astype(float).toarray()
    batch = DocumentBatch.from_matrix(matrix)
    np.testing.assert_array_equal(batch.to_csr().toarray(), expected)
    assert (batch.counts > 0).all()
    assert pickle.dumps(matrix) == before


@pytest.mark.fuzz
@given(
    rows=st.lists(st.lists(st.integers(0, 2**20), min_size=4, max_size=4), max_size=7),
    start=st.integers(-9, 9),
    stop=st.integers(-9, 9),
)
def test_rows_are_views_with_the_meaning_of_a_slice_and_chosen_ones_are_copies(rows, start, stop):
    matrix = np.array(rows, dtype=I64).reshape(len(rows), 4)
    batch = DocumentBatch.from_matrix(matrix)
    np.testing.assert_array_equal(batch.lengths, matrix.sum(axis=1))
    part = batch.rows(start, stop)
    np.testing.assert_array_equal(part.to_csr().toarray(), matrix[start:stop])
    np.testing.assert_array_equal(part.lengths, batch.lengths[start:stop])
    np.testing.assert_array_equal(part.usable, matrix[start:stop].sum(axis=1) >= 3)
    assert part.n_features == 4
    chosen = matrix[:, 0] % 2 == 0
    np.testing.assert_array_equal(batch.where(chosen).to_csr().toarray(), matrix[chosen])
    for name in ("raw", "word_ids"):
        array = getattr(part, name)
        assert array.size == 0 or np.shares_memory(array, getattr(batch, name))
        assert not array.flags.writeable
    # What a kernel needs of it still holds: it passes the checks of a batch of its own.
    DocumentBatch(part.counts, part.word_ids, part.row_pointers, part.n_features)
