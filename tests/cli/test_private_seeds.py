"""``--seed-topic`` with ``--epsilon``: free, in place, and refused before anything is paid."""

from streamlda.model.topic_model import load
from tests.cli.conftest import check_releases, run
from tests.cli.test_private_fit import fit, folder

__all__ = ["folder"]


def words_of(folder, topic, n=3):
    return " ".join(word for word, _ in load(folder / "truth").top_words(n)[topic])


def test_seeded_topics_keep_their_number_and_cost_nothing(folder, tmp_path):
    seeds = [f"second: {words_of(folder, 1)} nowhere", f"first: {words_of(folder, 0)}"]
    spent = []
    for name, given in (("seeded", seeds), ("plain", [])):
        (tmp_path / name).mkdir()
        flags = [flag for seed in given for flag in ("--seed-topic", seed)]
        said = fit(folder, tmp_path / name, *flags)
        assert ("unknown=1: nowhere; they seed nothing" in said) == bool(given)
        report = check_releases(tmp_path / name)
        spent.append((report["spent"], [each["event"] for each in report["snapshots"]]))
    assert spent[0] == spent[1]
    model = load(tmp_path / "seeded" / "m")
    assert model.names == ["second", "first", None]
    assert len(model.settings["seed_topics"]) == 2
    assert model.privacy["seeds"] == "public"
    assert "seeds       public words" in run("topics", tmp_path / "seeded" / "m").stdout


def test_seed_words_come_beside_those_that_are_chosen(folder, tmp_path):
    private = ("vocabulary.kind=private", "vocabulary.size=50")
    stop = ("--seed-topic", "none: the of and")
    said = fit(folder, tmp_path, *private, *stop, words=False, code=78)
    assert "a seeded topic must have a word of the vocabulary, got topic='none'" in said
    assert not (tmp_path / "L").exists()
    unknown = ("--seed-topic", "none: nowhere")
    assert "got topic='none'" in fit(folder, tmp_path, *unknown, code=78)
    assert not (tmp_path / "L").exists()
    fit(folder, tmp_path, *private, "--seed-topic", "far: Zebra quagga", words=False)
    model = load(tmp_path / "m")
    assert model.vocabulary.words[:2] == ("zebra", "quagga")
    assert model.names[0] == "far"
    # Nobody wrote these words.
    assert any("others=1: far" in warning for warning in model.diagnostics["warnings"])
