"""A data frame of Spark: encoded once, with every verb."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.scaleout.spark import DOCUMENTS

#: Spark with its Java archives: 0.5 GB. Java itself must be there.
WANTED = ("pyspark==4.3.0",)
ROOT = Path(__file__).resolve().parents[2]


def output_of(module, folder, *wanted):
    """Install packages into an environment in a folder, and return what a module of tests prints.

    Behind them come the packages of the tests.
    """
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", *wanted], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "tests.pth").write_text(
        "\n".join([sysconfig.get_path("purelib"), str(ROOT), str(ROOT / "connectors")])
    )
    command = [str(folder / "bin" / "python"), "-m", module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.packaging
def test_topics_of_spark_are_those_of_its_partitions_in_one_process(tmp_path):
    found = json.loads(output_of("tests.scaleout.spark", tmp_path / "environment", *WANTED))
    assert (found["documents"], found["further"]) == (DOCUMENTS, 2 * DOCUMENTS)
    assert found["topics"] < 1e-8
    assert found["transform"] == 0
    assert found["score"] == pytest.approx(1, rel=0.02)
    assert found["planted"] < 0.35
    assert "columns=n:int" in found["refused"].replace("'", "")
