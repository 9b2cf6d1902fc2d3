"""Documents of a topic: a small run of a daemon."""

from bench.measure import run_child
from bench.scenarios import BY_ID
from tests.bench.results import result_of

ALONE = BY_ID["kafka-throughput"]


def test_a_small_run_of_one_daemon_beside_bare_loops():
    cases = ALONE.cases(True, ())
    measured = run_child(cases[0].task, cases[0].parameters, {}, 0)
    rate, *_ = ALONE.figures(result_of(ALONE.id, cases, measured))
    assert rate.measured == f"{1 / measured['daemon kafka-python cpu'][0]:,.0f}"
    assert ALONE.details(result_of(ALONE.id, cases, measured))
