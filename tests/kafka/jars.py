"""Apache Kafka for the tests: fetched once with Maven into a cache, every file checked."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class BrokerUnavailable(Exception):
    """The tests cannot have a broker; says what to do."""


def cache_folder() -> Path:
    chosen = os.environ.get("STREAMLDA_TEST_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "streamlda-tests"


def pinned(text: str) -> dict[str, str]:
    """Return the SHA-256 of each file by its name, from lines as sha256sum writes them."""
    return {name: digest for digest, name in (line.split() for line in text.splitlines())}


def wrong_files(folder: Path, wanted: dict[str, str]) -> list[str]:
    """Return the names that are missing, altered or not wanted."""
    found = {path.name: path for path in folder.glob("*")}
    wrong = [
        name
        for name, digest in wanted.items()
        if name not in found or hashlib.sha256(found[name].read_bytes()).hexdigest() != digest
    ]
    return sorted([*wrong, *(found.keys() - wanted.keys())])


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BrokerUnavailable(
            f"the Kafka tests need Java 17 and Maven, got no program={name}; install them (on "
            "Debian and Ubuntu: openjdk-17-jre-headless and maven)"
        )
    return found


def kafka_jars(cache: Path | None = None) -> Path:
    """Return the folder of the jars, whole and unaltered; fetch them if they are not there."""
    cache = cache_folder() if cache is None else cache
    wanted = pinned((HERE / "jars.sha256").read_text("utf-8"))
    digest = hashlib.sha256((HERE / "jars.sha256").read_bytes()).hexdigest()[:12]
    jars = cache / f"kafka-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            fetch(jars, wanted, cache)
        if wrong := wrong_files(jars, wanted):
            raise BrokerUnavailable(
                f"the files of Kafka must be those that were pinned, got folder={jars} "
                f"wrong={wrong[:5]}; remove the folder, and they are fetched again"
            )
    return jars


def fetch(jars: Path, wanted: dict[str, str], cache: Path) -> None:
    maven = program("mvn")
    with tempfile.TemporaryDirectory(dir=cache) as made:
        new = Path(made) / "jars"
        command = [maven, "-q", "-B", "-f", str(HERE / "pom.xml"), PLUGIN]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={new}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise BrokerUnavailable(
                f"Maven must be able to fetch Kafka, got rc={done.returncode}: "
                f"{(done.stdout + done.stderr)[-600:]}; check the network and the settings of "
                "Maven, or copy the jars named in tests/kafka/jars.sha256 to "
                f"{jars}"
            )
        if wrong := wrong_files(new, wanted):
            raise BrokerUnavailable(
                f"the files of Kafka must be those that were pinned, got wrong={wrong[:5]}; "
                "check the repository that Maven uses"
            )
        new.rename(jars)
