"""K-means against scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from safecl.heads.kmeans import kmeans


def inertia(features: torch.Tensor, centres: torch.Tensor) -> float:
    return float(torch.cdist(features, centres).amin(dim=1).square().sum())


@pytest.mark.parametrize("seed", range(4))
def test_the_centres_are_as_good_as_scikit_learns(seed: int) -> None:
    random = np.random.default_rng(seed)
    places = random.normal(size=(5, 6)) * 4
    features = torch.tensor(places[random.integers(5, size=80)] + random.normal(size=(80, 6)), dtype=torch.float32)
    found = kmeans(features, 5, torch.Generator().manual_seed(seed))
    reference = KMeans(5, n_init=10, random_state=0).fit(features.numpy())
    assert inertia(features, found) <= 1.01 * reference.inertia_


def test_the_generator_decides_and_fewer_features_than_centres_are_their_own() -> None:
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    one, other = (kmeans(features, 5, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one, other) and one.shape == (5, 4)
    assert inertia(features, one) < 1e-9
    assert kmeans(torch.ones(6, 4), 2, torch.Generator()).eq(1).all()
