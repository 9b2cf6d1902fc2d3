"""One fresh process for each measurement, its meter, and what must be known of the machine."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.corpus import texts_of
from bench.kinds import Case, Scenario

ROOT = Path(__file__).resolve().parents[1]

#: What benchmarks write is no change of what they measure.
WRITTEN = (":!bench/results", ":!bench/plots", ":!bench/*.md", ":!README.md")
PACKAGES = (
    *("streamlda", "numpy", "numba", "scipy", "scikit-learn"),
    *("gensim", "tomotopy", "vowpalwabbit", "topica", "anchortopics", "tensorly", "pyttb"),
)
#: Which documents of a corpus are held out: every fortieth.
HELD_OUT_EVERY = 40
#: Words of a corpus that count.
VOCABULARY_SIZE = 8000
#: Settings of the environment that change timings a lot; those that are set are recorded.
THREAD_SETTINGS = "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"

Json = dict[str, Any]


def run_child(task: str, parameters: Mapping[str, Any], inputs: Json, seed: int) -> Json:
    """Do a task of `bench.tasks` in a new interpreter and return what it measured.

    With a parameter `cores`, it and its processes have that many processors, and libraries of
    linear algebra as many threads.
    """
    environment = dict(os.environ)
    if "cores" in parameters:
        environment |= dict.fromkeys(THREAD_SETTINGS, str(parameters["cores"]))
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        job = {"task": task, "parameters": dict(parameters), "inputs": inputs, "seed": seed}
        # The monotonic clock is the machine's, so that the child can subtract this start from it.
        job |= {"answer": str(answer), "spawned": time.monotonic()}
        command = [sys.executable, "-m", "bench.tasks"]
        done = subprocess.run(
            command,
            input=json.dumps(job),
            text=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            env=environment,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"a measurement must end well, got task={task} status={done.returncode}; "
                "its error is above"
            )
        measured: Json = json.loads(answer.read_text("utf-8"))
        return measured


class Meter:
    """Wall time, processor time and peak memory of one part of a process."""

    def __init__(self, spawned: float) -> None:
        self._spawned = spawned
        self.values: Json = {}

    def started(self) -> None:
        """Note how long interpreter, imports and compiled code took, and their memory."""
        from streamlda.kernels import load_kernels

        load_kernels()
        self.values["start_seconds"] = time.monotonic() - self._spawned
        self.values["start_rss_bytes"] = memory_bytes("VmRSS")

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        # Makes the kernel forget the peak of the preparation; where it cannot (other systems,
        # a read-only /proc), the peak is that of the whole process until now.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self.values["rss_before_bytes"] = memory_bytes("VmRSS")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall, processor = time.perf_counter(), time.process_time()
        yield
        self.values["fit_seconds"] = time.perf_counter() - wall
        self.values["cpu_seconds"] = time.process_time() - processor
        self.values["peak_rss_bytes"] = memory_bytes("VmHWM")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        of_others = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if of_others:
            # Of a contender in a process of its own, that is the one that learns.
            self.values["cpu_seconds"] += of_others
            self.values["peak_rss_bytes"] = max_rss_bytes(resource.RUSAGE_CHILDREN)


def memory_bytes(field: str) -> int:
    """Return VmHWM (peak) or VmRSS (now) of this process; the peak where there is no /proc.

    Not ru_maxrss on Linux: after fork and exec that still holds the peak of the parent.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return max_rss_bytes(resource.RUSAGE_SELF)
    line = next(line for line in status.read_text().splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def max_rss_bytes(who: int) -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(who).ru_maxrss * unit


class Harness:
    """Runs scenarios; equal cases are measured once and shared between them.

    Parameters
    ----------
    corpus : Path or None
        JSON Lines, gzip; for the scenarios that need it.
    text_field : str
    quick : bool
        Cut sizes.
    held_out_every : int
        Which documents of the corpus are held out: the last of each N.
    files : mapping of str to Path
        More inputs of tasks.
    measure : callable, optional
        In place of `run_child`.
    """

    def __init__(
        self,
        corpus: Path | None,
        text_field: str = "text",
        quick: bool = False,
        held_out_every: int = HELD_OUT_EVERY,
        files: Mapping[str, Path] | None = None,
        measure: Callable[[str, Json, Json, int], Json] | None = None,
    ) -> None:
        self._path = None if corpus is None else corpus.resolve()
        self._text_field, self.quick = text_field, quick
        self._held_out_every = held_out_every
        self._corpus: Json | None = None
        self._files: Json = {name: str(path) for name, path in (files or {}).items()}
        self._inputs: Json = {}
        self._do = measure or run_child
        self._measured: dict[str, Json] = {}

    def run(
        self, scenario: Scenario, repeats: int | None = None, contenders: Sequence[str] = ()
    ) -> Json:
        """Measure a scenario and return its result; contenders take turns in every repeat."""
        cases = scenario.cases(self.quick, tuple(contenders) or scenario.contenders)
        header = self.header(scenario)
        rounds = repeats or scenario.repeats
        runs = [
            {"case": case.label, "repeat": repeat, "measured": self.measure(case, repeat, scenario)}
            for repeat in range(rounds)
            for case in cases
        ]
        listed = {c.label: {"task": c.task, "parameters": c.parameters} for c in cases}
        return {**header, "cases": listed, "runs": runs}

    def header(self, scenario: Scenario) -> Json:
        """Return what is known of a result before anything is measured; prepare the corpus."""
        if scenario.needs_corpus and self._path is None:
            raise SystemExit("this scenario needs documents; name them: --corpus FILE.jsonl.gz")
        if not self._measured:
            self._do("warm_up", {}, {}, 0)
        given = self._takes_corpus(scenario)
        if given and self._corpus is None:
            self._prepare()
        return {
            "scenario": scenario.id,
            "quick": self.quick,
            "date": today(),
            "machine": machine(),
            "versions": versions(),
            "corpus": self._corpus if given else None,
        }

    def measure(self, case: Case, repeat: int, scenario: Scenario) -> Json:
        """Return what a case of a scenario measured in its own process, after its `header`."""
        key = json.dumps([case.task, case.parameters, repeat], sort_keys=True)
        if key not in self._measured:
            print(f"  {case.label}, repeat {repeat} ...", file=sys.stderr, flush=True)
            inputs = self._files | (self._inputs if self._takes_corpus(scenario) else {})
            self._measured[key] = self._do(case.task, case.parameters, inputs, repeat)
        return self._measured[key]

    def _takes_corpus(self, scenario: Scenario) -> bool:
        return scenario.needs_corpus or (scenario.takes_corpus and self._path is not None)

    def _prepare(self) -> None:
        """Describe the corpus; where its counts will lie depends on its content and their maker."""
        assert self._path is not None
        print(f"  reading {self._path.name} ...", file=sys.stderr, flush=True)
        self._corpus = describe_corpus(self._path, self._text_field)
        every = self._held_out_every
        digest, package = self._corpus["sha256"][:16], version("streamlda")
        name = f"{digest}-{self._text_field}-{every}-{package}-words.npz"
        folder = Path(tempfile.gettempdir()) / f"streamlda-bench-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._inputs = {
            "corpus": str(self._path),
            "text_field": self._text_field,
            "counts": str(folder / name),
        }
        if not (folder / name).exists():
            print("  counting words, once ...", file=sys.stderr, flush=True)
            sizes = {"vocabulary_size": VOCABULARY_SIZE, "held_out_every": every}
            self._do("prepare", sizes, self._inputs, 0)


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def describe_corpus(path: Path, text_field: str = "text") -> Json:
    """Return name, size, digest and number of documents of a corpus; never where it lies."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    documents = sum(len(texts) for texts, _ in texts_of(path, text_field))
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
    found["commit"] = commit(ROOT)
    return found


def commit(folder: Path) -> str | None:
    """Return the commit of a checkout, with "-dirty" if more than what is measured has changed."""

    def said(*command: str) -> str:
        git = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True)
        return git.stdout.strip()

    try:
        found = said("rev-parse", "--short=12", "HEAD")
    except FileNotFoundError:
        return None
    changed = said("status", "--porcelain", "--untracked-files=no", "--", ".", *WRITTEN)
    return (f"{found}-dirty" if changed else found) or None
