"""Kernels are compiled when first called, once, and kept; until then they cost nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from streamlda.kernels import I64, kernel
from streamlda.model.topic_model import load

#: What a first fit compiles besides the helpers below: each is 0.1 to 0.5 processor seconds.
OF_A_FIT = {
    *("association.associate_projections", "association.group_by_word", "association.project"),
    *("association.random_signs", "checking.find_faults", "refinement.add_responsibilities"),
    *("cooccurrence.count_windows", "inference.fold_in", "inference.word_probabilities"),
    *("refinement.draw_topics", "refinement.resample_topics", "refinement.tally_topics"),
    *("refinement.expect_topics", "stepwise.gather_topics", "stepwise.take_step"),
    *("text.count_ids", "text.fill_slots", "text.find_words"),
}
#: Functions that kernels of text, and of draws, call: 0.05 each.
HELPERS = {"text._column", "text._finished", "text._mixed", "text._scrambled", "text._sort"}
HELPERS |= {"text._stirred", "refinement.scramble", "refinement.stream_key", "refinement.unit"}


def python(*arguments, **settings):
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "0"} | settings
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


EVERY_MODULE = """
import importlib, pkgutil, sys
import streamlda
names = [found.name for found in pkgutil.walk_packages(streamlda.__path__, "streamlda.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names), *{"numba", "llvmlite"} & {*sys.modules})
"""


def test_importing_all_modules_does_not_import_the_compiler():
    n_modules, *compilers = python("-c", EVERY_MODULE).split()
    assert int(n_modules) > 100
    assert compilers == []


def compiled(folder):
    """Return the functions in a cache of Numba, and when each was written."""
    return {path.name.split("-")[0]: path.stat().st_mtime_ns for path in folder.rglob("*.nbi")}


def test_a_first_fit_compiles_a_few_kernels_and_a_second_one_none(tmp_path):
    documents = tmp_path / "documents.jsonl"
    words = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
    texts = (" ".join(words[(7 * n + k * k) % 100] for k in range(30)) for n in range(1200))
    documents.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    cache = tmp_path / "cache"
    fit = ("-m", "streamlda", "fit", documents, "-k", 3, "-q", "-o", tmp_path / "model")
    python(*fit, NUMBA_CACHE_DIR=str(cache))
    first, topics = compiled(cache), load(tmp_path / "model").components
    assert first.keys() == OF_A_FIT | HELPERS
    python(*fit, NUMBA_CACHE_DIR=str(cache))
    assert compiled(cache) == first
    assert load(tmp_path / "model").components.tobytes() == topics.tobytes()


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
        found.append((quadruple(5), id(quadruple.compiled), id(double.compiled)))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert found[0][0] == 20
