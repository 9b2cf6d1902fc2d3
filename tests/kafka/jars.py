"""Apache Kafka for the tests: Java, and jars fetched once with Maven into a cache, all checked."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PINS = HERE / "jars.sha256"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
JAVA_VERSION = 17
FETCH_SECONDS = 300.0


class BrokerUnavailable(Exception):
    """The tests cannot have a broker; says what to do."""


def check_files(folder, remedy):
    pinned = {tuple(line.split()) for line in PINS.read_text("utf-8").splitlines()}
    found = {
        (hashlib.sha256(path.read_bytes()).hexdigest(), path.name) for path in folder.iterdir()
    }
    if wrong := sorted({name for _, name in pinned ^ found}):
        raise BrokerUnavailable(
            f"the files of Kafka must be those that were pinned, got folder={folder} "
            f"wrong={wrong[:5]}; {remedy}"
        )


def program(name):
    found = shutil.which(name)
    if found is None:
        raise BrokerUnavailable(
            f"Apache Kafka needs Java {JAVA_VERSION} and Maven, got no program={name}; install "
            f"them (on Debian and Ubuntu: openjdk-{JAVA_VERSION}-jre-headless and maven)"
        )
    return found


def keytool(java):
    """Return the keytool of this Java, or else the one on the path."""
    beside = Path(os.path.realpath(java)).with_name("keytool")
    return str(beside) if beside.exists() else program("keytool")


def kafka_jars():
    """Return the folder of the jars, whole and unaltered; fetch them if they are not there."""
    cache = Path(os.environ.get("STREAMLDA_TEST_CACHE", Path.home() / ".cache/streamlda-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    jars = cache / f"kafka-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}"
    # Other processes do not fetch the same at the same time.
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            fetch(jars, cache)
        check_files(jars, "remove the folder, and they are fetched again")
    return jars


def fetch(jars, cache):
    with tempfile.TemporaryDirectory(dir=cache) as made:
        new = Path(made) / "jars"
        command = [program("mvn"), "-q", "-B", "-f", str(HERE / "pom.xml"), PLUGIN]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={new}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS)
        if done.returncode:
            raise BrokerUnavailable(
                f"Maven must be able to fetch Kafka, got {(done.stdout + done.stderr)[-600:]}; "
                "check the network and the settings of Maven, or copy the jars named in "
                f"tests/kafka/jars.sha256 to {jars}"
            )
        check_files(new, "check the repository that Maven uses")
        new.rename(jars)


if __name__ == "__main__":
    print(f"The Kafka tests run on Apache Kafka in {kafka_jars()}, by {program('java')}")
