"""One fresh process for each measurement, and what must be known about where it was taken."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.kinds import Case, Scenario

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("streamlda", "numpy", "numba", "scipy", "scikit-learn", "gensim")
#: Settings of the environment that change timings a lot; those that are set are recorded.
THREAD_SETTINGS = (
    *("NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "OMP_NUM_THREADS", "OMP_WAIT_POLICY"),
    *("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
)

Json = dict[str, Any]


def run_child(task: str, parameters: Mapping[str, Any], inputs: Json, seed: int) -> Json:
    """Do a task of `bench.tasks` in a new interpreter and return what it measured."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        job = {"task": task, "parameters": dict(parameters), "inputs": inputs, "seed": seed}
        # The monotonic clock is the machine's, so that the child can subtract this start from it.
        job |= {"answer": str(answer), "spawned": time.monotonic()}
        command = [sys.executable, "-m", "bench.tasks"]
        done = subprocess.run(
            command, input=json.dumps(job), text=True, cwd=ROOT, stdout=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"a measurement must end well, got task={task} status={done.returncode}; "
                "its error is above"
            )
        measured: Json = json.loads(answer.read_text("utf-8"))
        return measured


class Harness:
    """Runs scenarios; equal cases are measured once and shared between them."""

    def __init__(self, corpus: Path | None, text_field: str = "text", quick: bool = False) -> None:
        self._path = None if corpus is None else corpus.resolve()
        self._text_field, self._quick = text_field, quick
        self._corpus: Json | None = None
        self._inputs: Json = {}
        self._measured: dict[str, Json] = {}

    def run(
        self, scenario: Scenario, repeats: int | None = None, contenders: Sequence[str] = ()
    ) -> Json:
        """Measure a scenario and return its result; contenders take turns in every repeat."""
        if scenario.needs_corpus and self._path is None:
            raise SystemExit("this scenario needs documents; name them: --corpus FILE.jsonl.gz")
        if not self._measured:
            run_child("warm_up", {}, {}, 0)
        given = scenario.needs_corpus or (scenario.takes_corpus and self._path is not None)
        if given and self._corpus is None:
            self._prepare()
        cases = scenario.cases(self._quick, tuple(contenders) or scenario.contenders)
        rounds = repeats or scenario.repeats
        runs = [
            {"case": case.label, "repeat": repeat, "measured": self._measure(case, repeat, given)}
            for repeat in range(rounds)
            for case in cases
        ]
        return {
            "scenario": scenario.id,
            "quick": self._quick,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(),
            "versions": versions(),
            "corpus": self._corpus if given else None,
            "cases": {c.label: {"task": c.task, "parameters": c.parameters} for c in cases},
            "runs": runs,
        }

    def _measure(self, case: Case, repeat: int, given: bool) -> Json:
        key = json.dumps([case.task, case.parameters, repeat], sort_keys=True)
        if key not in self._measured:
            print(f"  {case.label}, repeat {repeat} ...", file=sys.stderr, flush=True)
            self._measured[key] = run_child(
                case.task, case.parameters, self._inputs if given else {}, repeat
            )
        return self._measured[key]

    def _prepare(self) -> None:
        """Describe the corpus; where its counts will lie depends on its content and their maker."""
        assert self._path is not None
        print(f"  reading {self._path.name} ...", file=sys.stderr, flush=True)
        self._corpus = describe_corpus(self._path)
        name = f"{self._corpus['sha256'][:16]}-{self._text_field}-{version('streamlda')}.npz"
        folder = Path(tempfile.gettempdir()) / f"streamlda-bench-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._inputs = {
            "corpus": str(self._path),
            "text_field": self._text_field,
            "counts": str(folder / name),
        }
        if not (folder / name).exists():
            print("  counting words, once ...", file=sys.stderr, flush=True)
            run_child("prepare", {"vocabulary_size": 8000}, self._inputs, 0)


def describe_corpus(path: Path) -> Json:
    """Return name, size, digest and number of lines of a corpus; never where it lies."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with gzip.open(path, "rb") as lines:
        documents = sum(1 for line in lines if line.strip())
    size = path.stat().st_size
    return {"name": path.name, "bytes": size, "sha256": digest, "documents": documents}


def machine() -> Json:
    """Return what the machine is, without its name."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].split(":", 1)[1].strip() if models else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    settings = {name: os.environ[name] for name in THREAD_SETTINGS if name in os.environ}
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "system": f"{platform.system()} {platform.release()}",
        "thread_settings": settings,
    }


def versions() -> Json:
    """Return versions of Python, the packages and, in a git checkout, the commit."""
    found: Json = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        git = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        found["commit"] = git.stdout.strip() or None
    except FileNotFoundError:
        found["commit"] = None
    return found
