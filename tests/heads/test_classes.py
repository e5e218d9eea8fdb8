"""Heads lose a class, or take over what another head has observed since the two were the same."""

import copy

import pytest
import torch
from torch import Tensor

from safecl.heads.cosine import CosineHead
from safecl.heads.left_out import LeftOut, one_of_each
from safecl.heads.linear import LinearHead
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings

RANDOM = torch.Generator().manual_seed(0)
FEATURES = torch.randn(40, 6, generator=RANDOM)
TARGETS = torch.arange(40) % 5


def ridge(features: Tensor = FEATURES, targets: Tensor = TARGETS) -> RidgeHead:
    head = RidgeHead(6, RidgeSettings(size=30, betas=(0.1,)))
    head.add(features, targets)
    head.solve()
    return head


def cosine(features: Tensor = FEATURES, targets: Tensor = TARGETS) -> CosineHead:
    head = CosineHead(6)
    head.observe(features, targets)
    head.imprint()
    return head


@pytest.mark.parametrize("gone", [0, 2, 4])
def test_a_dropped_class_leaves_the_logits_of_the_others(gone: int) -> None:
    linear = LinearHead(6)
    for count in (2, 1, 2):
        linear.grow(count, RANDOM)
    rest = [c for c in range(5) if c != gone]
    for head, ask in (
        (ridge(), RidgeHead.logits),
        (cosine(), CosineHead.forward),
        (linear, LinearHead.forward),
    ):
        before = ask(head, FEATURES)  # type: ignore[arg-type]
        head.drop_class(gone)
        assert torch.allclose(ask(head, FEATURES), before[:, rest])  # type: ignore[arg-type]


def test_what_was_observed_apart_is_added_whatever_the_order_of_classes() -> None:
    """One head goes on with class 3, the other with classes 4 and 1, which have other numbers
    there.
    """
    shared = TARGETS < 3
    first, third, last = (FEATURES[rows] for rows in (shared, TARGETS == 3, TARGETS == 4))
    for make in (ridge, cosine):
        base = make(first, TARGETS[shared])
        one = copy.deepcopy(base)
        other = copy.deepcopy(base)
        index = torch.tensor([0, 1, 2, 4])  # class 3 of the other head is class 4 here
        if isinstance(base, RidgeHead):
            one.add(third, torch.full((8,), 3))
            other.add(last, torch.full((8,), 3))
            one.statistics.merge(other.statistics, base.statistics, index)
            one.merge(other, base, index)
            one.solve()
            assert torch.allclose(one.logits(FEATURES), ridge().logits(FEATURES), atol=1e-4)
            assert int(one.statistics.count) == 40
        else:
            one.observe(third, torch.full((8,), 3))
            other.observe(last, torch.full((8,), 3))
            one.merge(other, base, index)
            one.imprint()
            assert torch.allclose(one(FEATURES), cosine()(FEATURES), atol=1e-5)


def test_a_centroid_without_a_picture_is_the_mean_of_the_others() -> None:
    head = cosine()
    found = head(FEATURES, LeftOut(TARGETS, one_of_each(TARGETS)))
    for i in range(3):
        rest = torch.arange(40) != i
        wanted = cosine(FEATURES[rest], TARGETS[rest])(FEATURES[i : i + 1])
        assert torch.allclose(found[i, TARGETS[i]], wanted[0, TARGETS[i]], atol=1e-5)
    assert torch.equal(head(FEATURES), cosine()(FEATURES))


def test_a_group_holds_at_most_one_picture_of_a_class() -> None:
    targets = torch.tensor([2, 0, 0, 2, 1, 0])
    assert one_of_each(targets).tolist() == [0, 0, 1, 1, 0, 2]
