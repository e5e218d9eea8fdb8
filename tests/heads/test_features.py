"""Features kept as bytes: what they were to rounding, class by class."""

import torch
from torch import Tensor

from safecl.heads.features import KeptFeatures
from safecl.randomness import generator


def draw(n: int, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    scale = torch.logspace(-3, 3, n)[:, None]  # pictures of any size
    return scale * torch.randn(n, 12, generator=generator(seed)), torch.arange(n) % classes


def made(*batches: tuple[Tensor, Tensor]) -> KeptFeatures:
    found = KeptFeatures(12)
    for batch in batches:
        found.add(*batch)
    return found


def recalled(kept: KeptFeatures) -> tuple[Tensor, Tensor]:
    x, y = (torch.cat(parts) for parts in zip(*kept.recall(), strict=True))
    return x, y


def test_features_are_what_they_were_to_half_a_step() -> None:
    x, y = draw(1500)
    features, targets = recalled(made((x[:700], y[:700]), (x[700:], y[700:])))
    assert torch.equal(targets, y)
    assert bool(((features - x).abs() <= x.abs().amax(dim=1, keepdim=True) / 127 * 0.501).all())


def test_a_picture_takes_a_byte_a_feature_and_eight_more() -> None:
    kept = made(draw(100))
    assert sum(value.nbytes for value in kept.state_dict().values()) == 100 * (12 + 8)


def test_a_feature_of_zeros_stays_one() -> None:
    assert torch.equal(recalled(made((torch.zeros(2, 12), torch.tensor([0, 1]))))[0], torch.zeros(2, 12))


def test_a_class_is_dropped_and_those_after_it_move_up() -> None:
    x, y = draw(30, classes=4)
    kept = made((x, y))
    kept.drop_class(1)
    features, targets = recalled(kept)
    expected, labels = recalled(made((x[y != 1], torch.where(y > 1, y - 1, y)[y != 1])))
    assert torch.equal(features, expected) and torch.equal(targets, labels)


def test_what_another_model_has_learned_since_is_appended_and_can_be_taken_out() -> None:
    common, its, mine = draw(10), draw(8, classes=5, seed=1), draw(6, seed=2)
    own, index = made(common, mine), torch.tensor([0, 1, 2, 4, 3])
    own.merge(made(common, its), made(common), index)
    expected = made(common, mine, (its[0], index[its[1]]))
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in own.state_dict().items())
    own.remove(*its)
    expected = made(common, mine)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in own.state_dict().items())


def test_a_state_brings_its_own_pictures() -> None:
    one, other = made(draw(9)), made(draw(4))
    other.load_state_dict(one.state_dict())
    assert other.pictures == 9 and torch.equal(recalled(one)[0], recalled(other)[0])
