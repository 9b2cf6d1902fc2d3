"""Documents of a topic: a small run of daemons that share it, and how its figures are judged."""

from bench.measure import run_child
from bench.scenarios import BY_ID
from tests.bench.results import MACHINE, made_up, result_of

ALONE, GROUP = BY_ID["kafka-throughput"], BY_ID["kafka-group"]


def judged(cores, **measured):
    """Return figures of turns in which a document took so long: by processors, and by the clock."""
    given = {f"{what} {clock}": [1.0] for what in ("one", "group") for clock in ("cpu", "wall")}
    given |= {name.replace("_", " "): seconds for name, seconds in measured.items()}
    result = made_up(GROUP.id, given) | {"machine": {**MACHINE, "cores": cores}}
    return GROUP.figures(result)[:2]


def test_daemons_that_share_a_topic_are_judged_turn_by_turn_and_by_the_cores_there_are():
    # The median of 1.1, 1.2 and 1.0, and not of what each took.
    cost, rate = judged(2, one_cpu=[1.0, 2.0, 3.0], group_cpu=[1.1, 2.4, 3.0])
    assert (cost.measured, cost.met) == ("1.100", True)
    assert (rate.measured, rate.target, rate.met) == ("1.00", "-", None)
    assert judged(2, group_cpu=[1.16])[0].met is False
    for seconds, met in ((0.5, False), (0.4, True)):
        rate = judged(6, group_wall=[seconds])[1]
        assert (rate.measured, rate.met) == (f"{1 / seconds:.2f}", met)


def test_a_small_run_of_one_daemon_beside_bare_loops():
    cases = ALONE.cases(True, ())
    measured = run_child(cases[0].task, cases[0].parameters, {}, 0)
    rate, *_ = ALONE.figures(result_of(ALONE.id, cases, measured))
    assert rate.measured == f"{1 / measured['daemon kafka-python cpu'][0]:,.0f}"
    assert ALONE.details(result_of(ALONE.id, cases, measured))
