"""``fit`` and ``fit --dask`` of the same files: equal counts, topics and releases."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from streamlda.errors import InsufficientDataError, LedgerError
from streamlda.guarantee.noise import SeededNoise
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from streamlda.privacy.statement import check_statement
from streamlda.run.cluster import fit_on_cluster
from streamlda.run.fit import fit
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA

pytestmark = pytest.mark.long

K, V = 3, 40
OPENERS = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

#: Records that are no document, or too short, or longer than `MAX_RECORD` or than most.
MAX_RECORD = 20_000
ODD = [
    *("", "  ", "bad", "[]", '{"text": 5}', '{"text": ""}', '{"text": "w00001 w00002"}'),
    *('{"other": "w00001 w00002 w00003"}', '{"text": "unknown words of no list at all"}'),
    *(json.dumps({"text": "w00001 w00002 " * n}) for n in (400, MAX_RECORD)),
]


def write(folder, seed, files):
    """Write files of planted documents and odd records into a new folder; return it as sources."""
    (folder / "in").mkdir()
    planted = PlantedLDA(K, V, seed=seed, mean_length=20)
    for number, (documents, ending, odd) in enumerate(files):
        lines = [json.dumps({"text": text}) for text in planted.texts(documents)]
        for line, kind in odd:
            lines.insert(line, ODD[kind])
        with OPENERS[ending](folder / "in" / f"{number}.jsonl{ending}", "wt") as file:
            file.write("\n".join(lines))
    (folder / "words").write_text("\n".join(f"w{i:05}" for i in range(V)))
    return [str(folder / "in")]


def settings_of(folder, sources, name="model", command="fit", **flags):
    given = {
        "source.files": sources,
        "source.max_record": MAX_RECORD,
        "vocabulary.token_pattern": r"w\d+",
        "topics.count": K,
        "topics.oversampling": 10,
        "output.file": str(folder / name),
        **flags,
    }
    if given.get("vocabulary.file"):
        given["vocabulary.file"] = str(folder / given["vocabulary.file"])
    return load_settings(None, {}, given, command)


@pytest.mark.parametrize(
    ("words", "warmup"),
    [
        ({}, None),
        ({"vocabulary.documents": 450}, 100),
        ({"vocabulary.hash_bits": 7}, 150),
        ({"vocabulary.file": "words"}, None),
    ],
)
def test_counts_and_unrefined_topics_are_those_of_one_process(cluster, tmp_path, words, warmup):
    """Of files with odd records, compressed, damaged or empty; topics to rounding."""
    odd = [(19 * kind + 7, kind) for kind in range(len(ODD))]
    sources = write(tmp_path, 3, [(300, ending, odd[n::2]) for n, ending in enumerate(OPENERS)])
    whole = tmp_path / "in" / "1.jsonl.gz"
    (tmp_path / "in" / "4.jsonl.gz").write_bytes(whole.read_bytes()[:-60])
    (tmp_path / "in" / "5.jsonl").touch()
    flags = {"topics.refine": False, "topics.warmup_documents": warmup, **words}
    one = fit(settings_of(tmp_path, sources, **flags))
    cluster_flags = {"cluster.dask": cluster.scheduler_address, "cluster.shards": 5}
    other = fit_on_cluster(settings_of(tmp_path, sources, **flags, **cluster_flags))
    assert one.counts == other.counts
    assert ["broke off (" in note for note in one.counts.notes] == [True, False]
    assert sorted(other.counts.notes) == sorted(one.counts.notes)
    assert other.counts.lost_bytes == one.counts.lost_bytes > 0
    assert other.stored_bytes == one.stored_bytes
    assert one.pipeline.vocabulary_documents == other.pipeline.vocabulary_documents
    mine, theirs = one.model, other.model
    for name in ("components", "alpha", "background"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), 1e-12, 1e-12, name)
    for name in ("settings", "vocabulary", "documents_seen", "tokens_seen"):
        assert getattr(mine, name) == getattr(theirs, name), name
    for name in ("documents_skipped", "rounds_finished"):
        assert mine.diagnostics.get(name) == theirs.diagnostics.get(name), name
    # The bounds are not empty.
    (tmp_path / "in" / "6.jsonl").write_text(json.dumps({"text": "w00001 w00002 w00003 " * 9}))
    more = fit(settings_of(tmp_path, sources, **flags))
    assert np.abs(more.model.background - one.model.background).max() > 1e-9


def test_proportions_are_those_of_one_process(cluster, tmp_path):
    """Of files that are cut, compressed or damaged, in order, with the same numbers of records."""
    sources = write(tmp_path, 3, [(300, "", [(7, 2), (90, 6)]), (200, ".gz", [(3, 4)])])
    (tmp_path / "in" / "2.jsonl").touch()
    fit(settings_of(tmp_path, sources))
    command = ["infer", str(tmp_path / "model"), *sources, "--top", "2"]
    on = ["--dask", cluster.scheduler_address, "--set", "cluster.shards=7"]
    one, other = (CliRunner().invoke(commands, [*command, *more]) for more in ([], on))
    assert one.exit_code == other.exit_code == 0, other.output
    assert one.stdout == other.stdout
    assert one.stderr == other.stderr
    assert len(one.stdout.splitlines()) > 490


def test_private_releases_are_those_of_one_process(cluster, tmp_path, monkeypatch):
    """Number for number, from equal noise, with equal counts and an equal price."""
    module = "streamlda.private.release_manager.SecureNoise"
    monkeypatch.setattr(module, lambda: SeededNoise(5))
    # Blank, rejected and short records are among them.
    odd = [(10 * kind + 5, kind) for kind in range(len(ODD))]
    records = write(tmp_path, 6, [(1400, "", odd), (1400, ".gz", odd), (1400, "", odd)])
    private = {"privacy.epsilon": 8.0, "privacy.delta": 1e-6, "vocabulary.file": "words"}
    results, reports, files = [], [], []
    for name, address in (("here", None), ("there", cluster.scheduler_address)):
        ledger, models = tmp_path / name, tmp_path / f"{name}-models"
        to = {"privacy.ledger": str(ledger), "output.folder": str(models)}
        to["output.file"] = str(tmp_path / f"{name}-model")
        flags = {**private, "snapshots.every": 2000, **to, "cluster.dask": address}
        fitted = fit if address is None else fit_on_cluster
        results.append(fitted(settings_of(tmp_path, records, **flags)))
        reports.append(read_report(ledger))
        files.append(len(list(models.iterdir())))
    one, other = results
    check_statement(other.model.privacy)
    # What is met in records is not shown of a private fit.
    assert one.counts.records == other.counts.records
    assert one.counts.rejects.total() > 0
    assert one.model.settings == other.model.settings
    np.testing.assert_array_equal(one.model.components, other.model.components)
    for name in ("budget", "spent", "left_for_new_documents", "generation"):
        assert reports[0][name] == reports[1][name], name
    paid = ("description", "documents", "event", "mu_squared")
    bought = [[[each[n] for n in paid] for each in r["snapshots"]] for r in reports]
    assert bought[0] == bought[1]
    assert files[0] == files[1]
    # The same documents are paid for once, wherever they are read.
    model = tmp_path / "there-model"
    before = model.read_bytes(), ledger.read_bytes()
    for fitted, more in (
        (fit, None),
        (fit_on_cluster, cluster.scheduler_address),
        (fit_on_cluster, "nonsense://x"),
    ):
        # Models with noise of a seed are not private, and lie apart from those that will be.
        again = {"cluster.dask": more, "output.folder": str(tmp_path / "again")}
        with pytest.raises(LedgerError, match="in two releases"):
            fitted(settings_of(tmp_path, records, **flags | again))
        assert (model.read_bytes(), ledger.read_bytes()) == before


@pytest.mark.parametrize("label", ["first", "reading", "refinement"])
def test_a_fit_that_is_stopped_has_topics_of_what_was_read(cluster, tmp_path, label, monkeypatch):
    """Of shards that were read, or those that a refinement begins with; before reading, none."""
    sources = write(tmp_path, 3, [(700, "", [])] * 3)
    left = [label != "first"]

    def look(found, counts, done, total):
        assert 0 < done <= total
        left[0] -= found == label and counts.documents >= K

    flags = {"cluster.dask": cluster.scheduler_address, "cluster.shards": 6}
    settings = settings_of(tmp_path, sources, **flags)
    monkeypatch.setattr("streamlda.scaleout.cluster.POLL_SECONDS", 0.0005)
    if label == "first":
        with pytest.raises(InsufficientDataError, match="nothing was saved"):
            fit_on_cluster(settings, should_stop=lambda: left[0] <= 0)
        assert not (tmp_path / "model").exists()
        return
    found = fit_on_cluster(settings, should_stop=lambda: left[0] <= 0, on_progress=look)
    assert found.stopped
    model = load(tmp_path / "model")
    # On a busy machine the last shards may be read by the time that a stop is looked for.
    assert model.diagnostics["stopped"] in {"refinement", label}
    if label == "reading":
        assert 0 < found.counts.documents <= 2100
        assert "refinement" not in model.diagnostics
    else:
        assert found.counts.documents == 2100
        assert model.documents_seen > 2000
    assert model.n_components == K
