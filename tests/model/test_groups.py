"""Topics by class and over time, and topics of a word."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamlda import StreamLDA, load
from streamlda.errors import InvalidDocumentsError, InvalidSettingError, VocabularyError
from streamlda.simulate import PlantedLDA
from tests.model.test_document_table import WORDS, lda

__all__ = ["lda"]

TEXTS = pd.Series([*WORDS, None, *WORDS, "zebrafinch"])
RATINGS = pd.Series([10, 2, 2, 2, None, 10, 10, 4])


def test_shares_of_a_class_are_the_means_of_its_documents(lda, tmp_path):
    table = lda.topics_per_class(TEXTS, RATINGS)
    theta, known = lda.transform(TEXTS), TEXTS.isin(WORDS)
    assert table["class"].dropna().unique().tolist() == [2, 10]
    assert table["class"].isna().tolist() == [False] * 6 + [True] * 3
    for rating, own in table.groupby("class", dropna=False):
        mine = known & (RATINGS.isna() if pd.isna(rating) else rating == RATINGS)
        np.testing.assert_allclose(own.share, theta[mine].mean(axis=0), atol=1e-6)
        largest = np.bincount(theta[mine].argmax(axis=1), minlength=3)
        assert own.documents.tolist() == largest.tolist()
    assert table.label[:3].tolist() == [" ".join(words) for words in lda.top_words(5)]
    lda.save(tmp_path / "m")
    model, columns = load(tmp_path / "m"), table.to_dict("list")
    columns["class"] = [None if pd.isna(each) else each for each in columns["class"]]
    assert model.topics_per_class(TEXTS, RATINGS, form="dict") == columns
    ratings = pa.array(RATINGS.tolist(), from_pandas=True)
    assert model.topics_per_class(TEXTS, ratings, form="arrow").to_pydict() == columns
    polars = model.topics_per_class([*TEXTS], [*RATINGS], form="polars")
    assert isinstance(polars, pl.DataFrame)
    assert polars.to_dict(as_series=False) == columns


def test_classes_of_text_stand_in_order_of_numbers_before_words():
    X = PlantedLDA(2, 50, seed=0).documents(200).to_csr()
    lda = StreamLDA(2, random_state=0).fit(X)
    classes = ["10", "9", "b", "nan", "a"] * 40
    found = lda.topics_per_class(X, classes)["class"].unique().tolist()
    assert found == ["9", "10", "a", "b", "nan"]


TIMES = ["2017/2/7", "2016/12/30 7:11", "", "2017-02-28", None, "2016/12/1", "2017/2/1", "2018"]


def test_topics_over_time_are_topics_by_month_of_times_as_tables_have_them(lda):
    for times in (
        TIMES,
        pd.to_datetime(pd.Series(TIMES).replace("", None), format="mixed"),
        [
            *(datetime.date(2017, 2, 7), np.datetime64("2016-12-30T07:11"), pd.NaT),
            *(datetime.datetime(2017, 2, 28, 1), None, "1 Dec 2016", pd.Period("2017-02"), 2018),
        ],
    ):
        months = ["2017-02", "2016-12", None, "2017-02", None, "2016-12", "2017-02", "2018-01"]
        found = lda.topics_over_time(TEXTS, times, form="dict")
        expected = lda.topics_per_class(TEXTS, months, form="dict")
        assert {"class": found.pop("time")} | found == expected
        years = lda.topics_over_time(TEXTS, times, unit="year", form="dict")["time"]
        assert years == ["2016"] * 3 + ["2017"] * 3 + [None] * 3


def test_columns_that_do_not_fit_and_times_that_are_not_read_are_said(lda):
    with pytest.raises(InvalidDocumentsError, match="column='times' values=2 documents=8"):
        lda.topics_over_time(TEXTS, ["2017", "2018"])
    with pytest.raises(InvalidSettingError, match="unit='fortnight'"):
        lda.topics_over_time(TEXTS, TIMES, unit="fortnight")
    with pytest.warns(UserWarning, match=r"of the form dd/dd/dddd are not read.*time_format = %d"):
        table = lda.topics_over_time(TEXTS, ["01/02/2017"] * 8)
    assert table.time.isna().all()
    read = lda.topics_over_time(TEXTS, ["01/02/2017"] * 8, time_format="%d/%m/%Y")
    assert set(read.time) == {"2017-02"}


def test_topics_of_a_word_are_those_with_most_of_its_tokens(lda):
    model = lda.to_model()
    best, *_ = found = lda.topics_of_word("Parcel")
    assert found == model.topics_of_word("parcel")
    column = model.vocabulary.words.index("parcel")
    assert best.topic == lda.components_[:, column].argmax()
    assert best.probability == lda.components_[best.topic, column]
    assert sum(each.share for each in found) == pytest.approx(1)
    with pytest.raises(VocabularyError, match="word='parcle' known_words=0; pass one of parcel"):
        lda.topics_of_word("parcle")
    with pytest.raises(VocabularyError, match="known_words=2"):
        lda.topics_of_word("parcel driver")
    with pytest.raises(VocabularyError, match="vocabulary"):
        StreamLDA(1).fit(np.ones((9, 5))).topics_of_word("parcel")
