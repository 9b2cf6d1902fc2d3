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


def test_seed_words_must_be_public_and_known_before_anything_is_paid(folder, tmp_path):
    for given, words, rule in (
        (
            "none: the",
            ("vocabulary.kind=private",),
            "left out with vocabulary.kind private",
        ),
        (
            "none: nowhere",
            (),
            "must have a word of the vocabulary, got topic='none'",
        ),
    ):
        seed = ("--seed-topic", given)
        assert rule in fit(folder, tmp_path, *seed, *words, words=not words, code=78)
        assert not (tmp_path / "L").exists()
