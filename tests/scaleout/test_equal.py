"""``fit`` and ``fit --dask`` of the same files: equal counts, equal topics, equal releases."""

import bz2
import gzip
import json
import lzma
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from streamlda.run.cluster import fit_on_cluster
from streamlda.run.fit import fit
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA

K, V = 3, 40
OPENERS = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

#: Records that are no document, or too short, or longer than `MAX_RECORD` or than a block.
MAX_RECORD = 20_000
LONG = "w00001 w00002 " * 400
ODD = ["", "  ", "bad", "[]", '{"text": 5}', '{"text": ""}', '{"text": "w00001 w00002"}']
ODD += ['{"other": "w00001 w00002 w00003"}', '{"text": "unknown words of no list at all"}']
ODD += [json.dumps({"text": LONG}), json.dumps({"text": "w00003 " * MAX_RECORD})]


@st.composite
def corpora(draw):
    """Files by name, the lines of each."""
    planted = PlantedLDA(K, V, seed=draw(st.integers(0, 99)), mean_length=20)
    made = {}
    for number in range(draw(st.integers(1, 4))):
        lines = [json.dumps({"text": t}) for t in planted.texts(draw(st.integers(200, 500)))]
        for _ in range(draw(st.integers(0, 12))):
            lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(ODD)))
        made[f"{number}.jsonl{draw(st.sampled_from(sorted(OPENERS)))}"] = lines
    return made


def write(folder, made):
    for name, lines in made.items():
        with OPENERS[Path(name).suffix.replace(".jsonl", "")](folder / name, "wt") as file:
            file.write("\n".join(lines))


def both(address, folder, files, **flags):
    """Fit here and on the cluster, by one table of settings; return both results."""
    results = []
    for name, fitted, more in (
        ("here", fit, {}),
        ("there", fit_on_cluster, {"cluster.dask": address}),
    ):
        given = {
            "source.files": files,
            "source.max_record": MAX_RECORD,
            "vocabulary.token_pattern": r"w\d+",
            "topics.count": K,
            "topics.oversampling": 10,
            "output.file": str(folder / f"{name}.model"),
            **{name.replace("__", ".", 1): value for name, value in flags.items()},
            **more,
        }
        if "privacy.epsilon" in given:
            given["privacy.ledger"] = str(folder / f"{name}.ledger")
        results.append(fitted(load_settings(None, {}, given, "fit")))
    return results


def assert_equal(one, other, to=1e-12):
    assert one.pipeline.counts == other.pipeline.counts
    assert one.pipeline.vocabulary == other.pipeline.vocabulary
    assert one.pipeline.vocabulary_documents == other.pipeline.vocabulary_documents
    mine, theirs = one.model, other.model
    for name in ("components", "alpha", "background"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), to, to, name)
    for name in ("settings", "vocabulary", "documents_seen", "tokens_seen"):
        assert getattr(mine, name) == getattr(theirs, name), name
    for name in ("documents_skipped", "rounds_finished"):
        assert mine.diagnostics.get(name) == theirs.diagnostics.get(name), name


@examples(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    made=corpora(),
    words=st.sampled_from(
        [{}, {"vocabulary__documents": 90}, {"vocabulary__hash_bits": 7}, {"vocabulary__file": V}]
    ),
    warmup=st.sampled_from([None, 100, 150]),
)
def test_counts_and_unrefined_topics_are_those_of_one_process(cluster, made, words, warmup):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        write(folder / "in", made)
        if "vocabulary__file" in words:
            (folder / "words").write_text("\n".join(f"w{i:05}" for i in range(V)))
            words = {"vocabulary__file": str(folder / "words")}
        flags = {"topics__refine": False, "topics__warmup_documents": warmup, **words}
        one, other = both(cluster.scheduler_address, folder, [str(folder / "in")], **flags)
        assert_equal(one, other)
        # The bound is not empty: with a document more both differ.
        more = folder / "more.jsonl"
        more.write_text(json.dumps({"text": "w00001 w00002 w00003 " * 9}))
        files = [str(folder / "in"), str(more)]
        _, wrong = both(cluster.scheduler_address, folder, files, **flags)
        assert np.abs(wrong.model.background - one.model.background).max() > 1e-9
