"""`StreamLDA` on a data frame of Spark: run as ``python -m tests.scaleout.spark``.

Needs pyspark, which the test fetches into a cache, and Java. Writes what it
found as JSON to standard output.
"""

import json
import os
import sys

import numpy as np

from streamlda import StreamLDA
from streamlda.errors import InvalidDocumentsError
from streamlda.model.evaluation import matched_l1_error
from streamlda.scaleout import fit_with, merge, sums_of
from streamlda.settings.build import fit_settings
from streamlda.simulate import PlantedLDA

PARTITIONS, DOCUMENTS = 4, 2000
LETTERS = str.maketrans("0123456789", "abcdefghij")


def tried(spark):
    """Return how far the topics of Spark are from those of its partitions in this process."""
    planted = PlantedLDA(3, 100, seed=2, mean_length=30, topic_concentration=0.1)
    texts = [text.translate(LETTERS) for text in planted.texts(DOCUMENTS)]
    frame = spark.createDataFrame([(text,) for text in texts], "text string")
    frame = frame.repartition(PARTITIONS).cache()
    estimator = StreamLDA(3, random_state=0, alpha_0=0.1)
    model = estimator.fit(frame).to_model()
    words = estimator.vocabulary_
    parts = [[row.text for row in rows] for rows in frame.rdd.glom().collect()]
    shards = [words.encode(part).batch for part in parts]

    def summed(stage):
        return merge(*(sums_of(own, stage, shard=n) for n, own in enumerate(shards)))

    here = fit_with(
        summed, fit_settings(estimator._settings(0), words.n_features), shards=PARTITIONS
    )
    rows = np.vstack(estimator.transform(frame).collect())
    wanted = estimator.transform([text for part in parts for text in part])
    order = [
        int(word.removeprefix("w").translate({97 + n: 48 + n for n in range(10)}))
        for word in words.words
    ]
    try:
        estimator.fit(frame.selectExpr("length(text) as n"))
    except InvalidDocumentsError as error:
        refused = str(error)
    return {
        "documents": model.documents_seen,
        "kept": model.diagnostics["refinement_choice"]["kept"],
        "topics": float(np.abs(model.components - here.components).max()),
        "transform": float(np.abs(rows - wanted).max()),
        "score": estimator.score(frame) / estimator.score(texts),
        "planted": matched_l1_error(planted.components[:, order], model.components).mean,
        "further": estimator.partial_fit(frame).documents_seen_,
        "refused": refused,
    }


if __name__ == "__main__":
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # Of a virtual machine that lives for seconds, the first compiler is the cheaper one.
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    print(json.dumps(tried(session)))
    session.stop()
