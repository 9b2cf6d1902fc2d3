"""A data frame of Spark: encoded once, with every verb."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scaleout.spark import DOCUMENTS

#: Spark with its Java archives: 0.5 GB, fetched once into a cache. Java itself must be there.
WANTED = "pyspark==4.3.0"
ROOT = Path(__file__).resolve().parents[2]


def spark_packages(scratch):
    """Return a folder with Spark; it is filled held_out, and then appears whole."""
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
        [sys.executable, "-m", "tests.scaleout.spark"],
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
    assert found["planted"] < 0.35
    assert "columns=n:int" in found["refused"].replace("'", "")
