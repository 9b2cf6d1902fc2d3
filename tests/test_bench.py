"""The benchmarks measure in a process of their own, and their tables are those of the results."""

import gzip
import json
import tempfile
from pathlib import Path

import pytest

from bench import tables
from bench.__main__ import main
from bench.measure import ROOT, describe_corpus, run_child
from bench.scenarios import ALL, BY_ID, RatePoint, fit_cost
from streamlda.simulate import PlantedLDA

TINY = {
    "contender": "streamlda",
    "n_features": 30,
    "n_components": 3,
    "alpha_0": 1.0,
    "topic_concentration": 0.2,
    "mean_length": 40,
    "documents": 1500,
}


def result_of(name: str, measured: dict[str, float]) -> dict[str, object]:
    machine = {"cpu": "a cpu", "cores": 2, "memory_bytes": 2**34, "system": "Linux 6.1"}
    versions = {"streamlda": "0.1.0", "python": "3.11.7", "numpy": "2.1", "numba": "0.61"}
    return {
        "scenario": name,
        "quick": False,
        "date": "2026-01-02",
        "machine": {**machine, "thread_settings": {}},
        "versions": versions,
        "corpus": None,
        "cases": {"streamlda": {"task": "fit", "parameters": TINY}},
        "runs": [{"case": "streamlda", "repeat": 0, "measured": measured}],
    }


def result_map(result: dict[str, object]) -> dict[str, dict[str, object]]:
    return {str(result["scenario"]): result}


def planted_corpus(path: Path, n_documents: int) -> Path:
    letters = str.maketrans("0123456789", "abcdefghij")  # digits are no words
    texts = [t.translate(letters) for t in PlantedLDA(12, 400, seed=0).texts(n_documents)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    path.write_bytes(gzip.compress(lines.encode()))
    return path


def test_a_quick_run_measures_in_children_and_stores_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tables.read_results()
    corpus = planted_corpus(tmp_path / "planted.jsonl.gz", 800)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scenarios = ["planted-50-5", "corpus-counts", "corpus-text"]
    options = ["--quick", "--repeats", "1", "--corpus", str(corpus), "--contender", "streamlda"]
    assert main(["run", *scenarios, *options]) == 0

    (folder,) = (path.parent for path in tmp_path.glob("*/planted-50-5.json"))
    results = tables.read_results(folder)
    assert list(results) == scenarios
    assert tables.read_results() == before
    assert all(str(tmp_path) not in path.read_text() for path in folder.iterdir())
    planted, counts, text = (results[name]["runs"][0]["measured"] for name in scenarios)
    assert 0 < planted["l1_error"] < 0.2
    assert (planted["documents"], counts["documents"], text["documents"]) == (5000, 780, 800)
    assert 1 < counts["perplexity"] < counts["unigram_perplexity"] < 400
    for measured in (planted, counts, text):
        assert 0 < measured["fit_seconds"] < 60
        assert 0 < measured["start_seconds"] < 60
        assert 20e6 < measured["peak_rss_bytes"] < 2e9
    assert f"| {planted['l1_error']:.4f} |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nothing"], "unknown scenarios: nothing"),
        (["planted-50-5", "--repeats", "0"], "repeats=0"),
        (["corpus-text"], "--corpus FILE"),
        (["corpus-text", "--corpus", "no such file"], "corpus=no such file"),
    ],
)
def test_a_run_that_cannot_be_says_why(options: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        main(["run", *options])


def test_a_failed_measurement_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="task=fit status=1"):
        run_child("fit", {**TINY, "contender": "nobody"}, {}, 0)
    assert "KeyError: 'nobody'" in capfd.readouterr().err


def test_tables_depend_on_results_alone() -> None:
    measured = {"l1_error": 0.0091, "documents": 1000, "fit_seconds": 0.5}
    results = result_map(result_of("planted-50-5", measured))
    page = "".join(f"<!-- bench:{n} -->\nold\n<!-- /bench:{n} -->\n" for n in ["summary", *BY_ID])
    filled = tables.fill(page, results)
    assert filled == tables.fill(filled, results)
    assert "old" not in filled
    assert "| 0.0091 | <= 0.0080 (**missed**) |" in filled
    assert "| documents/s, streamlda | 2,000 | - |" in filled
    assert filled.count("Not measured yet.") == len(ALL) - 1


@pytest.mark.parametrize(
    "page",
    [
        "<!-- bench:summary -->\n",
        "<!-- bench:summary -->\n<!-- /bench:list -->\n",
        "<!-- bench:nothing -->\n<!-- /bench:nothing -->\n",
    ],
)
def test_a_wrong_marker_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match=r"got (markers|name)="):
        tables.fill(page, {})


def test_the_pages_show_the_stored_results() -> None:
    stale = tables.stale_pages(tables.read_results(), write=False)
    assert [path.name for path in stale] == []
    text = (ROOT / "bench" / "README.md").read_text("utf-8")
    assert all(f"<!-- bench:{name} -->" in text for name in ["summary", *BY_ID])


def test_stored_results_are_of_full_size() -> None:
    assert not any(result["quick"] for result in tables.read_results().values())


def test_the_cost_of_a_document_is_found_again() -> None:
    points = [
        RatePoint(nnz, k, 10_000, m, t, 2e-6 + 1e-9 * nnz * m + 3e-11 * t**3)
        for nnz, k in [(20, 20), (80, 20), (320, 20), (80, 5), (80, 100)]
        for m, t in [(k + 50, k + 20)]
    ]
    coefficients, residual = fit_cost(points)
    assert coefficients == pytest.approx([2e-6, 1e-9, 3e-11], rel=1e-6)
    assert residual < 1e-6


def test_a_corpus_is_described_without_its_place(tmp_path: Path) -> None:
    path = tmp_path / "three.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n{"text": "b"}\n\n{"text": "c"}\n'))
    found = describe_corpus(path)
    assert (found["name"], found["documents"]) == ("three.jsonl.gz", 3)
    assert str(tmp_path) not in json.dumps(found)


def test_the_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(BY_ID)
