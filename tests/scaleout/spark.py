"""The recipe for Spark of the page on clusters: run as ``python -m tests.scaleout.spark``.

Needs pyspark, which the test installs into an environment of its own, and Java. Writes what it
found as JSON to standard output.
"""

import json
import os
import sys
from importlib.resources import files
from textwrap import dedent

import numpy as np

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.model.evaluation import matched_l1_error
from streamlda.scaleout import better_projection, merge, projection_of, sums_of, topics
from streamlda.simulate import PlantedLDA
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary

WORDS = Vocabulary.given([f"w{i:05}" for i in range(100)], TextAnalyzer(token_pattern=r"w\d+"))
PARTITIONS, DOCUMENTS = 5, 4000


def recipe():
    """Return the lines of the page that are Spark's."""
    page = files("streamlda").joinpath("docs/howto/cluster.md").read_text("utf-8")
    lines = page[page.index("    def fold(") :].split("\n\n", 2)
    return dedent("\n\n".join(lines[:2]))


def tried(spark):
    """Return how far the topics of Spark are from those of one engine over the same documents."""
    planted = PlantedLDA(3, 100, seed=2, mean_length=30, topic_concentration=0.1)
    texts = planted.texts(DOCUMENTS)
    frame = spark.createDataFrame([(text,) for text in texts], "text string")
    frame = frame.repartition(PARTITIONS)
    settings = EngineSettings(n_components=3, n_features=WORDS.n_features)
    projection = projection_of(texts[::4], settings, WORDS)
    found = {}
    for name in ("one round", "two rounds"):
        names = {"spark": spark, "frame": frame, "projection": projection}
        names |= {"sums_of": sums_of, "merge": merge}
        exec(recipe(), names)
        sums = names["sums"]
        one = Engine(projection.settings, shared_projection=projection.whitening)
        one.add(WORDS.encode(texts).batch)
        model, plain = topics(sums, projection), one.snapshot(WORDS)
        found[name] = {
            "documents": sums.documents,
            "shards": sorted(sums.usable),
            "topics": float(np.abs(model.components - plain.components).max()),
            "planted": matched_l1_error(planted.components, model.components).mean,
        }
        projection = better_projection(sums, projection)
    return found


if __name__ == "__main__":
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    print(json.dumps(tried(session)))
    session.stop()
