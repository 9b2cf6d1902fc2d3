"""Scenarios of streams that change: a learner that does not follow is seen."""

from bench import prequential
from bench.scenarios import BY_ID
from tests.bench.results import measured_by, result_of


def figures(name, label, parameters):
    scenario = BY_ID[name]
    (case,) = (case for case in scenario.cases(True, ()) if case.label == label)
    case = case._replace(parameters=case.parameters | parameters)
    result = result_of(name, [case], measured_by(case.task, case.parameters))
    return {figure.name: figure for figure in scenario.figures(result)}


def test_a_turn_is_followed_and_a_learner_that_stands_still_is_seen(monkeypatch):
    size = {"documents": [21_000, 2000]}
    followed = figures("turn-planted", "streamlda", size)
    there = "perplexity 2,000 documents after the turn / a new fit on them"
    back = "perplexity 2,000 documents after the way back / a new fit on them"
    assert followed[there].met
    assert followed[back].met
    made = prequential.streamlda

    def standing(*sizes):
        online, learned = made(*sizes), [0]

        def learn(rows):
            learned[0] += rows.shape[0]
            if learned[0] <= 21_000:
                online.learn(rows)

        return online._replace(learn=learn)

    monkeypatch.setitem(prequential.LEARNERS, "streamlda", standing)
    assert figures("turn-planted", "streamlda", size)[there].met is False


def test_a_theme_is_found_and_its_own_documents_are_counted():
    found = figures("new-theme", "10%", {"documents": 21_000})
    own = float(found["worst seed, 10%"].measured.replace(",", ""))
    # Whole blocks of 1,000 with a tenth each, by 500 at the latest.
    assert 50 < own <= 500
