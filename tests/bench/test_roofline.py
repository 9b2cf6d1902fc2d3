"""The roofline: formulas as they are shown, and figures of a small run."""

import math
import re
import time

import pytest

from bench import tables
from bench.measure import run_child
from bench.roofline import FORMULAS, PRECISION, Shape, cases, work
from bench.tasks import find_task
from tests.bench.results import result_of


def evaluated(formula, shape):
    """Work out a formula of the page: names side by side are multiplied."""
    names = {"n": shape.words, "N": shape.tokens, "m": shape.probes, "K": shape.topics}
    names |= {"s": shape.sweeps, "p": shape.present, "v": shape.vocabulary}
    text = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", formula)
    return float(eval(text, {"__builtins__": {}}, names))


@pytest.mark.parametrize("kernel", FORMULAS)
def test_what_is_counted_is_what_the_page_says(kernel):
    shape = Shape(61.5, 80.25, 100, 50, 5, 3.75, 1.9)
    shown = [evaluated(formula, shape) for formula in FORMULAS[kernel]]
    assert shown == pytest.approx(work(kernel, shape))
    assert kernel in PRECISION


def test_a_small_run_says_how_far_from_the_roof():
    chosen = cases(True, ())
    began = time.monotonic()
    runs = []
    for case in chosen:
        assert find_task(case.task)
        # In a process of its own: it sets the number of threads.
        measured = run_child(case.task, case.parameters, {}, 0)
        runs.append({"case": case.label, "repeat": 0, "measured": measured})
        assert all(measured[key] > 1e6 for key in ("memory_bandwidth", "gemm_8", "gemm_4"))
        for counted in measured["kernels"].values():
            assert 0 < counted["seconds_per_document"] < time.monotonic() - began
            assert math.isfinite(counted["operations_per_document"])
        assert 1 < measured["shape"]["present"] < 20
    assert runs[0]["measured"]["threads"] == 1
    result = {**result_of("roofline", chosen, {}), "quick": True, "runs": runs}
    page = tables.scenario_block("roofline", {"roofline": result})
    assert "GB/s of the memory, 1 thread" in page
    assert page.count("| `expect_topics` |") == 3
    assert "n K (5 + 9 (s - 1))" in page
