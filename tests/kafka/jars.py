"""Apache Kafka for the tests: Java, and jars fetched once with Maven into a cache, all checked."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cache import cache_folder

HERE = Path(__file__).parent
PINS = HERE / "jars.sha256"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
JAVA_VERSION = 17
FETCH_SECONDS = 300.0


class BrokerUnavailable(Exception):
    """The tests cannot have a broker; says what to do."""


def pinned(text: str) -> dict[str, str]:
    """Return the SHA-256 of each file by its name, from lines as sha256sum writes them."""
    return {name: digest for digest, name in (line.split() for line in text.splitlines())}


def kafka_version() -> str:
    (found,) = re.findall(r"  kafka_[\d.]+-([\d.]+)\.jar$", PINS.read_text("utf-8"), re.MULTILINE)
    return str(found)


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
            f"Apache Kafka needs Java {JAVA_VERSION} and Maven, got no program={name}; install "
            f"them (on Debian and Ubuntu: openjdk-{JAVA_VERSION}-jre-headless and maven)"
        )
    return found


def java() -> str:
    """Return the path of a Java that is new enough."""
    found = program("java")
    done = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60)
    said = re.search(r'version "(\d+)', done.stderr + done.stdout)
    version = int(said[1]) if said and not done.returncode else 0
    if version < JAVA_VERSION:
        raise BrokerUnavailable(
            f"Java must be {JAVA_VERSION} or newer, got program={found} version={version}; "
            f"install one (on Debian and Ubuntu: openjdk-{JAVA_VERSION}-jre-headless)"
        )
    return found


def keytool(java: str) -> str:
    """Return the keytool of this Java, or else the one on the path."""
    beside = Path(os.path.realpath(java)).with_name("keytool")
    return str(beside) if beside.exists() else program("keytool")


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Keep other processes from fetching the same at the same time."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def jars_folder(cache: Path) -> Path:
    """Return where the jars are, or will be."""
    return cache / f"kafka-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}"


def kafka_jars(cache: Path | None = None) -> Path:
    """Return the folder of the jars, whole and unaltered; fetch them if they are not there."""
    cache = cache_folder() if cache is None else cache
    wanted = pinned(PINS.read_text("utf-8"))
    jars = jars_folder(cache)
    with locked(cache):
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
        code, said = run(command, FETCH_SECONDS)
        if code:
            raise BrokerUnavailable(
                f"Maven must be able to fetch Kafka, got rc={code}: {said[-600:]}; check the "
                "network and the settings of Maven, or copy the jars named in "
                f"tests/kafka/jars.sha256 to {jars}"
            )
        if wrong := wrong_files(new, wanted):
            raise BrokerUnavailable(
                f"the files of Kafka must be those that were pinned, got wrong={wrong[:5]}; "
                "check the repository that Maven uses"
            )
        new.rename(jars)


def run(
    command: list[str],
    seconds: float,
    *,
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Run a program; returns its exit status, 124 if it took too long, and what it wrote."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return 124, f"no end within {seconds} s"
    return done.returncode, done.stdout + done.stderr
