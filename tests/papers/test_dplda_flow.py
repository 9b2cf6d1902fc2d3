"""The flow graph as data: cuts, and which configurations are proven."""

from graphlib import TopologicalSorter

import pytest

from streamlda.papers.dplda.flow import (
    CONFIGURATIONS,
    DOCUMENTS,
    EDGES,
    OUTPUT,
    Configuration,
    configuration,
    is_cut,
)


def test_graph_is_that_of_the_paper():
    assert list(EDGES) == [f"e{i}" for i in range(10)]
    sources, targets = ({getattr(e, end) for e in EDGES.values()} for end in ("source", "target"))
    assert sources - targets == {DOCUMENTS}
    assert targets - sources == {OUTPUT}
    graph = {node: {e.source for e in EDGES.values() if e.target == node} for node in targets}
    assert len(list(TopologicalSorter(graph).static_order())) == 9
    assert configuration(1) is CONFIGURATIONS["1"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_are_minimal_cuts(name):
    edges = CONFIGURATIONS[name].edges
    assert is_cut(edges)
    for left_out in edges:
        assert not is_cut(set(edges) - {left_out})
    assert all(EDGES[edge].sensitivity is not None for edge in edges)


def test_what_is_no_cut_is_found():
    assert not is_cut(("e0", "e2"))  # the paper's own example
    assert not is_cut(())
    assert is_cut(("e0", "e1"))


def test_only_configuration_1_is_proven():
    assert [name for name, found in CONFIGURATIONS.items() if found.proven] == ["1"]
    for name, expected in {"2": ["Theorem 5"], "3": ["Theorem 6", "Lemma 9"]}.items():
        claims = " ".join(CONFIGURATIONS[name].open_claims)
        assert all(claim in claims for claim in expected)
    assert "Theorem 7" in CONFIGURATIONS["4"].open_claims[0]
    for edge in EDGES.values():
        if edge.sensitivity is not None:
            assert edge.sensitivity.proven == (edge.sensitivity.reason == "")
            assert edge.sensitivity.proven == (edge.sensitivity.scope == "global")


def test_one_open_reason_is_enough_to_be_unproven():
    assert Configuration("x", ("e2", "e3", "e5"), ()).proven
    assert not Configuration("x", ("e2", "e3", "e5"), (), ("open",)).proven
    assert not Configuration("x", ("e9",), ()).proven
