"""Costs before a fit: imports, and the compiler where nothing is compiled yet."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from statistics import median
from typing import TYPE_CHECKING

from bench.kinds import Case, Figure, Json, Scenario, at_most, series

if TYPE_CHECKING:
    from bench.measure import Meter

FIT = """
from streamlda import StreamLDA
from streamlda.simulate import PlantedLDA

StreamLDA(10, random_state=0).fit(PlantedLDA(10, 1000, seed=0).documents(1000).to_csr())
"""
PROGRAMS = {
    "import streamlda": "import streamlda",
    "import of StreamLDA": "from streamlda import StreamLDA",
    "first fit, nothing compiled": FIT,
    "later fit": FIT,
}
EMPTY = "first fit, nothing compiled"


def start(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Run a program in a process of its own; the first fit of all with an empty cache."""
    program, environment = PROGRAMS[parameters["program"]], dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        if parameters["program"] == EMPTY:
            environment["NUMBA_CACHE_DIR"] = folder
        meter.started()
        with meter.timed():
            subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    return {}


START_TASKS = (start,)


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [Case(name, "start", {"program": name, "cores": 1}) for name in PROGRAMS]


def figures(result: Json) -> list[Figure]:
    found = []
    for name in result["cases"]:
        seconds = median(series(result, name, "cpu_seconds"))
        asked = at_most(f"processor seconds, {name}", seconds, 1.0, "{:.2f}")
        # What was asked is about imports.
        found.append(asked if "import" in name else asked._replace(target="-", met=None))
        peak = median(series(result, name, "peak_rss_bytes"))
        found.append(Figure(f"peak memory in MB, {name}", f"{peak / 1e6:,.0f}"))
    return found


START = [
    Scenario(
        "start",
        "What do imports cost, and the first fit of all, beside a later one of 1,000 documents?",
        3,
        cases,
        figures,
    )
]
