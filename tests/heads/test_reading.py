"""What ridge heads read of a picture: blocks and patches of one forward pass, and the mirror image."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.errors import SafeclError
from safecl.heads.leave_one_out import leaving_out, one_of_each
from safecl.heads.reading import PLAIN, Reading
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.learner import Learner, Reader
from safecl.methods.reading import choose_reading
from safecl.pet.settings import pet_settings

ALL = Reading(3, True, True)


@pytest.fixture(scope="module")
def deep(make_backbone: Callable[..., Backbone]) -> Backbone:
    return make_backbone(depth=3)


@pytest.mark.parametrize("kind", ["none", "vpt_deep", "vpt_shallow", "ssf"])
def test_one_pass_gives_the_tokens_of_blocks_and_the_mean_of_patches(deep: Backbone, kind: str) -> None:
    """Against the blocks called one after the other; prompts are no patches."""
    learner, random = Learner(deep, pet_settings(kind)), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in learner.pet.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
    learner.freeze()
    images, network = torch.rand(2, 3, deep.size, deep.size, generator=random), learner._network()
    x, outputs = network._pos_embed(network.patch_embed(2 * images - 1)), list[Tensor]()
    patches = x.shape[1] - 1
    for block in network.blocks:
        x = block(x)
        outputs.insert(0, x)
    mean = outputs[0][:, 1 : 1 + patches].mean(dim=1)
    expected = torch.cat([network.norm(y) for y in (*(y[:, 0] for y in outputs), mean)], dim=1)
    read, d = Reader(learner, ALL), deep.width
    found = read.features(images)
    assert found.shape[1] == 8 * d
    torch.testing.assert_close(found[:, : 4 * d], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[:, 4 * d :], learner.read(images.flip(3), ALL.once))
    assert torch.equal(learner.read(images, PLAIN), learner.features(images))
    for part in (PLAIN, Reading(2, False, True), Reading(1, True)):  # less can be cut out of more
        torch.testing.assert_close(part.of(found, ALL), learner.read(images, part), atol=1e-4, rtol=1e-4)


def pictures(count: int = 24, width: int = 5) -> tuple[Tensor, Tensor]:
    """Rows of two views (N, 2d), and classes (N,)."""
    random, targets = torch.Generator().manual_seed(0), torch.arange(count) % 3
    first = torch.randn(count, width, generator=random) + 2 * torch.eye(width)[targets]
    return torch.cat([first, first + 0.5 * torch.randn(count, width, generator=random)], dim=1).double(), targets


def head_of(features: Tensor, targets: Tensor, **options: Any) -> RidgeHead:
    head = RidgeHead(5, RidgeSettings(size=40, betas=(1e-2,), **options)).double()
    head.read(Reading(mirror=True))
    head.add(features, targets)
    head.solve()
    return head


def test_mirror_images_are_learned_as_pictures_of_their_own_and_not_asked() -> None:
    features, targets = pictures()
    found, expected = head_of(features, targets), RidgeHead(5, RidgeSettings(size=40, betas=(1e-2,))).double()
    expected.add(torch.cat([features[:, :5], features[:, 5:]]), targets.repeat(2))
    torch.testing.assert_close(2 * found.statistics.gram, expected.statistics.gram)  # and each counts a half
    torch.testing.assert_close(2 * found.statistics.sums, expected.statistics.sums)
    assert found.statistics.count == 24 and found.beta == pytest.approx(expected.beta)
    expected.settings = expected.settings.model_copy(update={"betas": (2 * expected.beta,), "scale": "absolute"})
    expected.solve()
    torch.testing.assert_close(found.logits(features), expected.logits(features[:, :5]))


@pytest.mark.parametrize("asked", [24, 9], ids=["all", "some"])
def test_a_picture_is_left_out_with_its_mirror_image(asked: int) -> None:
    features, targets = pictures()
    head = head_of(features, targets)
    groups = one_of_each(targets[:asked])
    with leaving_out(head, targets[:asked], groups):
        found = head.logits(features[:asked])
    for group in groups.unique():
        own = (groups == group).nonzero()[:, 0]
        rest = torch.tensor([i for i in range(len(targets)) if i not in own])
        other = head_of(features[rest], targets[rest], scale="absolute")
        other.settings = head.settings.model_copy(update={"betas": (head.beta,), "scale": "absolute"})
        other.solve()
        torch.testing.assert_close(found[own], other.logits(features[own]), atol=2e-3, rtol=2e-3)


def test_errors_are_of_heads_that_know_neither_view_of_a_picture() -> None:
    features, targets = pictures()
    head = head_of(features, targets)
    found, order = head.leave_one_out(features, targets), head._shuffled(24, None, "leave-one-out")
    unit = float(head.project(head.views(features)).square().sum(dim=1).mean())
    for i, error in zip(order.tolist(), found, strict=True):
        rest = torch.tensor([j for j in range(24) if j != i])
        other = head_of(features[rest], targets[rest])
        other.settings = head.settings.model_copy(update={"betas": (1e-2 * unit,), "scale": "absolute"})
        other.solve()
        expected = (other.logits(features[i : i + 1])[0] - torch.eye(3)[targets[i]]).square().sum()
        torch.testing.assert_close(error, expected, atol=1e-6, rtol=1e-4)


def test_corrected_pictures_move_with_their_mirror_images() -> None:
    features, targets = pictures()
    head, old, new = head_of(features, targets), targets[:4], torch.tensor([1, 1, 2, -1])
    head.correct(features[:4], old, new)
    kept = torch.cat([torch.arange(3), torch.arange(4, 24)])
    expected = head_of(features[kept], torch.cat([new[:3], targets[4:]]))
    torch.testing.assert_close(head.statistics.sums, expected.statistics.sums)
    assert head.statistics.count == expected.statistics.count == 23


def test_a_state_knows_what_is_read() -> None:
    head, plain, twin = (RidgeHead(5, RidgeSettings(size=40)) for _ in range(3))
    head.read(ALL)
    assert head.projection.shape == (20, 40)
    for own in (head, plain):
        twin.load_state_dict(own.state_dict())
        assert twin.reading == own.reading and torch.equal(twin.projection, own.projection)


def test_more_blocks_than_there_are_is_refused() -> None:
    assert len(RidgeSettings(layers="auto", patches="auto", mirror="auto").readings(2, True)) == 8
    unmirrored = RidgeSettings(layers="auto", patches="auto", mirror="auto").readings(2, False)
    assert len(unmirrored) == 4 and not any(one.mirror for one in unmirrored)
    assert all(one.mirror for one in RidgeSettings(mirror=True).readings(2, False))
    with pytest.raises(SafeclError, match=r"ridge\.layers=4: the backbone has 3 blocks"):
        RidgeSettings(layers=4).readings(3, True)


def test_what_is_read_has_the_least_error_and_every_projection_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the patches alone tells the classes apart; rows have two views of three blocks and that mean."""
    random, targets, drawn = torch.Generator().manual_seed(0), torch.arange(40) % 4, list[int]()
    rows = torch.randn(40, 2, 4, 5, generator=random)
    rows[:, :, 3] += 3 * torch.eye(5)[targets][:, None]
    draw = np.random.RandomState
    monkeypatch.setattr(np.random, "RandomState", lambda seed: drawn.append(seed) or draw(seed))
    head = RidgeHead(5, RidgeSettings(size=30))
    train = SimpleNamespace(labels=targets.tolist())
    session: Any = SimpleNamespace(classes=range(4), train=train, only=lambda _: None)
    network: Any = SimpleNamespace(vit=SimpleNamespace(blocks=range(3)))
    fit: Any = SimpleNamespace(transform=SimpleNamespace(flip=0.5), agree=bool)
    fit.features = lambda *_: (targets, rows.flatten(1))
    choose_reading(head, network, session, fit)
    assert len(drawn) == len(set(drawn)) == 4  # of one to four blocks
    errors = {}
    for option in head.settings.readings(3, True):
        twin = RidgeHead(5, RidgeSettings(size=30))
        twin.read(option)
        errors[option] = float(twin.leave_one_out(option.of(rows.flatten(1), ALL), targets).mean())
        if option == head.reading:
            assert torch.equal(twin.projection, head.projection)
    assert head.reading == min(errors, key=lambda one: errors[one]) and head.reading.patches
