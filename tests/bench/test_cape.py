"""The benchmarks of Figures 2 to 5: data as described, figures from runs, pictures."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from bench import cape, cape_tasks, tables
from bench.cape import CAPE, DIRICHLET, published
from bench.cape_plots import plot_all
from bench.measure import Meter
from bench.scenarios import BY_ID
from bench.tasks import TASKS

IDS = [scenario.id for scenario in CAPE]


def measured(task: str, parameters: dict[str, object]) -> dict:
    meter = Meter(time.monotonic())
    return TASKS[task](meter, parameters, {}, 0)


def made_up(name: str, q: dict[str, float]) -> dict:
    """Return a result in which every method has the same error everywhere."""
    cases = BY_ID[name].cases(False, ())
    runs = []
    for case in cases:
        key = "q_CE" if case.task == "cape_pca" else "q_comp"
        rows = [
            {
                "method": method,
                "epsilon": epsilon,
                "delta": delta,
                key: [q.get(method, 0.5), 1.01 * q.get(method, 0.5)],
            }
            for epsilon, delta in case.parameters["points"]
            for method in cape_tasks.METHODS
        ]
        found = {"rows": rows, "random": 1.0, "best": 1.0, "trace": 2.0}
        runs.append({"case": case.label, "repeat": 0, "measured": found})
    return {
        "scenario": name,
        "quick": False,
        "date": "2026-01-02",
        "machine": {
            **{"cpu": "a cpu", "cores": 2, "memory_bytes": 2**34, "system": "Linux"},
            "thread_settings": {},
        },
        "versions": dict.fromkeys(("streamlda", "python", "numpy", "numba"), "1"),
        "corpus": None,
        "cases": {c.label: {"task": c.task, "parameters": c.parameters} for c in cases},
        "runs": runs,
    }


def test_shares_are_those_of_the_description() -> None:
    shares = cape_tasks.skewed(10, 0.014, 0.38)
    assert shares.sum() == pytest.approx(1)
    assert (shares.min(), shares.max()) == pytest.approx((0.014, 0.38))
    assert cape_tasks.linear(5).tolist() == pytest.approx((np.linspace(1, 50, 5) / 127.5).tolist())


@pytest.mark.parametrize("truth", ["half-normal", "Dirichlet(0.1)"])
def test_topics_are_planted_and_measured(truth: str) -> None:
    parameters = {
        **{"model": "topics", "truth": truth, "dimension": 10, "components": 5, "sites": 5},
        **{"documents": 5000, "runs": 2, "points": [[100.0, 0.01]]},
        "methods": cape.COMPONENT_METHODS,
    }
    found = measured("cape_components", parameters)
    rows = {row["method"]: row for row in found["rows"]}
    assert set(rows) == set(cape.COMPONENT_METHODS)
    assert len(rows["capeAGN"]["q_comp"]) == 2
    assert max(rows["capeAGN"]["q_comp"]) < found["random"]
    assert rows["capeAGN"]["matched"][0] >= rows["capeAGN"]["q_comp"][0] - 1e-12


def test_mixtures_are_planted_and_measured() -> None:
    parameters = {
        **{"model": "mixture", "truth": "orthonormal", "dimension": 10, "components": 3},
        **{"sites": 5, "documents": 5000, "runs": 2, "points": [[100.0, 0.01], [100.0, 0.05]]},
        "methods": cape.COMPONENT_METHODS,
    }
    found = measured("cape_components", parameters)
    assert len(found["rows"]) == 2 * len(cape.COMPONENT_METHODS)
    ours = [row for row in found["rows"] if row["method"] == "capeAGN"]
    assert max(ours[0]["q_comp"]) < 0.3 < found["random"]


@pytest.mark.parametrize("data", ["synthetic", "digits", "cover types"])
def test_directions_are_measured(data: str) -> None:
    parameters = {
        **{"data": data, "components": 10, "documents": 100, "sites": 10, "runs": 2},
        "points": [[100.0, 0.01]],
    }
    found = measured("cape_pca", parameters)
    rows = {row["method"]: row["q_CE"] for row in found["rows"]}
    assert rows["not private"][0] == pytest.approx(found["best"])
    assert 0.9 * found["best"] < rows["capeAGN"][0] <= found["best"] * (1 + 1e-9)


def test_cover_types_are_shaped_as_described() -> None:
    x = cape_tasks.cover_types(2000, np.random.default_rng(0))
    assert x.shape == (2000, 54)
    assert x[:, 10:14].sum() == x[:, 14:].sum() == 2000
    assert x[:, 5].std() == pytest.approx(1559, rel=0.1)


def test_the_published_curves_are_whole() -> None:
    page = json.loads(cape.PUBLISHED.read_text("utf-8"))
    assert "Imtiaz" in page["source"]
    assert len(page["curves"]) == 16
    for curve in page["curves"]:
        assert all(
            len(curve[name]) == len(curve["values"])
            for name in ("capeAGN", "conventional", "local")
        )
    found = published("topics", 50, 800_000, "epsilon")
    assert found is not None
    assert found["capeAGN"][found["values"].index(0.01)] == 0.2432
    assert published("topics", 51, 800_000, "epsilon") is None


@pytest.mark.parametrize("name", IDS)
def test_every_case_has_a_task_and_a_label_of_its_own(name: str) -> None:
    for quick in (True, False):
        cases = BY_ID[name].cases(quick, ())
        assert len({case.label for case in cases}) == len(cases)
        assert all(case.task in TASKS for case in cases)
        assert all(case.parameters["points"] for case in cases)


@pytest.mark.parametrize("name", IDS)
def test_figures_and_pictures_are_made_of_results(name: str, tmp_path: Path) -> None:
    worse_last = {"capeAGN": 0.04, "conventional": 0.06, "local": 0.08, "not private": 0.02}
    if name == "cape-figure-2":
        worse_last = {"capeAGN": 0.9, "conventional": 0.8, "local": 0.7, "not private": 1.0}
    result = made_up(name, worse_last)
    page = tables.scenario_block(name, {name: result})
    assert "**missed**" not in page
    assert "- none" in page
    assert f"plots/{name}.png" in page
    plot_all({name: result}, tmp_path)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 1


def test_targets_and_order_are_judged() -> None:
    bad = {"capeAGN": 0.9, "conventional": 0.06, "local": 0.08, "not private": 0.02}
    three = tables.scenario_block("cape-figure-3", {"cape-figure-3": made_up("cape-figure-3", bad)})
    assert three.count("**missed**") == 3
    assert "capeAGN after conventional: D = 10" in three
    four = made_up("cape-figure-4", bad)
    assert DIRICHLET in four["cases"]
    assert tables.scenario_block("cape-figure-4", {"cape-figure-4": four}).count("**missed**") == 4
