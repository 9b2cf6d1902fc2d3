"""`python -m bench papers`: what it lists, runs, writes, judges and refuses."""

import gzip
import json
import re

import numpy as np
import pytest

from bench.__main__ import main
from bench.papers import data
from bench.papers.scenarios import REPRODUCTIONS
from streamlda.errors import InvalidSettingError
from tests.papers.test_pages import ROOT


def small(monkeypatch, name, keep):
    reproduction = REPRODUCTIONS[name]
    kept = [case for case in reproduction.cases(True, ()) if case.label in keep]
    assert len(kept) == len(keep)
    cases = [case._replace(parameters={**case.parameters, "trials": 2}) for case in kept]
    monkeypatch.setitem(vars(reproduction), "cases", lambda quick, contenders: cases)


def test_a_run_writes_picture_table_and_one_line(monkeypatch, tmp_path, capsys):
    small(monkeypatch, "wa16-theorem-3-1", ["n = 1024", "n = 4096", "d = 10", "d = 20"])
    out = tmp_path / "new"
    assert main(["papers", "wa16-theorem-3-1", "--fast", "--output", str(out)]) == 0
    said = capsys.readouterr().out
    verdicts = "**agrees", "**does not", "**not judged"
    (line,) = [x for x in said.splitlines() if x.startswith(verdicts)]
    assert "(quick: sizes cut)" in said
    assert said.count("| n^-0.5 least, in 95% of resamples") == 1
    assert (out / "wa16-theorem-3-1.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((out / "wa16-theorem-3-1.json").read_text("utf-8"))
    assert [run["case"] for run in result["runs"]] == ["n = 1024", "n = 4096", "d = 10", "d = 20"]
    assert all(len(row["values"]) == 2 for run in result["runs"] for row in run["measured"]["rows"])
    assert REPRODUCTIONS["wa16-theorem-3-1"].verdict(result).line in line
    assert len(list(out.iterdir())) == 2


REFUSED = [
    ("cape-figure-2", False, "train-images-idx3-ubyte.gz (SHA-256 440fcabf73cc"),
    ("dplda-figure-3", True, "aclImdb_v1.tar.gz (SHA-256 c40f74a18d3b"),
]


@pytest.mark.parametrize(("name", "stand_ins", "message"), REFUSED)
def test_missing_files_are_refused_with_what_to_do(name, stand_ins, message):
    with pytest.raises(InvalidSettingError, match=re.escape(message)):
        data.check_files(REPRODUCTIONS[name].data, {}, stand_ins)
    with pytest.raises(SystemExit, match=re.escape(message)):
        main(["papers", name, *(["--stand-ins"] if stand_ins else [])])


@pytest.mark.parametrize("name", ["mnist", "covertype", "corpus"])
def test_a_file_that_is_not_the_one_to_download_is_refused(name, tmp_path):
    path = tmp_path / "other.tar.gz"
    path.write_bytes(b"other")
    with pytest.raises(InvalidSettingError, match="download it again from https"):
        data.check_files([name], {name: path}, True)


def test_images_and_cells_are_read_and_their_panels_take_the_place_of_others(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 784), dtype=np.uint8)
    header = np.array([2051, 12, 28, 28], ">u4").tobytes()
    cells = rng.integers(0, 9, (7, 55))
    files = {name: tmp_path / f"{name}.gz" for name in ("mnist", "covertype")}
    files["mnist"].write_bytes(gzip.compress(header + images.tobytes()))
    lines = "\n".join(",".join(map(str, row)) for row in cells)
    files["covertype"].write_bytes(gzip.compress(lines.encode()))
    np.testing.assert_array_equal(data.read_mnist(files["mnist"]), images)
    np.testing.assert_array_equal(data.read_covertype(files["covertype"]), cells[:, :-1])

    for name, path in files.items():
        digest = data.hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.setitem(data.DOWNLOADS, name, ("https://a", digest))
    asked = REPRODUCTIONS["cape-figure-2"].data
    chosen = data.check_files(asked, files, False)
    assert chosen == ("synthetic", "MNIST", "Covertype")
    del files["mnist"]
    chosen = data.check_files(asked, files, True)
    assert chosen == ("synthetic", data.STAND_IN, "Covertype")
    assert data.check_files(asked, {}, True) == ("synthetic", data.STAND_IN)
    cases = REPRODUCTIONS["cape-figure-2"].cases(True, chosen)
    assert {case.parameters["data"] for case in cases} == set(chosen)


STORED = [name for name in REPRODUCTIONS if (ROOT / f"bench/results/{name}.json").exists()]


@pytest.mark.parametrize("name", STORED)
def test_every_stored_result_has_a_verdict_panels_and_a_page(name):
    path = ROOT / f"bench/results/{name}.json"
    result, reproduction = json.loads(path.read_text("utf-8")), REPRODUCTIONS[name]
    page = reproduction.details(result)
    assert page.startswith(("**agrees: ", "**does not, because ", "**not judged: "))
    drawn = f"plots/{name}.png" in page
    assert drawn == (name != "dplda-v2-table-2")
    panels = reproduction.panels(result)
    assert not drawn or sum(len(line) for panel in panels for line in panel.lines.values()) > 5
