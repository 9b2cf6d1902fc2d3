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

from streamlda.engine.settings import EngineSettings
from streamlda.model.evaluation import matched_l1_error
from streamlda.scaleout import (
    better_projection,
    merge,
    projection_of,
    refinement_of,
    sums_of,
    topics,
)
from streamlda.simulate import PlantedLDA
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary

WORDS = Vocabulary.given([f"w{i:05}" for i in range(100)], TextAnalyzer(token_pattern=r"w\d+"))
PARTITIONS, DOCUMENTS = 5, 4000


def recipe():
    """Return the lines of the page that are Spark's."""
    page = files("streamlda").joinpath("docs/howto/cluster.md").read_text("utf-8")
    lines = page[page.index("    def summed(through):\n        sent") :].split("\n\n")
    return dedent("\n\n".join(lines[:3]))


def tried(spark):
    """Return how far the topics of Spark are from those of one process over the same documents."""
    planted = PlantedLDA(3, 100, seed=2, mean_length=30, topic_concentration=0.1)
    texts, aside = planted.texts(DOCUMENTS), planted.texts(200)
    frame = spark.createDataFrame([(text,) for text in texts], "text string")
    frame = frame.repartition(PARTITIONS).cache()
    partitions = [[row.text for row in rows] for rows in frame.rdd.glom().collect()]
    names = {"spark": spark, "frame": frame, "sums_of": sums_of, "merge": merge}
    exec(recipe(), names)

    def here(through):
        return merge(
            *(
                sums_of(own, through, shard=f"partition {number}")
                for number, own in enumerate(partitions)
            )
        )

    settings = EngineSettings(n_components=3, n_features=WORDS.n_features, alpha_0=0.1)
    first, found = projection_of(texts[::4], settings, WORDS), {}
    for name, summed in (("spark", names["summed"]), ("here", here)):
        projection, models = first, {}
        for rounds in ("one round", "two rounds"):
            sums, used = summed(projection), projection
            models[rounds] = topics(sums, used)
            projection = better_projection(sums, used)
        refinement = refinement_of(sums, used, texts[::4])
        while refinement.rounds_left:
            refinement = refinement.after(summed(refinement))
        models["refined"] = topics(sums, used, refinement, aside)
        assert "refinement" in models["refined"].diagnostics
        found[name] = models
    return {
        "shards": sorted(sums.usable),
        "documents": sums.documents,
        "topics": {
            name: float(np.abs(model.components - found["here"][name].components).max())
            for name, model in found["spark"].items()
        },
        "planted": {
            name: matched_l1_error(planted.components, model.components).mean
            for name, model in found["spark"].items()
        },
    }


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
