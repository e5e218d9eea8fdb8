"""An auxiliary loss that may not pull harder than its share of the main one."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from safecl.losses import limited


def gradient(loss: Tensor, features: Tensor) -> Tensor:
    return torch.autograd.grad(loss, features, retain_graph=True)[0]


@given(st.integers(0, 2**31), st.floats(1e-3, 10), st.floats(1e-4, 1e4))
def test_the_term_pulls_as_it_does_but_never_with_more_than_its_share(
    seed: int, share: float, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    main = (features @ torch.randn(6, generator=generator, dtype=torch.float64)).exp().mean()
    term = (
        scale
        * (features - torch.randn(4, 6, generator=generator, dtype=torch.float64)).pow(4).mean()
    )
    held = limited(term, main, features, share)
    free = gradient(term, features)
    pull = gradient(held, features)
    push = gradient(main, features)
    assert torch.allclose(pull.norm(), torch.minimum(free.norm(), share * push.norm()), rtol=1e-9)
    assert torch.allclose(pull / pull.norm(), free / free.norm(), atol=1e-9)
    assert torch.allclose(held / term, pull.norm() / free.norm(), rtol=1e-9)


def test_a_term_within_its_share_is_left_as_it_is() -> None:
    features = torch.ones(3, 4, requires_grad=True)
    term = 1e-3 * features.square().sum()
    assert torch.equal(limited(term, features.pow(4).sum(), features, 0.5), term)


def test_the_scale_is_a_constant_to_the_optimiser() -> None:
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    main = features.square().sum()
    term = features.pow(4).sum()
    held = limited(term, main, features, 0.1)
    ratio = (held / term).detach()
    assert ratio < 1
    assert torch.allclose(gradient(held, features), ratio * gradient(term, features), rtol=1e-5)


def test_a_term_that_cannot_pull_stays_finite() -> None:
    features = torch.ones(3, 4, requires_grad=True)
    main = features.square().sum()
    met = (features - 1).square().sum()
    flat = 1 + 0 * features.sum()  # the same wherever the features are
    for term in (met, flat):
        held = limited(term, main, features, 0.5)
        assert torch.equal(held, term) and not gradient(held, features).any()


def test_a_term_without_a_graph_stays_as_it_is() -> None:
    term = torch.tensor(3.0)
    assert limited(term, torch.ones(()), torch.ones(2, 2), 0.5) is term
