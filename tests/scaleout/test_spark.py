"""Sums that Spark makes, by the recipe of the page on clusters."""

import json

import pytest

from tests.scaleout.environments import output_of
from tests.scaleout.spark import DOCUMENTS, PARTITIONS

#: Spark with its Java archives: 0.5 GB. Java itself must be there.
WANTED = ("pyspark==4.3.0",)


@pytest.mark.packaging
def test_topics_of_spark_are_those_of_one_process(tmp_path):
    found = json.loads(output_of("tests.scaleout.spark", tmp_path / "environment", *WANTED))
    assert found["documents"] == DOCUMENTS
    assert found["shards"] == [f"partition {number}" for number in range(PARTITIONS)]
    assert {*found["topics"]} == {"one round", "two rounds", "refined"}
    assert max(found["topics"].values()) < 1e-8
    assert max(found["planted"].values()) < 0.35
