"""The linear head: blocks of classes, one a session that brings new ones, and a state that brings
its own blocks.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from safecl.heads.linear import LinearHead
from safecl.randomness import generator

KINDS: dict[str, dict[str, float]] = {"biased": {}, "cosine": {"cosine": 20.0}}


def head_of(*sizes: int, width: int = 6, **options: float) -> LinearHead:
    """A head with blocks of these sizes, every weight of it random."""
    head = LinearHead(width, **options)  # type: ignore[arg-type]
    for number, size in enumerate(sizes):
        head.grow(size, generator(0, "head", number))
    random = generator(1)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += torch.randn(parameter.shape, generator=random)
    return head


def weights(head: LinearHead) -> np.ndarray:
    return np.concatenate([block.detach().double().numpy() for block in head.weights])


@pytest.fixture
def features() -> Tensor:
    return torch.randn(5, 6, generator=generator(2))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_all_blocks_in_class_order(kind: str, features: Tensor) -> None:
    head = head_of(3, 1, 2, **KINDS[kind])
    f = features.double().numpy()
    w = weights(head)
    if kind == "cosine":
        f, w = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (f, w))
        expected = 20 * f @ w.T
    else:
        biases = [block.detach().double().numpy() for block in head.biases]
        expected = f @ w.T + np.concatenate(biases)
    assert np.allclose(head(features).detach(), expected, atol=1e-5)
    assert head.classes == 6 and head.sizes == [3, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_head_knows_no_class(kind: str, features: Tensor) -> None:
    head = LinearHead(6, **KINDS[kind])  # type: ignore[arg-type]
    assert head(features).shape == (5, 0) and head.classes == 0 and head.sizes == []


def test_a_fresh_block_is_drawn_from_its_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (LinearHead(100) for _ in range(3))
    for head, seed in ((one, 0), (same, 0), (other, 1)):
        head.grow(200, generator(seed, "head"))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.weights[0], same.weights[0]) and not torch.equal(
        one.weights[0], other.weights[0]
    )
    drawn = one.weights[0].detach()
    assert float(drawn.std()) == pytest.approx(0.02, rel=0.02) and abs(float(drawn.mean())) < 1e-3
    assert not one.biases[0].any()


def test_growing_keeps_the_old_blocks_to_the_bit(features: Tensor) -> None:
    head = head_of(3, 2)
    logits = head(features)
    old = list(head.parameters())
    values = [parameter.detach().clone() for parameter in old]
    head.grow(4, generator(0, "head", 2))
    kept = [*head.weights[:2], *head.biases[:2]]
    assert all(
        one is other and torch.equal(one, was)
        for one, other, was in zip(old, kept, values, strict=True)
    )
    assert torch.allclose(head(features)[:, :5], logits, atol=1e-6)


def test_a_session_without_new_classes_adds_no_block() -> None:
    head = head_of(3)
    head.grow(0, generator(0, "head", 1))
    assert head.sizes == [3]


def test_the_block_of_a_class_follows_its_first_appearance() -> None:
    head = head_of(3, 1, 2)
    assert [head.block_of(c) for c in range(6)] == [0, 0, 0, 1, 2, 2]


@pytest.mark.parametrize(
    "blocks, expected", [([2], [2]), ([-1], [2]), ([0, 1], [0, 1]), ([], []), (range(3), [0, 1, 2])]
)
def test_only_the_chosen_blocks_are_trained(
    blocks: list[int], expected: list[int], features: Tensor
) -> None:
    head = head_of(3, 1, 2)
    head.train_only([0])
    head.train_only(blocks)
    for parameters in (head.weights, head.biases):
        assert [i for i, parameter in enumerate(parameters) if parameter.requires_grad] == expected
    if expected:
        head(features).square().sum().backward()
        assert [i for i, weight in enumerate(head.weights) if weight.grad is not None] == expected


def test_a_block_that_does_not_exist_cannot_be_trained() -> None:
    with pytest.raises(IndexError):
        head_of(3, 1).train_only([2])


def test_a_new_block_is_trainable_where_the_old_ones_are_not() -> None:
    head = head_of(3)
    head.train_only([])
    head.grow(2, generator(0))
    assert [weight.requires_grad for weight in head.weights] == [False, True]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("there", [(), (3,), (3, 1, 2)])
def test_a_state_brings_its_own_blocks(kind: str, there: tuple[int, ...], features: Tensor) -> None:
    full = head_of(3, 1, 2, **KINDS[kind])
    other = head_of(*there, **KINDS[kind])
    state = {f"head.{key}": value for key, value in full.state_dict().items()}
    torch.nn.ModuleDict({"head": other}).load_state_dict(state)
    assert other.sizes == [3, 1, 2] and torch.equal(other(features), full(features))
    with torch.no_grad():
        full.weights[0].zero_()
    assert other.weights[0].any()  # a copy
    assert all(parameter.requires_grad for parameter in other.parameters())


@pytest.mark.parametrize("there", [(3, 1, 2, 1), (2, 1)])
def test_a_state_with_fewer_or_other_blocks_is_refused(there: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match=r"Missing key|size mismatch"):
        head_of(*there).load_state_dict(head_of(3, 1, 2).state_dict())


def test_loading_keeps_which_blocks_are_trained_and_the_parameters_an_optimiser_holds() -> None:
    head = head_of(3, 1)
    head.train_only([1])
    held = list(head.parameters())
    head.load_state_dict(head_of(3, 1, 2).state_dict())
    assert [weight.requires_grad for weight in head.weights] == [False, True, True]
    assert {id(p) for p in held} < {id(p) for p in head.parameters()}


def test_a_double_head_stays_one() -> None:
    head = head_of(3).double()
    head.grow(2, generator(0))
    head.load_state_dict(head_of(3, 2, 1).state_dict())
    for _ in range(6):
        head.drop_class(0)
    head.load_state_dict(head_of(3, 2, 1).state_dict())
    assert [parameter.dtype for parameter in head.parameters()] == [torch.float64] * 6
    assert head(torch.randn(2, 6, dtype=torch.float64)).dtype == torch.float64
