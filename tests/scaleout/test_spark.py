"""`StreamLDA` on a data frame of Spark: encoded once, with every verb.

The test fetches pyspark into a cache, and runs this file as a program; Java must be there.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamlda import StreamLDA
from streamlda.errors import InvalidDocumentsError
from streamlda.scaleout import fit_with, merge, sums_of
from streamlda.settings.build import fit_settings
from streamlda.simulate import PlantedLDA

#: Spark with its Java archives: 0.5 GB.
WANTED = "pyspark==4.3.0"
ROOT = Path(__file__).resolve().parents[2]
PARTITIONS, DOCUMENTS = 4, 2000
LETTERS = str.maketrans("0123456789", "abcdefghij")


def compare_topics(spark):
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
    with pytest.raises(InvalidDocumentsError, match="columns='n:int'"):
        estimator.fit(frame.selectExpr("length(text) as n"))
    return {
        "documents": model.documents_seen,
        "kept": model.diagnostics["refinement_choice"]["kept"],
        "topics": float(np.abs(model.components - here.components).max()),
        "transform": float(np.abs(rows - wanted).max()),
        "score": estimator.score(frame) / estimator.score(texts),
        "further": estimator.partial_fit(frame).documents_seen_,
    }


def spark_packages(scratch):
    """Return a folder with Spark; it is filled under another name, and then appears whole."""
    cache = Path(os.environ.get("STREAMLDA_TEST_CACHE", Path.home() / ".cache/streamlda-tests"))
    folder = cache / WANTED
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(scratch), WANTED], check=True)
        cache.mkdir(parents=True, exist_ok=True)
        shutil.move(scratch, folder)
    return folder


@pytest.mark.packaging
def test_topics_of_spark_are_those_of_its_partitions_in_one_process(tmp_path):
    folders = (spark_packages(tmp_path / "spark"), ROOT, ROOT / "connectors")
    done = subprocess.run(
        [sys.executable, "-m", "tests.scaleout.test_spark"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["documents"], found["further"]) == (DOCUMENTS, 2 * DOCUMENTS)
    assert found["topics"] < 1e-8
    assert found["transform"] == 0
    assert found["score"] == pytest.approx(1, rel=0.02)


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
    print(json.dumps(compare_topics(session)))
    session.stop()
