"""Numbers that are sent: as printed, as the blocks of a release hold them, and as the page says."""

import re

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError
from streamlda.papers.imtiaz_sarwate.communication import ALGORITHMS, communication_cost
from streamlda.papers.imtiaz_sarwate.promise import Promise
from streamlda.papers.imtiaz_sarwate.simulated import SimulatedSites
from streamlda.papers.imtiaz_sarwate.single_topic import pair_blocks, triple_block
from streamlda.papers.imtiaz_sarwate.vector_moments import clipped, packed_second, second_block
from tests.papers.test_pages import PAGE


@pytest.mark.parametrize(("S", "D", "K", "R"), [(2, 3, 1, 2), (5, 50, 10, 20), (10, 7, 7, 7)])
def test_totals_are_those_of_the_paper(S, D, K, R):
    total = {name: sum(communication_cost(name, S, D, K, R)) for name in ALGORITHMS}
    assert total["capePCA"] == 3 * S * D**2
    assert total["capeAGN"] == 3 * S * D**2 + 2 * S * D**3 + S * D * K + S * K**3
    # A partial square root saves S D (D - R) of what sites send.
    cape = communication_cost("capePCA", S, D, K)
    assert cape.sites - total["DPdisPCA"] == S * D * (D - R)


def test_with_masks_sites_send_what_is_released():
    S, D, K = 3, 6, 2
    rng = np.random.default_rng(0)
    sites = [clipped(rng.standard_normal((50, D)), 1.0) for _ in range(S)]
    network = SimulatedSites([50] * S, Promise(1.0, 1e-5))
    sums = [{"second": packed_second(site)} for site in sites]
    shares, _ = network.shares(sums, [second_block(D, 1.0)])
    sent = sum(share.sent["second"].size for share in shares)
    assert communication_cost("capePCA", S, D, K, masks=True) == (0, 0, sent)
    blocks = [*pair_blocks(D), triple_block(np.eye(D, K))]
    cells = sum(int(np.prod(block.shape)) for block in blocks)
    assert communication_cost("capeAGN", S, D, K, masks=True) == (0, S * D * K, S * cells)


def test_the_table_of_the_page_is_that_of_the_function():
    rows = re.findall(r"^\| (\w+)(, masks)? \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.M)
    assert [name for name, *_ in rows] == ["capePCA", "capePCA", "DPdisPCA", "capeAGN", "capeAGN"]
    for name, masks, *numbers in rows:
        found = communication_cost(name, 5, 50, 10, masks=bool(masks))
        assert [f"{number:,}" for number in found] == numbers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("PCA", 5, 50, 10), "algorithm='PCA'"),
        (("capePCA", 1, 50, 10), "n_sites=1"),
        (("capePCA", 5, 50, 51), "n_components=51"),
        (("DPdisPCA", 5, 50, 10, 9), "n_intermediate=9"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(InvalidSettingError, match=message):
        communication_cost(*arguments)
