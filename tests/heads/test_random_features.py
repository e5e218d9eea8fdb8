"""Random features: what a seed draws, and what is shared."""

import gc
import weakref

import numpy as np
import pytest
import torch

from safecl.heads.random_features import RandomFeatures
from safecl.heads.reading import Reading
from safecl.randomness import derive

WIDTH = 12


def test_the_projection_comes_from_the_seed_and_is_not_stored() -> None:
    three, again, four = (RandomFeatures(WIDTH, 20, seed) for seed in (3, 3, 4))
    assert torch.equal(three.projection, again.projection)
    assert not torch.equal(three.projection, four.projection)
    assert not three.state_dict()
    many = RandomFeatures(20, 5000).projection
    assert abs(float(many.mean())) < 0.02 and abs(float(many.std()) - 1) < 0.02


def test_the_projection_is_that_of_numpys_frozen_generator() -> None:
    random = np.random.RandomState(derive(3, "projection", WIDTH, 7))
    whole = random.standard_normal((WIDTH, 7)).astype(np.float32)
    assert np.array_equal(RandomFeatures(WIDTH, 7, seed=3).projection, whole)


def test_projections_of_different_shapes_share_no_numbers() -> None:
    one = RandomFeatures(WIDTH, 20).projection
    for other in (RandomFeatures(2 * WIDTH, 20), RandomFeatures(WIDTH, 30)):
        assert not np.isin(one.numpy(), other.projection.numpy()).any()


def test_one_projection_is_shared_for_as_long_as_somebody_has_it() -> None:
    one = RandomFeatures(WIDTH, 20, seed=9)
    other = RandomFeatures(WIDTH, 20, seed=9)
    assert one.projection.data_ptr() == other.projection.data_ptr()
    shared = weakref.ref(one.projection)
    del one, other
    gc.collect()
    assert shared() is None


@pytest.mark.parametrize("size", [30, None], ids=["projected", "as they are"])
@pytest.mark.parametrize("mirror", [False, True])
def test_a_picture_has_a_row_for_each_view(size: int | None, mirror: bool) -> None:
    reading = Reading(2, mirror=mirror)
    features = torch.randn(5, reading.views * 2 * WIDTH)
    project = RandomFeatures(WIDTH, size)
    project.read(reading)
    views = features.reshape(-1, 2 * WIDTH)
    wanted = views if size is None else (views @ project.projection).relu()
    assert project.size == wanted.shape[1]
    torch.testing.assert_close(project(features), wanted)
    torch.testing.assert_close(project.kernel(features), wanted @ wanted.T)
