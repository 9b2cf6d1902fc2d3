"""Places of circles on a map."""

import numpy as np
import pytest

from streamlda.model.hierarchy import flat_map
from streamlda.report.charts import spread


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def test_a_flat_map_of_flat_points_keeps_their_distances():
    flat = distances(np.random.default_rng(0).normal(size=(12, 2)))
    places, explained = flat_map(flat)
    np.testing.assert_allclose(distances(places), flat, atol=1e-9)
    assert sum(explained) == pytest.approx(1)
    np.testing.assert_allclose(explained, (places**2).sum(axis=0) / (places**2).sum())
    np.testing.assert_array_equal(places, flat_map(flat)[0])
    assert flat_map(distances(np.random.default_rng(1).normal(size=(12, 6))))[1][0] < 0.9
    assert flat_map(np.zeros((1, 1)))[1].tolist() == [0.0, 0.0]


def test_circles_do_not_cover_each_other_and_stay_inside():
    radii = np.linspace(10, 40, 9)
    for positions in (np.zeros((9, 2)), np.random.default_rng(0).normal(size=(9, 2))):
        at = spread(positions, radii, 640, 460)
        apart = distances(at) + np.eye(9) * 1e9
        assert (apart - radii[:, None] - radii[None]).min() > 0
        assert (at - radii[:, None]).min() >= 0
        assert (np.array([640, 460]) - at - radii[:, None]).min() >= 0
