"""Kernels are compiled when first called, once, and kept; until then they cost nothing."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading

import pytest

from streamlda.kernels import I64, kernel

#: What a first fit compiles, each in 0.1 to 0.7 processor seconds. What these call is 0.05 each.
OF_A_FIT = {
    *("association.associate_projections", "association.project"),
    *("inference.fold_in", "inference.word_probabilities"),
    *("refinement.add_responsibilities", "refinement.resample_topics"),
    *("refinement.collapse_topics", "refinement.expect_topics"),
    *("text.find_words", "copying.copy_documents"),
}


def python(*arguments, **settings):
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "0"} | settings
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


SLOW = ["numba", "pandas", "pyarrow", "dask", "sklearn"]
SLOW += [f"scipy.{name}" for name in ("linalg", "optimize", "sparse", "special", "stats")]


def test_importing_loads_nothing_slow():
    """With the parts of SciPy that were loaded an engine took .6 processor seconds, not .35."""
    for statement, others in (
        ("streamlda.__all__", ["numpy", "scipy"]),
        ("streamlda.Engine, streamlda.EngineSettings, streamlda.DocumentBatch", []),
        ("streamlda.load, streamlda.open_source, streamlda.visualize", []),
        ("__import__('streamlda.run.fit')", []),
        ("__import__('streamlda.service.running')", []),
    ):
        program = (
            f"import sys, streamlda; {statement}; print(*{{*{SLOW + others}}} & {{*sys.modules}})"
        )
        assert python("-c", program).split() == []


FIT = """
from streamlda import kernels
from streamlda.__main__ import main
try:
    main()
except SystemExit as end:
    assert end.code in (0, None)
for each in kernels._kernels:
    if each._compiled is not None:
        print(f"{each.__module__.removeprefix('streamlda.kernels.')}.{each.__name__}")
"""


@pytest.mark.long
def test_a_first_fit_needs_a_few_kernels(tmp_path):
    documents = tmp_path / "documents.jsonl"
    words = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
    texts = (" ".join(words[(7 * n + k * k) % 100] for k in range(30)) for n in range(1200))
    documents.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    command = ["-c", FIT, "fit", documents, "-k", 3, "-q", "-o", tmp_path / "model"]
    assert {*python(*command).split()} == OF_A_FIT


def run_at_a_terminal(program, **settings):
    ours, theirs = pty.openpty()
    environment = os.environ | {"NUMBA_DISABLE_JIT": "0"} | settings
    done = subprocess.run([sys.executable, "-c", program], env=environment, stderr=theirs)
    os.set_blocking(ours, False)
    try:
        said = os.read(ours, 10_000).decode()
    except BlockingIOError:
        said = ""
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, said
    return said


@pytest.mark.long
def test_a_second_process_compiles_nothing(tmp_path):
    """Equal times of its files: the first one's code was loaded, without the compiler."""
    once = (
        "import sys; from streamlda.kernels.refinement import unit; assert 0 < unit(5, 7) < 1; "
        "assert ('numba' in sys.modules) is "
    )
    said, times = [], []
    for compiles in (True, False):
        said.append(run_at_a_terminal(f"{once}{compiles}", NUMBA_CACHE_DIR=str(tmp_path)))
        found = {path.name.split("-")[0]: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        times.append(found)
    assert times[0] == times[1]
    assert times[0].keys() == {"streamlda.kernels.refinement.unit"}
    assert said[0].splitlines() == ["streamlda: compiling kernels, once after an install"]
    assert said[1] == ""
    [kept] = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])  # LLVM would end the process.
    assert run_at_a_terminal(f"{once}True", NUMBA_CACHE_DIR=str(tmp_path)) == said[0]


@kernel
def double(x: I64) -> I64:
    return x + x


@kernel
def quadruple(x: I64) -> I64:
    return double(double(x))


@pytest.mark.parametrize("attempt", range(3))
def test_threads_that_call_at_once_share_one_compiled_function(attempt, monkeypatch):
    monkeypatch.setattr(double, "_compiled", None)
    monkeypatch.setattr(quadruple, "_compiled", None)
    together, found = threading.Barrier(4), []

    def call():
        together.wait()
        found.append((quadruple(5), id(quadruple.code), id(double.code)))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert found[0][0] == 20
