"""Run a reproduction in this process, and write its picture, its table and its verdict."""

from __future__ import annotations

import csv
import io
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.corpus import Blocks, count_words, texts_of_lines, texts_of_reviews
from bench.kinds import Json
from bench.papers.cape import STAND_INS
from bench.papers.data import DOWNLOADS, check, missing
from bench.papers.study import Reproduction, rows
from streamlda.checks import require
from streamlda.container import whole_file
from streamlda.errors import InsufficientDataError

#: Words of a corpus for DP-LDA, and the least documents of it.
VOCABULARY_SIZE, LEAST_DOCUMENTS = 8000, 1000


def reproduce(
    reproduction: Reproduction,
    files: Mapping[str, Path],
    folder: Path,
    *,
    fast: bool = False,
    stand_ins: bool = False,
) -> None:
    """Run a reproduction, write its picture and its table, and print figures and verdict."""
    contenders = check_files(reproduction, files, stand_ins)
    folder.mkdir(parents=True, exist_ok=True)
    result = run(reproduction, files, contenders, fast=fast)
    written = write(reproduction, result, folder)
    print(f"{reproduction.id}: {reproduction.claim}")
    for figure in reproduction.figures(result):
        mark = {None: "not judged", True: "met", False: "missed"}[figure.met]
        target = "" if figure.target == "-" else f" ({figure.target}: {mark})"
        print(f"  {figure.name}: {figure.measured}{target}")
    print(f"{reproduction.verdict(result).line}{' (small sizes)' if fast else ''}")
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
        if name not in files:
            if name == "corpus" or not stand_ins:
                raise missing(name)
        elif name != "corpus" or is_archive(files[name]):
            check(name, files[name])
    if "mnist" not in reproduction.data:
        return reproduction.contenders
    chosen = (data if data.lower() in files else other for data, other in STAND_INS.items())
    return ("synthetic", *chosen)


def check_documents(blocks: Blocks, path: Path) -> None:
    """Refuse a corpus of too few documents; reads no more of it than these."""
    found = 0
    while found < LEAST_DOCUMENTS and (block := next(blocks, None)) is not None:
        found += len(block[0])
    require(
        found >= LEAST_DOCUMENTS,
        f"a corpus must have at least {LEAST_DOCUMENTS:,} documents",
        name=path.name,
        documents=found,
        remedy="give JSON Lines with a key text, or the archive of reviews (.tar.gz)",
        error=InsufficientDataError,
    )


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
        if "corpus" in reproduction.data:
            corpus, counts = files["corpus"], str(Path(folder) / "counts")
            inputs["counts"] = counts
            read = texts_of_reviews if is_archive(corpus) else texts_of_lines
            check_documents(read(corpus), corpus)
            count_words(lambda: read(corpus), VOCABULARY_SIZE, counts)
        for repeat in range(1 if fast else reproduction.repeats):
            for case in cases:
                print(f"{case.label}, repeat {repeat}", file=sys.stderr, flush=True)
                measured = reproduction.task(case.parameters, inputs, repeat)
                runs.append({"case": case.label, "repeat": repeat, "measured": measured})
    listed = {case.label: {"task": case.task, "parameters": case.parameters} for case in cases}
    return {"scenario": reproduction.id, "quick": fast, "cases": listed, "runs": runs}


def write(reproduction: Reproduction, result: Json, folder: Path) -> list[Path]:
    """Write <id>.png and <id>.csv, each whole or not at all; return both."""
    picture, table = (folder / f"{reproduction.id}.{ending}" for ending in ("png", "csv"))
    with tempfile.TemporaryDirectory() as drawn:
        reproduction.draw(result, Path(drawn))
        with whole_file(picture) as file:
            file.write((Path(drawn) / picture.name).read_bytes())
    text, points = io.StringIO(), list(rows(reproduction.panels(result)))
    writer = csv.DictWriter(text, list(points[0]))
    writer.writeheader()
    writer.writerows(points)
    with whole_file(table) as file:
        file.write(text.getvalue().encode())
    return [picture, table]
