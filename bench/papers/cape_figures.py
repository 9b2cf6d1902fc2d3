"""Pictures, verdicts and tables of Figures 2 to 5: ours, as published, and the authors' runs."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from bench.kinds import Figure, Json, Reproduction, Verdict
from bench.papers.cape import (
    DIRICHLET,
    PCA_DATA,
    STAND_INS,
    authors_figures,
    chance,
    details_of,
    disorder,
    figure_2_cases,
    figure_2_figures,
    figure_3_cases,
    figure_3_figures,
    figure_4_cases,
    figure_4_figures,
    figure_5_cases,
    figure_5_figures,
    published,
    result_best,
    rows_of,
)
from bench.papers.cape_tasks import cape_components, cape_pca
from bench.styles import AUTHORS, REFERENCE, STYLES, name_lines

#: Of the axis along which a curve runs.
AXES = {"epsilon": "epsilon", "delta": "delta", "documents": "documents at all sites"}


def plot(result: Json, folder: Path) -> None:
    """Draw one figure as <scenario>.png."""
    from matplotlib import pyplot

    name = result["scenario"]
    panels = panels_of(result)
    columns = 3 if name == "cape-figure-2" else 2 if len(panels) <= 4 else 4
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
                next(i for i, name in enumerate(data) if item[1][0].startswith(f"{name},")),
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


# Verdicts and tables


def verdict(result: Json) -> Verdict:
    """Say whether the schemes are in the paper's order, and whether the authors' points are met."""
    energy = result["scenario"] == "cape-figure-2"
    found, tried = disorder(result, "q_CE" if energy else "q_comp")
    ordered = len(found) <= chance(result, tried)
    said = [
        f"cape, conventional and local noise are in the paper's order in {tried - len(found)} of "
        f"{tried} comparisons"
    ]
    far: list[Figure] = []
    if not energy:
        judged = [figure for figure in authors_figures(result) if figure.met is not None]
        # Three draws at half of the points say no more than the order.
        far = [figure for figure in judged if not figure.met and not result["quick"]]
        over = ", ".join(f"{figure.measured} ({places(figure)})" for figure in judged)
        said += [f"as published over the authors' runs, D = 50: {over}"] if over else []
        less = sum(float(figure.measured) < 1 for figure in far)
        if far:
            said.append(
                f"as published {len(far)} of {len(judged)} curves differ from the authors' by more "
                f"than 6 %, {less} of them with less error"
            )
    said += [
        f"{stand_in} stand in for {data}"
        for data, stand_in in STAND_INS.items()
        if any(label.startswith(f"{stand_in},") for label in result["cases"])
    ]
    # What does not agree comes first.
    return Verdict(ordered and not far, "; ".join(reversed(said) if far else said))


def places(figure: Figure) -> str:
    return figure.name.rpartition("median, ")[2].replace(", over epsilon", "")


def rows(result: Json) -> list[Json]:
    """Return one row a method and point; errors of the runs by their mean and extremes."""
    found = []
    for label in result["cases"]:
        documents = sum_of(result["cases"][label]["parameters"])
        for row in rows_of(result, label):
            name = "q_CE" if "q_CE" in row else "q_comp"
            values = row[name]
            found.append(
                {
                    **{"case": label, "documents": documents, "method": row["method"]},
                    **{"epsilon": row["epsilon"], "delta": row["delta"], "runs": len(values)},
                    **{name: mean(values), "least": min(values), "most": max(values)},
                    **({"best": result_best(result, label)} if name == "q_CE" else {}),
                }
            )
    return found


CAPE = [
    Reproduction(
        "cape-figure-2",
        "Do several sites find the directions of their samples with the noise of one (capePCA)?",
        1,
        figure_2_cases,
        figure_2_figures,
        details=details_of("cape-figure-2", "q_CE"),
        claim="capePCA captures more energy than DPdisPCA, conventional and local noise, and "
        "almost as much as pooled data.",
        tasks=(cape_pca,),
        verdict=verdict,
        table=rows,
        draw=plot,
        data=("mnist", "covertype"),
    ),
    Reproduction(
        "cape-figure-3",
        "How well do several sites learn a mixture of Gaussians with the noise of one (capeAGN)?",
        1,
        figure_3_cases,
        figure_3_figures,
        details=details_of("cape-figure-3"),
        claim="capeAGN has less error than conventional and local noise: mixture of Gaussians.",
        tasks=(cape_components,),
        verdict=verdict,
        table=rows,
        draw=plot,
    ),
    Reproduction(
        "cape-figure-4",
        "How well do several sites learn single-topic documents with the noise of one (capeAGN)?",
        1,
        figure_4_cases,
        figure_4_figures,
        details=details_of("cape-figure-4"),
        claim="capeAGN has less error than conventional and local noise: single-topic model.",
        tasks=(cape_components,),
        verdict=verdict,
        table=rows,
        draw=plot,
    ),
    Reproduction(
        "cape-figure-5",
        "How much does a smaller delta cost several sites (capeAGN)?",
        1,
        figure_5_cases,
        figure_5_figures,
        details=details_of("cape-figure-5"),
        claim="The error of capeAGN falls as delta grows, and stays below the others.",
        tasks=(cape_components,),
        verdict=verdict,
        table=rows,
        draw=plot,
    ),
]
