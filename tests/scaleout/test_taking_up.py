"""Private fits on a cluster whose client ends: the same command takes up what was paid."""

import pytest

from streamlda.errors import LedgerError, SourceError
from streamlda.privacy.ledger import read_report
from streamlda.private.released import released_model
from streamlda.run.cluster import fit_on_cluster
from streamlda.scaleout import private
from tests.run.cut_short import (
    CutError,
    assert_same,
    draw_known_noise,
    fitted,
    settings_at,
    two_files,
    write,
)
from tests.service.daemon_process import texts


def test_a_fit_that_ends_at_any_release_is_taken_up_here_or_there(cluster, tmp_path, monkeypatch):
    """By the cluster or by one process, with the topics of one process and one charge."""
    data = two_files(tmp_path)
    address = {"cluster.dask": cluster.scheduler_address, "cluster.shards": 3}
    there = {"way": fit_on_cluster}, address
    here = {}, {}
    settings = settings_at(tmp_path / "whole", data, "hashed")
    with monkeypatch.context() as patch:
        drawn = draw_known_noise(patch)
        model, _ = fitted(settings)
    turns = [(1, there), (3, here), (4, there), (6, there), (None, there)]
    noise = []
    for cut, (way, flags) in turns:
        settings = settings_at(tmp_path / "turns", data, "hashed", **flags)
        with monkeypatch.context() as patch:
            part = draw_known_noise(patch, cut)
            if cut is None:
                again, said = fitted(settings, **way)
            else:
                with pytest.raises(CutError):
                    fitted(settings, **way)
        noise += part
    assert "releases=6 are taken up, not paid again" in said[0]
    assert noise == drawn
    assert_same(again, model)
    assert_same(again, released_model(settings.privacy.ledger))
    with pytest.raises(LedgerError, match="documents must not be in two releases"):
        fitted(settings, way=fit_on_cluster)
    assert read_report(settings.privacy.ledger)["generation"] == len(drawn)


@pytest.mark.parametrize("grown", ["before", "between"])
def test_a_file_that_grows_meanwhile_is_refused_before_anything_is_paid(
    cluster, tmp_path, monkeypatch, grown
):
    """The attack: workers summed other records than the ledger noted, which were free to spend."""
    data, documents = two_files(tmp_path), texts(560)
    flags = {"cluster.dask": cluster.scheduler_address, "cluster.shards": 2}
    settings = settings_at(tmp_path / "run", data, "hashed", **flags)

    def grow():
        write(data / "b.jsonl", [*documents[:200], *documents[460:]])

    counted = private.row_counts

    def count(*arguments):
        found = counted(*arguments)
        grow()
        return found

    if grown == "between":
        monkeypatch.setattr(private, "row_counts", count)
    begin = grow if grown == "before" else lambda: None
    with pytest.raises(SourceError, match="files must not change while a cluster reads them"):
        fit_on_cluster(settings, on_opened=begin)
    assert read_report(settings.privacy.ledger)["generation"] == 0
