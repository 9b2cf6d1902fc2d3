"""The flow graph as data: cuts, and which configurations are proven."""

import ast
from pathlib import Path

import pytest

import streamlda
from streamlda.errors import InvalidSettingError
from streamlda.papers.dplda.flow import (
    CONFIGURATIONS,
    DOCUMENTS,
    EDGES,
    NODES,
    OUTPUT,
    Configuration,
    configuration,
    is_cut,
)


def test_graph_is_that_of_the_paper():
    assert list(EDGES) == [f"e{i}" for i in range(10)]
    assert {edge.source for edge in EDGES.values()} == set(NODES) - {OUTPUT}
    assert {edge.target for edge in EDGES.values()} == set(NODES) - {DOCUMENTS}
    order = list(NODES)
    assert all(order.index(e.source) < order.index(e.target) for e in EDGES.values())


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_are_minimal_cuts(name):
    edges = CONFIGURATIONS[name].edges
    assert is_cut(edges)
    for left_out in edges:
        assert not is_cut(set(edges) - {left_out})
    assert all(EDGES[edge].sensitivity is not None for edge in edges)


def test_what_is_no_cut_is_told():
    assert not is_cut(("e0", "e2"))  # the paper's own example
    assert not is_cut(())
    assert is_cut(("e0", "e1"))
    with pytest.raises(InvalidSettingError, match=r"got unknown=\['e10'\]"):
        is_cut(("e9", "e10"))


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


def test_a_configuration_has_a_name():
    assert configuration(1) is CONFIGURATIONS["1"]
    with pytest.raises(InvalidSettingError, match="configuration='5'; take 1, the only one"):
        configuration("5")


def test_the_engine_never_uses_published_systems():
    root = Path(streamlda.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        if "papers" in path.relative_to(root).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            names.append(str(getattr(node, "module", "")))
            found += [path.name for name in names if "streamlda.papers" in name]
    assert found == []
