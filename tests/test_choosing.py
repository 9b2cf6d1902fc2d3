"""Numbers of topics, compared on documents that no fit has seen, and their coherence."""

import csv
import json
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.data import coherence
from streamlda import StreamLDA, choose_topics
from streamlda.choosing import _split
from streamlda.documents import DocumentBatch
from streamlda.model.evaluation import document_completion
from streamlda.model.inference import SMOOTHING
from streamlda.simulate import PlantedLDA
from streamlda.stream.vocabulary_choice import VocabularyLearner
from tests.cli.conftest import refused, run

LEARNER = VocabularyLearner.by(None, 10)


@pytest.fixture(scope="module")
def X():
    return PlantedLDA(4, 80, mean_length=40, alpha_0=0.5, seed=3).documents(1500).to_csr()


def test_all_numbers_are_judged_on_the_same_documents_that_no_fit_saw(X):
    choice = choose_topics(X, [8, 2, 4])
    fitted, held_out = _split(X, LEARNER, 0.1, 0)
    assert [each.topics for each in choice.tried] == [2, 4, 8]
    assert (choice.documents, choice.held_out_documents) == (len(fitted), len(held_out))
    assert 100 < len(held_out) < 200
    assert len(fitted) + len(held_out) == X.shape[0]
    for each in choice.tried:
        model = StreamLDA(each.topics, random_state=0).fit(fitted.to_csr()).to_model()
        wanted = document_completion(
            held_out, model.components, model.alpha, model.background, smoothing=SMOOTHING
        )
        assert each.perplexity == wanted.perplexity
        assert choice.held_out_tokens == wanted.held_out_tokens
        assert choice.unigram_perplexity == wanted.unigram_perplexity
        # In few documents pairs of words never meet, and many topics look worse than they are.
        assert each.npmi == model.coherence(X).mean
        assert each.cpu_seconds > 0
    # Two topics are far behind; four are there.
    two, four, _ = choice.tried
    assert two.behind > 5 * two.behind_error > 0
    best = min(each.perplexity for each in choice.tried)
    assert two.behind == pytest.approx(np.log(two.perplexity / best))
    assert choice.fewest == 4
    assert four.perplexity < choice.unigram_perplexity


def test_equal_documents_are_on_one_side_and_words_are_of_the_fitted():
    texts = [f"alpha{n % 90} beta gamma{n % 90} delta" for n in range(900)]
    fitted, held_out = _split(texts, LEARNER, 0.2, 0)
    sides = [{row.tobytes() for row in side.to_csr().toarray()} for side in (fitted, held_out)]
    assert len(fitted) + len(held_out) == 900
    assert len(fitted) % 10 == 0 == len(held_out) % 10
    assert len(sides[1]) == 1
    again = _split(texts, LEARNER, 0.2, 1)[1]
    assert len(again) != len(held_out) or not np.array_equal(again.word_ids, held_out.word_ids)


def test_the_command_writes_a_table_and_a_picture(tmp_path):
    kinds = ("rain storm flood river", "goal league match striker", "law court judge jury")
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(kinds[n % 3].split(), 12)) for n in range(600)]
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
    done = run(
        *("choose-topics", tmp_path / "t.jsonl", "-k", "2,3", "-o", tmp_path / "t.csv"),
        *("--plot", tmp_path / "p.svg", "--held-out", 0.2),
    )
    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["topics"] for row in rows] == ["2", "3"]
    assert float(rows[1]["perplexity"]) < float(rows[0]["perplexity"])
    assert "3 topics are the fewest that predict as well as the best" in done.stderr
    assert f"{float(rows[1]['npmi']):.3f}" in done.stdout
    picture = ElementTree.parse(tmp_path / "p.svg").getroot()
    assert len(picture.findall(".//{*}circle")) == 4
    text = (tmp_path / "p.svg").read_text()
    assert "Perplexity, held out" in text
    assert "href" not in text
    for more, code in ((("-k", "2;3"), 2), (("-k", "3,3"), 78), (("-k", "0"), 78)):
        refused("choose-topics", tmp_path / "t.jsonl", *more, "-o", tmp_path / "x", code=code)
    refused("choose-topics", tmp_path / "t.jsonl", "-o", tmp_path / "t.jsonl", code=78)


def test_fit_model_evaluation_and_benchmark_have_one_npmi():
    planted = PlantedLDA(3, 60, mean_length=30, seed=2)
    X = planted.documents(800).to_csr()
    model = StreamLDA(3, random_state=0).fit(X).to_model()
    found = model.coherence(X)
    assert model.diagnostics["topic_npmi"] == found.per_topic.tolist()
    assert coherence(DocumentBatch.from_matrix(X), model.components)["npmi"] == found.mean
    held_out = model.coherence(planted.documents(500))
    assert held_out.documents == 500
    assert held_out.per_topic.shape == (3,)
    assert 0 < held_out.mean < found.mean + 0.1
