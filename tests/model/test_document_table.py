"""Tables of documents: one row for each, with its topic or why it has none."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamlda import StreamLDA, load
from streamlda.errors import VocabularyError
from streamlda.simulate import PlantedLDA

WORDS = ["invoice refund card charge", "parcel driver courier late", "login password code account"]


@pytest.fixture(scope="module")
def lda():
    return StreamLDA(3, random_state=0).fit([f"{text} {text}" for text in WORDS for _ in range(40)])


TEXTS = pd.Series([WORDS[0], None, "", "zebrafinch", WORDS[1], WORDS[2]], index=list("abcdef"))


def test_each_document_has_a_row_in_order_with_its_topic_or_the_reason(lda):
    table = lda.document_table(TEXTS, text=TEXTS, id=[*range(6)])
    assert table.index.tolist() == TEXTS.index.tolist()
    assert table.id.tolist() == [*range(6)]
    assert table.reason[1:4].tolist() == ["blank", "blank", "no-known-word"]
    assert table.topic.isna().tolist() == [False, True, True, True, False, False]
    theta = lda.transform(TEXTS)
    for n in (0, 4, 5):
        row = table.iloc[n]
        best, second = np.argsort(-theta[n], kind="stable")[:2]
        assert (row.topic, row.second_topic) == (best, second)
        assert row.proportion == pytest.approx(theta[n, best], abs=1e-6)
        assert set(row.words.split()) & set(row.text.split())
        assert row.text == TEXTS.iloc[n]


def test_all_forms_and_a_model_from_a_file_have_the_same_rows(lda, tmp_path):
    lda.save(tmp_path / "m")
    model, ids = load(tmp_path / "m"), [*"uvwxyz"]
    columns = model.document_table(TEXTS, form="dict", id=ids)
    assert [*columns][:2] == ["id", "topic"]
    arrow = model.document_table(TEXTS, form="arrow", id=ids)
    texts = pl.Series([None if pd.isna(text) else text for text in TEXTS])
    polars = model.document_table(texts, form="polars", id=ids)
    assert isinstance(arrow, pa.Table)
    assert arrow.to_pydict() == polars.to_dict(as_series=False) == columns
    pandas = model.document_table([*TEXTS], id=ids)
    assert [None if pd.isna(k) else k for k in pandas.topic] == columns["topic"]


def test_counts_have_a_table_too():
    X = PlantedLDA(3, 50, seed=0).documents(300).to_csr().toarray()
    X[5] = 0
    lda = StreamLDA(1, random_state=0).fit(X)
    table = lda.document_table(X)
    assert table.reason.dropna().to_dict() == {5: "no-known-word"}
    assert "second_topic" not in table
    with pytest.raises(VocabularyError):
        lda.document_table(["text"])


def test_dates_and_large_numbers_stay_what_they_are(lda):
    times = np.array(["2020-01-01T12:00", "NaT"] * 3, dtype="datetime64[ns]")
    numbers = pd.array([2**60 + 1, None] * 3, dtype="Int64")
    table = lda.document_table(TEXTS, time=times, number=numbers)
    assert list(table.time) == [*[pd.Timestamp("2020-01-01T12:00"), pd.NaT] * 3]
    assert table.number.tolist() == [2**60 + 1, None] * 3
    found = lda.to_model().topics_over_time(TEXTS, times, form="dict")
    assert found["time"] == ["2020-01"] * 3 + [None] * 3
