"""Pictures of Figures 2 to 5: ours, as published on the same data, and the authors' own runs."""

from __future__ import annotations

from statistics import mean
from typing import Any

from bench.cape import CAPE, DIRICHLET, PCA_DATA, published, result_best, rows_of
from bench.kinds import Json
from bench.styles import AUTHORS, REFERENCE, STYLES, name_lines

#: Of the axis along which a curve runs.
AXES = {"epsilon": "epsilon", "delta": "delta", "documents": "documents at all sites"}


def plot_all(results: dict[str, Json], folder: Any) -> None:
    """Draw what was measured."""
    for scenario in CAPE:
        if scenario.id in results:
            plot(results[scenario.id], folder)


def plot(result: Json, folder: Any) -> None:
    """Draw one figure as <scenario>.png."""
    from matplotlib import pyplot

    name = result["scenario"]
    panels = panels_of(result)
    columns = 3 if name == "cape-figure-2" else 4
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4 * columns, 3.2 * rows), layout="constrained", squeeze=False
    )
    for axis, (title, against, labels) in zip(axes.flat, panels, strict=False):
        draw(axis, result, against, labels)
        axis.set_title(title, fontsize=9)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    shown = axes.flat[: len(panels)]
    # Lines look alike in all panels: those at the right are named.
    name_lines(shown[columns - 1 :: columns])
    figure.savefig(folder / f"{name}.png", dpi=80)
    pyplot.close(figure)


def panels_of(result: Json) -> list[tuple[str, str, list[str]]]:
    """Return title, axis and cases of each panel: a case with many points, or many cases."""
    found: dict[tuple[str, str], list[str]] = {}
    for label in result["cases"]:
        if label.endswith("over epsilon"):
            found[label.removesuffix(", over epsilon"), "epsilon"] = [label]
        elif result["scenario"] == "cape-figure-5" or label.endswith("over delta"):
            found[label.removesuffix(", over delta"), "delta"] = [label]
        else:
            head, _, tail = label.partition("N")
            title = f"{head}{tail.rpartition(', ')[2]}"
            found.setdefault((title, "documents"), []).append(label)
    order = list(AXES)
    if result["scenario"] == "cape-figure-2":
        data = list(PCA_DATA)
        panels = sorted(
            found.items(),
            key=lambda item: (
                ("epsilon", "documents", "delta").index(item[0][1]),
                next(i for i, name in enumerate(data) if item[1][0].startswith(name)),
            ),
        )
    else:
        panels = sorted(found.items(), key=lambda item: order.index(item[0][1]))
    return [(title, against, labels) for (title, against), labels in panels]


def draw(axis: Any, result: Json, against: str, labels: list[str]) -> None:
    from matplotlib.ticker import NullFormatter

    curves: dict[str, list[tuple[float, float]]] = {}
    energy = False
    for label in labels:
        parameters = result["cases"][label]["parameters"]
        for row in rows_of(result, label):
            energy = "q_CE" in row
            place = row[against] if against != "documents" else sum_of(parameters)
            value = (
                mean(row["q_CE"]) / result_best(result, label) if energy else mean(row["q_comp"])
            )
            curves.setdefault(row["method"], []).append((place, value))
    for method, points in curves.items():
        name = method.replace("capeAGN", "capePCA") if energy else method
        places, values = zip(*sorted(points), strict=True)
        axis.plot(places, values, label=name, **STYLES[method].keywords())
    if not energy:
        theirs(axis, result["cases"][labels[0]]["parameters"], against, labels)
        guess = mean(run["measured"]["random"] for run in result["runs"] if run["case"] in labels)
        axis.plot(places, [guess] * len(places), label="random", **REFERENCE)
    axis.set(xlabel=AXES[against], xscale="log")
    # Labels between powers of ten run into each other.
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set(ylabel="captured energy over the best" if energy else "q_comp")
    if not energy:
        axis.set(yscale="log")


def sum_of(parameters: Json) -> int:
    """Return the documents of all sites; those of PCA are given for each."""
    return int(parameters["documents"] * (parameters["sites"] if "data" in parameters else 1))


def theirs(axis: Any, parameters: Json, against: str, labels: list[str]) -> None:
    """Draw the authors' own runs of the same settings."""
    if labels == [DIRICHLET] or against == "documents":
        return
    curve = published(
        parameters["model"], parameters["dimension"], parameters["documents"], against
    )
    if curve is None:
        return
    for method in ("capeAGN", "conventional", "local"):
        name = f"{method}{AUTHORS}"
        axis.plot(curve["values"], curve[method], label=name, **STYLES[name].keywords())
    name, level = f"not private{AUTHORS}", [curve["non_private"]] * len(curve["values"])
    axis.plot(curve["values"], level, label=name, **STYLES[name].keywords())
