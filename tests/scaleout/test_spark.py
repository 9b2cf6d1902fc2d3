"""Sums that Spark makes, by the recipe of the page on clusters."""

import json

import pytest

from tests.scaleout.environments import output_of
from tests.scaleout.spark import DOCUMENTS, PARTITIONS

#: Spark with its Java archives: 0.5 GB. Java itself must be there.
WANTED = ("pyspark==4.3.0",)


@pytest.mark.packaging
def test_topics_of_spark_are_those_of_one_engine(tmp_path):
    found = json.loads(output_of("tests.scaleout.spark", tmp_path / "environment", *WANTED))
    for round_ in found.values():
        assert round_["documents"] == DOCUMENTS
        assert round_["shards"] == [f"partition {number}" for number in range(PARTITIONS)]
        assert round_["topics"] < 1e-8
        assert round_["planted"] < 0.25
    assert {*found} == {"one round", "two rounds"}
