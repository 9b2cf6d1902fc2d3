"""Where circles and labels of a map stand."""

import numpy as np
import pytest

from streamlda.model.hierarchy import flat_map
from streamlda.report.charts import place_labels, spread


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


def test_labels_cover_nothing_and_stay_inside():
    draw = np.random.default_rng(3)
    at = spread(draw.normal(size=(30, 2)), radii := draw.uniform(10, 40, 30), 640, 460)
    named = [("alpha", "be" * i, "gamma") for i in range(30)]
    size = 12.0
    labels = place_labels(at, radii, named, size, 640, 460)
    placed = [label for label in labels if label is not None]
    assert len(placed) > 15
    boxes = []
    for label in placed:
        half = 0.5 * size * 0.56 * len(label.text)
        boxes.append((label.x - half, label.y - 0.8 * size, label.x + half, label.y + 0.3 * size))
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert min(left, top, 640 - right, 460 - bottom) >= 0
        nearest = np.clip(at, [left, top], [right, bottom])
        assert (np.linalg.norm(at - nearest, axis=1) > radii - 1e-9).all()
        for other in boxes[:i]:
            assert left > other[2] or right < other[0] or top > other[3] or bottom < other[1]
    # Words are left out where there is no room, longer ones are cut.
    assert all(label.text.split()[0] == "alpha" for label in placed)
    assert max(len(word) for label in placed for word in label.text.split()) == 16
