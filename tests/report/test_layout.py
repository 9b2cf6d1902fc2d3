"""Places of circles on a map."""

import numpy as np
import pytest

from streamlda.model.hierarchy import flat_map
from streamlda.report.charts import spread


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def test_a_flat_map_of_flat_points_keeps_their_distances():
    flat = distances(np.random.default_rng(0).normal(size=(12, 2)))
    found = flat_map(flat)
    np.testing.assert_allclose(distances(found.positions), flat, atol=1e-9)
    assert sum(found.explained) == pytest.approx(1)
    spread_of = (flat_map(flat).positions ** 2).sum(axis=0)
    np.testing.assert_allclose(found.explained, spread_of / spread_of.sum())
    np.testing.assert_array_equal(found.positions, flat_map(flat).positions)
    assert flat_map(distances(np.random.default_rng(1).normal(size=(12, 6)))).explained[0] < 0.9
    assert flat_map(np.zeros((1, 1))).explained == (0.0, 0.0)


def test_circles_do_not_cover_each_other_and_stay_inside():
    radii = np.linspace(10, 40, 9)
    for positions in (np.zeros((9, 2)), np.random.default_rng(0).normal(size=(9, 2))):
        at = spread(positions, radii, 640, 460)
        apart = distances(at) + np.eye(9) * 1e9
        assert (apart - radii[:, None] - radii[None]).min() > 0
        assert (at - radii[:, None]).min() >= 0
        assert (np.array([640, 460]) - at - radii[:, None]).min() >= 0
