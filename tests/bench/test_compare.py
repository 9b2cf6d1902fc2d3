"""The comparison with other libraries: who takes part, what is stored, and what is said of it."""

import json
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from gensim.matutils import Sparse2Corpus
from gensim.models import LdaModel

from bench import compare, contenders, entrants, tables
from bench.__main__ import main
from bench.compare import comparison
from bench.data import completed, planted_counts, quality
from bench.entrants import ENTRANTS, ON_TWO, ONE_CORE, missing
from bench.kinds import Case
from bench.measure import Harness
from bench.sittings import add_measurements, merged
from bench.tasks import run_here
from tests.bench.results import MACHINE, TINY, VERSIONS, planted_corpus

SMALL = {**TINY, "documents": 200}
QUICKEST = "vowpal-wabbit-1"


# What the environment lacks is in no lock; `bench` measures it where it is.
# On two cores the same code runs, but for gensim's.
@pytest.mark.parametrize(
    "label",
    [
        label
        for label, entrant in ENTRANTS.items()
        if missing(entrant.library) is None and (label in ONE_CORE or "workers" in entrant.options)
    ],
)
def test_every_contender_gives_proper_topics(label):
    train, held_out, truth = planted_counts(SMALL, 0)
    entrant = ENTRANTS[label]
    contender = entrant.make(3, 0, **entrant.options)
    components, alpha = contender.fit(contender.load(train))
    assert components.shape == (3, 30)
    assert alpha.shape == (3,)
    assert np.all(components >= 0)
    assert np.all(alpha > 0)
    assert components.sum(axis=1) == pytest.approx(1)
    judged = quality(train, held_out, components, alpha, truth)
    # Five steps or fewer over 200 documents are not enough for one pass of variational Bayes. The
    # others were at 0.35 or below for ten seeds, but for the tensor method of topica (0.69); topics
    # without a relation are at 1.
    once = label.endswith("-1") or "online" in label or entrant.make is contenders.gensim
    if not once and not label.startswith("vowpal") and label != "topica-tensor":
        assert judged["l1_error"] < 0.6
        assert judged["perplexity"] < judged["unigram_perplexity"]


def test_no_contender_pays_for_the_imports_of_this_project():
    program = "import sys, bench.tasks; print(*{'numba', 'streamlda.kernels'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("\n", 0), done.stderr


def test_documents_of_a_kind_are_made_of_those_of_the_corpus():
    train, _, _ = planted_counts(SMALL, 0)
    counts = entrants.PlainCounts(train.counts, train.word_ids, train.row_pointers, 30)
    rows, short, repeated = (
        contenders.sparse_rows(each).toarray()
        for each in (counts, counts.shortened(1), counts.repeated(1))
    )
    assert short.sum(axis=1).tolist() == np.minimum(rows.sum(axis=1), 6).tolist()
    assert np.all(short <= rows)
    found, times = np.unique(repeated, axis=0, return_counts=True)
    assert {*map(tuple, found)} <= {*map(tuple, rows)}
    # A copy comes five times on average, and half of the rows are no copies.
    assert times[times > 1].sum() > 90


def test_kinds_and_sizes_have_results_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    corpus = planted_corpus(tmp_path / "planted.jsonl.gz", 300)
    options = ["--topics", "3", "--quick", "--seeds", "1", "--contender", QUICKEST]
    of_kind = ["--kind", "short", "--documents", "200"]
    assert main(["compare", str(corpus), *options, *of_kind]) == 0
    (stored,) = tmp_path.glob("streamlda-bench-*/compare-planted-3-short-200.json")
    (run,) = json.loads(stored.read_text())["runs"]
    # Judged by whole documents.
    assert run["measured"]["held_out_documents"] == 30
    scenario = comparison("planted", 3, 300, "repeated", 200)
    (asked,) = scenario.cases(False, (QUICKEST,))
    assert (asked.parameters["kind"], asked.parameters["documents"]) == ("repeated", 200)
    kinds = {s.id: made_up(s.id, ARXIV) for s in compare.COMPARE_KINDS}
    assert "| streamlda-default | 16.0 s, " in tables.block("compare-kinds", kinds)


def test_the_others_are_measured_when_one_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = tables.read_results()
    corpus = planted_corpus(tmp_path / "planted.jsonl.gz", 300)
    monkeypatch.delenv("STREAMLDA_BENCH_MALLET", raising=False)
    options = ["--topics", "3", "--quick", "--seeds", "1", "--contender", "mallet-500"]
    assert main(["compare", str(corpus), *options, "--contender", QUICKEST]) == 0
    (stored,) = tmp_path.glob("streamlda-bench-*/compare-planted-3.json")
    assert str(tmp_path) not in stored.read_text()
    result = json.loads(stored.read_text())
    (run,) = result["runs"]
    measured = run["measured"]
    assert (run["case"], measured["documents"]) == (QUICKEST, 270)
    assert 1 < measured["perplexity"] < 400
    assert 20e6 < measured["start_rss_bytes"] < measured["peak_rss_bytes"] < 1e9
    assert measured["cpu_seconds"] <= 1.05 * measured["fit_seconds"] + 0.1
    assert result["missing"] == {"mallet-500": missing("mallet")}
    printed = capsys.readouterr()
    assert "set STREAMLDA_BENCH_MALLET to the folder" in printed.err
    assert f"| {QUICKEST} (**failed**) | 1 |" in printed.out
    assert "mallet-500: mallet is not installed" in printed.out
    assert tables.read_results() == before


def test_sittings_add_to_one_result(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    monkeypatch.setattr("bench.measure.run_child", run_here)
    corpus = planted_corpus(tmp_path / "planted.jsonl.gz", 300)
    scenario, saved = comparison("planted", 3, 300), []

    def save(result):
        saved.append(json.loads(json.dumps(result)))

    def sit(stored, labels, n, **options):
        # A new harness knows nothing of earlier measurements, as in a new process.
        harness = Harness(corpus, quick=True, held_out_every=10)
        parts = (harness, scenario, stored, labels, dict.fromkeys(ENTRANTS, n), save)
        add_measurements(*parts, missing={}, **options)
        return saved[-1]

    first = sit(None, [QUICKEST], 1)
    second = sit(first, [QUICKEST], 2)
    assert [run["repeat"] for run in second["runs"]] == [0, 1]
    assert second["runs"][0] == first["runs"][0]
    assert sit(second, ["vowpal-wabbit-10"], 1, minutes=0)["runs"] == second["runs"]
    (fresh,) = sit(second, [QUICKEST], 1, fresh=True)["runs"]
    assert fresh["repeat"] == 0
    assert fresh["measured"] != first["runs"][0]["measured"]  # times differ


HEADER = {
    "scenario": "compare-arxiv-50",
    "quick": False,
    "date": "2026-01-02",
    **{"machine": MACHINE, "versions": VERSIONS},
    "corpus": {"name": "arxiv.jsonl.gz", "documents": 200_000, "sha256": "0" * 64, "bytes": 1},
}


def case(label, **parameters):
    return Case(label, "compare", {"contender": label, **parameters})


def test_sittings_of_other_machines_or_documents_do_not_mix():
    for changed, message in (
        ({"machine": {**HEADER["machine"], "cores": 4}}, "one cores, got stored=2 now=4"),
        ({"versions": {**HEADER["versions"], "tomotopy": "0.15"}}, "one version of tomotopy, got"),
        ({"machine": {**HEADER["machine"], "memory_bytes": 2**33}}, "one memory_bytes"),
        ({"quick": True}, "one quick, got stored=False now=True"),
        ({"corpus": {**HEADER["corpus"], "sha256": "1"}}, "one corpus"),
    ):
        stored = merged(None, HEADER, [case("a")], False)
        with pytest.raises(SystemExit, match=message):
            merged(stored, {**HEADER, **changed}, [case("a")], False)


def made_up(scenario, values, **header):
    """Results with seconds, perplexity and NPMI of each contender, for three seeds."""
    result = merged(None, {**HEADER, "scenario": scenario, **header}, [], False)
    for label, (seconds, perplexity, npmi) in values.items():
        result["cases"][label] = {"task": "compare", "parameters": {"n_components": 50}}
        for repeat, factor in enumerate((0.99, 1.0, 1.02)):
            measured = {"fit_seconds": seconds * factor, "cpu_seconds": seconds, "npmi": npmi}
            measured |= {"perplexity": perplexity * factor, "diversity": 0.7}
            measured |= {"unigram_perplexity": 2980.0, "load_seconds": 1.0, "documents": 195_000}
            measured |= {"start_rss_bytes": 1e8, "rss_before_bytes": 2e8}
            measured["peak_rss_bytes"] = 4e8 if label.startswith("streamlda") else 3e8 + seconds
            run = {"case": label, "repeat": repeat, "date": "2026-01-02", "commit": "abc"}
            result["runs"].append({**run, "measured": measured})
    return result


ARXIV = {
    "streamlda-spectral": (2.0, 1650.0, 0.15),
    "streamlda-quick": (4.0, 1380.0, 0.18),
    "streamlda-default": (16.0, 1330.0, 0.19),
    "tomotopy-200": (170.0, 1282.0, 0.185),
    "gensim-10": (500.0, 1300.0, 0.1),
    "gensim-256": (60.0, 1400.0, 0.12),
    "scikit-learn-online-256": (39.0, 1709.0, 0.12),
    "vowpal-wabbit-1": (11.0, 1390.0, 0.12),
    f"streamlda-default{ON_TWO}": (9.0, 1330.0, 0.19),
    f"tomotopy-200-mean{ON_TWO}": (90.0, 1282.0, 0.185),
}


def test_targets_are_judged():
    name = "compare-arxiv-50"
    page = tables.scenario_block(name, {name: made_up(name, ARXIV)})
    for row in (
        "perplexity of streamlda-spectral / tomotopy-200 | 1.287 | - |",
        "perplexity of streamlda-quick / tomotopy-200 | 1.076 | <= 1.080 (met) |",
        "perplexity of streamlda-default / tomotopy-200 | 1.037 | <= 1.020 (**missed**) |",
        "perplexity of streamlda-thorough / tomotopy-200 | not measured yet | <= 1.000 |",
        "to the perplexity of gensim at its best, gensim-10 | not reached | >= 3.0 (**missed**) |",
        "at its best, vowpal-wabbit-1 | 2.8 (streamlda-quick) | >= 3.0 (**missed**) |",
        "to the perplexity of mallet at its best | not measured yet | >= 10.0 |",
        "clock: streamlda-default, two cores, than tomotopy-200-mean, two cores | 10.0 | - |",
        "NPMI of streamlda-quick, target that of tomotopy-200 | 0.180 | >= 0.185 (**missed**) |",
        "peak memory of streamlda-default / tomotopy-200 | 1.33 | <= 1.00 (**missed**) |",
    ):
        assert row in page
    assert "| tomotopy-200 | 3 | 170.0 (168.3 to 173.4) | 170.0 | 1.0 | 300 | 100 | 100 |" in page
    assert "Without topics the perplexity is 2,980;" in page
    assert "Ratios are of different" not in page


def test_what_predicts_no_better_than_no_topics_has_failed_and_nothing_is_judged_by_it():
    name = "compare-arxiv-50"
    results = {name: made_up(name, {**ARXIV, "gensim-10": (500.0, 2980.0, 0.1)})}
    page = tables.scenario_block(name, results)
    assert "| gensim-10 (**failed**) | 3 |" in page
    assert "| gensim-256 | 3 |" in page
    assert "of gensim at its best, gensim-256 | 15.0 (streamlda-quick) | >= 3.0 (met) |" in page
    assert "perplexity 2,980 (**failed**)" in tables.block("compare", results)


def test_nothing_is_judged_that_was_not_asked_and_days_that_differ_are_named():
    result = made_up("compare-mine-7", ARXIV)
    judged = {figure.name for figure in compare.figures(result) if figure.met is not None}
    assert not any("processor time" in name or "memory" in name for name in judged)
    assert compare.figures(made_up("compare-mine-7", {}))[0].measured == "not measured yet"
    result["runs"][-1] |= {"date": "2026-01-09", "commit": "def"}
    page = compare.notes(result)
    assert "Ratios are of different days" in page
    assert f"tomotopy-200-mean{ON_TWO}: 2026-01-02, 2026-01-09" in page
    assert "different commits of this project" in page


def test_perplexity_is_that_of_another_library_s_inference():
    """Halves, sums and logarithms are made here by hand; gensim folds in by variational Bayes."""
    train, held_out, _ = planted_counts({**SMALL, "n_features": 200, "documents": 2000}, 0)
    contender = contenders.tomotopy(3, 0, sweeps=25)
    components, alpha = contender.fit(contender.load(train))
    counts = held_out.to_csr().copy()
    background = np.asarray(train.to_csr().sum(axis=0))[0] / train.counts.sum()
    topics = 0.99 * components + 0.01 * background
    observed = counts.copy()
    observed.data = np.random.default_rng(0).binomial(counts.data.astype(int), 0.5).astype(float)
    hidden = (counts - observed).toarray()
    observed.eliminate_zeros()
    words = {i: str(i) for i in range(200)}
    lda = LdaModel(num_topics=3, id2word=words, alpha=alpha, iterations=500)
    lda.expElogbeta = topics.astype(lda.dtype)
    gamma = lda.inference(Sparse2Corpus(observed, documents_columns=False))[0]
    theta = gamma / gamma.sum(axis=1, keepdims=True)
    both = (np.diff(observed.indptr) > 0) & (hidden.sum(axis=1) > 0)
    hidden = hidden[both] * (background > 0)
    nats = (hidden * np.log(theta[both] @ topics + 1e-300)).sum()
    ours = completed(train, held_out, components, alpha)
    assert ours.held_out_tokens == hidden.sum()
    assert ours.perplexity == pytest.approx(np.exp(-nats / hidden.sum()), rel=0.01)
