"""A figure or a theorem run again: its cases, figures and panels, and how it is run and drawn."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from bench.corpus import count_words, texts_of_lines, texts_of_reviews
from bench.kinds import Json, Scenario, markdown
from bench.papers.data import DOWNLOADS, STAND_INS, check
from bench.papers.rule import Verdict, verdict_of
from bench.styles import REFERENCE, Style, name_lines
from streamlda.checks import require
from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.utils.threads import one_blas_thread

#: Words of a corpus for DP-LDA, and the least documents of it.
VOCABULARY_SIZE, LEAST_DOCUMENTS = 8000, 1000

MARKS = {None: "not judged", True: "met", False: "missed"}


class Line(NamedTuple):
    """Measured values by their place on the axis; its points are their middle."""

    label: str
    points: dict[float, list[float]]
    style: Style
    dots: bool = False


class Panel(NamedTuple):
    """Lines over axes; guides are drawn, and are in no table."""

    title: str
    x: str
    y: str
    lines: list[Line]
    guides: tuple[tuple[str, list[float], list[float]], ...] = ()
    scales: tuple[str, str] = ("log", "log")
    middle: Callable[[list[float]], float] = mean


@dataclass(frozen=True, kw_only=True)
class Reproduction(Scenario):
    """A scenario that runs a figure or a theorem of a paper again."""

    #: What the paper says, which is the question.
    claim: str
    question: str = ""
    task: Callable[[Json, Json, int], Json]
    #: None of a table, whose page is all that there is.
    panels: Callable[[Json], list[Panel]] = lambda result: []
    repeats: int = 1
    judges_small: bool = True
    #: Panels in a row, and whether the page has them as tables.
    columns: int = 2
    tabled: bool = True
    #: Files that only its user has, by the option that names them.
    data: tuple[str, ...] = ()
    more: Callable[[Json], str] = lambda result: ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs_corpus", "corpus" in self.data)
        object.__setattr__(self, "details", self.page)
        object.__setattr__(self, "question", self.claim)

    def verdict(self, result: Json) -> Verdict:
        return verdict_of(self.figures(result))

    def page(self, result: Json) -> str:
        """Return verdict, panels as tables, and picture, as Markdown."""
        panels = self.panels(result)
        tables = "".join(map(table, panels)) if self.tabled else ""
        picture = f"![{self.id}](plots/{self.id}.png)\n" if panels else ""
        return f"**{self.verdict(result).line}**\n\n{tables}{self.more(result)}{picture}"

    def draw(self, result: Json, folder: Path) -> None:
        """Draw <id>.png into a folder."""
        if panels := self.panels(result):
            draw(panels, self.columns, folder / f"{self.id}.png")


def table(panel: Panel) -> str:
    """Return the middles of a panel as Markdown, a row a line."""
    places = sorted({place for line in panel.lines for place in line.points})
    cells = []
    for line in panel.lines:
        found = {x: f"{panel.middle(values):.4g}" for x, values in line.points.items()}
        cells.append([line.label, *(found.get(x, "-") for x in places)])
    header = [f"{panel.y}, by {panel.x}", *(f"{place:g}" for place in places)]
    return f"{panel.title}\n\n{markdown(header, cells)}\n"


def draw(panels: Sequence[Panel], columns: int, path: Path) -> None:
    """Draw panels in rows; lines are named at the right of each row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(columns, len(panels))
    down = -(-len(panels) // columns)
    # Many panels are shown smaller: with less of them between letters, these stay legible.
    wide, high = (4.2, 3.3) if columns < 3 else (3.4, 2.7)
    size = (wide * columns + 1.6, high * down)
    figure, axes = pyplot.subplots(down, columns, figsize=size, layout="constrained", squeeze=False)
    for axes_of_panel, panel in zip(axes.flat, panels, strict=False):
        draw_panel(axes_of_panel, panel)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    shown = list(axes.flat[: len(panels)])
    # Where all panels of a row have the same lines, those at the right are named.
    labels = {tuple(each[0] for each in (*panel.lines, *panel.guides)) for panel in panels}
    last = {*range(columns - 1, len(shown), columns), len(shown) - 1}
    name_lines([axis for i, axis in enumerate(shown) if len(labels) > 1 or i in last])
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def draw_panel(axes: Any, panel: Panel) -> None:
    for label, x, y in panel.guides:
        axes.plot(x, y, label=label, **REFERENCE)
    for line in panel.lines:
        middles = [panel.middle(values) for values in line.points.values()]
        axes.plot(list(line.points), middles, label=line.label, **line.style.keywords())
        for place, values in line.points.items() if line.dots else ():
            dots = {"color": line.style.colour, "markersize": 2, "alpha": 0.5}
            axes.plot([place] * len(values), values, ".", **dots)
    axes.set_title(panel.title, fontsize=9)
    axes.set(xlabel=panel.x, ylabel=panel.y, xscale=panel.scales[0])
    axes.set_yscale(panel.scales[1], **({"linthresh": 1e-5} if panel.scales[1] == "symlog" else {}))
    for scale, axis, wide in zip(panel.scales, (axes.xaxis, axes.yaxis), (30, 200), strict=True):
        if scale == "log":
            label_plainly(axis, wide)


def label_plainly(axis: Any, wide: float) -> None:
    """Write 0.2 for 2 x 10^-1, and powers of ten alone where there is no room for more."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    ratio = high / low
    steps = (1,) if ratio > wide else (1, 2, 5) if ratio > 4 else (1, 1.5, 2, 3, 4, 6, 8)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(lambda x, place: f"{x:,.0f}" if x >= 1000 else f"{x:g}")
    axis.set_minor_formatter(NullFormatter())


# Runs in this process


def reproduce(
    reproduction: Reproduction,
    files: Mapping[str, Path],
    folder: Path,
    *,
    fast: bool = False,
    stand_ins: bool = False,
) -> None:
    """Run a reproduction, write its picture and values, and print figures and verdict."""
    contenders = check_files(reproduction, files, stand_ins)
    folder.mkdir(parents=True, exist_ok=True)
    # Threads of linear algebra that wait for each other double the processor time.
    with one_blas_thread():
        result = run(reproduction, files, contenders, fast=fast)
    path = folder / f"{reproduction.id}.json"
    path.write_text(json.dumps(result, indent=1), "utf-8")
    reproduction.draw(result, folder)
    print(f"{reproduction.id}: {reproduction.claim}")
    for figure in reproduction.figures(result):
        target = "" if figure.target == "-" else f" ({figure.target}: {MARKS[figure.met]})"
        print(f"  {figure.name}: {figure.measured}{target}")
    print(f"{reproduction.verdict(result).line}{' (small sizes)' if fast else ''}")
    print(reproduction.more(result), end="")
    written = sorted(folder.glob(f"{reproduction.id}.*"))
    print(f"written: {', '.join(map(str, written))}")


def list_data(files: Mapping[str, Path]) -> None:
    """Print where to get each file that only its user has, and check those that are given."""
    for name, asked in DOWNLOADS.items():
        if name in files:
            check(name, files[name])
        state = "checked" if name in files else f"pass it: --{name} FILE"
        print(f"{name:10} {asked.address} (SHA-256 {asked.sha256}), {state}")


def is_archive(path: Path) -> bool:
    return path.name.endswith((".tar.gz", ".tgz"))


def check_files(
    reproduction: Reproduction, files: Mapping[str, Path], stand_ins: bool
) -> tuple[str, ...]:
    """Refuse files that are missing or not those to download; return the data to run on.

    A corpus of the user's own, JSON Lines, is taken as it is.
    """
    for name in reproduction.data:
        asked = DOWNLOADS[name]
        if name in files:
            if name != "corpus" or is_archive(files[name]):
                check(name, files[name])
        elif name == "corpus" or not stand_ins:
            raise InvalidSettingError(
                f"this figure needs a file that does not come with streamlda, got {name}=None; "
                f"download {asked.address} (SHA-256 {asked.sha256}) and pass it: --{name} FILE"
            )
    if "mnist" not in reproduction.data:
        return ()
    chosen = (data if data.lower() in files else other for data, other in STAND_INS.items())
    return ("synthetic", *chosen)


def run(
    reproduction: Reproduction,
    files: Mapping[str, Path],
    contenders: tuple[str, ...],
    *,
    fast: bool,
) -> Json:
    """Measure every case, once in a fast run, and return a result as the benchmarks store it."""
    cases = reproduction.cases(fast, contenders)
    inputs: Json = {name: str(path) for name, path in files.items()}
    runs: list[Json] = []
    with tempfile.TemporaryDirectory() as folder:
        if reproduction.needs_corpus:
            corpus, counts = files["corpus"], str(Path(folder) / "counts")
            inputs["counts"] = counts
            read = texts_of_reviews if is_archive(corpus) else texts_of_lines
            found = sum(len(texts) for texts, _ in islice(read(corpus), LEAST_DOCUMENTS))
            require(
                found >= LEAST_DOCUMENTS,
                f"a corpus must have at least {LEAST_DOCUMENTS:,} documents",
                name=corpus.name,
                documents=found,
                remedy="give JSON Lines with a key text, or the archive of reviews (.tar.gz)",
                error=InsufficientDataError,
            )
            count_words(lambda: read(corpus), VOCABULARY_SIZE, counts)
        for repeat in range(1 if fast else reproduction.repeats):
            for case in cases:
                print(f"{case.label}, repeat {repeat}", file=sys.stderr, flush=True)
                measured = reproduction.task(case.parameters, inputs, repeat)
                runs.append({"case": case.label, "repeat": repeat, "measured": measured})
    listed = {case.label: {"task": case.task, "parameters": case.parameters} for case in cases}
    return {"scenario": reproduction.id, "quick": fast, "cases": listed, "runs": runs}
