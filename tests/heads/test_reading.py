"""What ridge heads read of a picture: blocks and patches of one forward pass, and the mirror
image.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import LeftOut, one_of_each
from safecl.heads.reading import PLAIN, Reading, Widths
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.learner import Learner, Reader
from safecl.methods.beyond.readings import choose_reading
from safecl.pet.settings import pet_settings
from safecl.randomness import generator
from tests.conftest import raises

ALL = Reading(3, True, True)
THREE = Widths(5, (5, 5))


@pytest.fixture(scope="module")
def deep(make_backbone: Callable[..., Backbone]) -> Backbone:
    return make_backbone(depth=3)


@pytest.mark.parametrize("kind", ["none", "vpt_deep", "vpt_shallow", "ssf"])
def test_one_pass_gives_the_tokens_of_blocks_and_the_mean_of_patches(
    deep: Backbone, kind: str
) -> None:
    """Against the blocks called one after the other; prompts are no patches."""
    learner = Learner(deep, pet_settings(kind))
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in learner.pet.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
    learner.freeze()
    images = torch.rand(2, 3, deep.size, deep.size, generator=random)
    network = learner._network()
    x = network._pos_embed(network.patch_embed(2 * images - 1))
    outputs = list[Tensor]()
    patches = x.shape[1] - 1
    for block in network.blocks:
        x = block(x)
        outputs.insert(0, x)
    mean = outputs[0][:, 1 : 1 + patches].mean(dim=1)
    expected = torch.cat([network.norm(y) for y in (*(y[:, 0] for y in outputs), mean)], dim=1)
    read = Reader(learner, ALL)
    d = deep.width
    found = read.features(images)
    assert found.shape[1] == 8 * d
    torch.testing.assert_close(found[:, : 4 * d], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[:, 4 * d :], learner.read(images.flip(3), ALL.once))
    assert torch.equal(learner.read(images, PLAIN), learner.features(images))
    for part in (PLAIN, Reading(2, False, True), Reading(1, True)):  # less can be cut out of more
        torch.testing.assert_close(
            deep.widths.of(found, part, ALL), learner.read(images, part), atol=1e-4, rtol=1e-4
        )


def pictures(count: int = 24, width: int = 5) -> tuple[Tensor, Tensor]:
    """Rows of two views (N, 2d), and classes (N,)."""
    random = torch.Generator().manual_seed(0)
    targets = torch.arange(count) % 3
    first = torch.randn(count, width, generator=random) + 2 * torch.eye(width)[targets]
    return (
        torch.cat(
            [first, first + 0.5 * torch.randn(count, width, generator=random)], dim=1
        ).double(),
        targets,
    )


def head_of(features: Tensor, targets: Tensor, **options: Any) -> RidgeHead:
    head = RidgeHead(5, RidgeSettings(size=40, betas=(1e-2,), **options)).double()
    head.read(Reading(mirror=True))
    head.add(features, targets)
    head.solve()
    return head


def test_mirror_images_are_learned_as_pictures_of_their_own_and_not_asked() -> None:
    features, targets = pictures()
    found = head_of(features, targets)
    expected = RidgeHead(5, RidgeSettings(size=40, betas=(1e-2,))).double()
    expected.add(torch.cat([features[:, :5], features[:, 5:]]), targets.repeat(2))
    # and each counts a half
    torch.testing.assert_close(2 * found.statistics.gram, expected.statistics.gram)
    torch.testing.assert_close(2 * found.statistics.sums, expected.statistics.sums)
    assert found.statistics.count == 24 and found.beta == pytest.approx(expected.beta)
    expected.settings = expected.settings.model_copy(
        update={"betas": (2 * expected.beta,), "scale": "absolute"}
    )
    expected.solve()
    torch.testing.assert_close(found.logits(features), expected.logits(features[:, :5]))


@pytest.mark.parametrize("asked", [24, 9], ids=["all", "some"])
def test_a_picture_is_left_out_with_its_mirror_image(asked: int) -> None:
    features, targets = pictures()
    head = head_of(features, targets)
    groups = one_of_each(targets[:asked])
    found = head.logits(features[:asked], LeftOut(targets[:asked], groups))
    for group in groups.unique():
        own = (groups == group).nonzero()[:, 0]
        rest = torch.tensor([i for i in range(len(targets)) if i not in own])
        other = head_of(features[rest], targets[rest], scale="absolute")
        other.settings = head.settings.model_copy(
            update={"betas": (head.beta,), "scale": "absolute"}
        )
        other.solve()
        torch.testing.assert_close(found[own], other.logits(features[own]), atol=1e-8, rtol=1e-8)


def test_errors_are_of_heads_that_know_neither_view_of_a_picture() -> None:
    features, targets = pictures()
    head = head_of(features, targets)
    found = head.leave_one_out(features, targets)
    order = torch.randperm(24, generator=generator(0, "leave-one-out"))
    unit = float(head.project(features).square().sum(dim=1).mean())
    for i, error in zip(order.tolist(), found, strict=True):
        rest = torch.tensor([j for j in range(24) if j != i])
        other = head_of(features[rest], targets[rest])
        other.settings = head.settings.model_copy(
            update={"betas": (1e-2 * unit,), "scale": "absolute"}
        )
        other.solve()
        expected = (other.logits(features[i : i + 1])[0] - torch.eye(3)[targets[i]]).square().sum()
        torch.testing.assert_close(error, expected, atol=1e-6, rtol=1e-4)


def test_corrected_pictures_move_with_their_mirror_images() -> None:
    features, targets = pictures()
    head = head_of(features, targets)
    old = targets[:4]
    new = torch.tensor([1, 1, 2, -1])
    head.correct(features[:4], old, new)
    kept = torch.cat([torch.arange(3), torch.arange(4, 24)])
    expected = head_of(features[kept], torch.cat([new[:3], targets[4:]]))
    torch.testing.assert_close(head.statistics.sums, expected.statistics.sums)
    assert head.statistics.count == expected.statistics.count == 23


def test_a_state_knows_what_is_read() -> None:
    head, plain, twin = (RidgeHead(5, RidgeSettings(size=40)) for _ in range(3))
    head.read(ALL)
    assert head.project.projection.shape == (20, 40)
    for own in (head, plain):
        twin.load_state_dict(own.state_dict())
        assert twin.reading == own.reading
        assert torch.equal(twin.project.projection, own.project.projection)


def test_more_blocks_than_there_are_is_refused() -> None:
    every = RidgeSettings(layers="auto", patches="auto", mirror="auto")
    two = Widths(5, (5,))
    assert len(every.readings(two, True)) == 8
    unmirrored = every.readings(two, False)
    assert len(unmirrored) == 4 and not any(one.mirror for one in unmirrored)
    assert all(one.mirror for one in RidgeSettings(mirror=True).readings(two, False))
    with raises("ridge.layers.range", layers=4, depth=3):
        RidgeSettings(layers=4).readings(THREE, True)


def test_another_summary_that_a_network_does_not_have_is_refused_and_never_tried() -> None:
    none = Widths(5, (4, 3), 0)
    assert not any(one.patches for one in RidgeSettings(patches="auto").readings(none, True))
    with raises("ridge.patches.none"):
        RidgeSettings(patches=True).readings(none, True)


def test_less_is_cut_out_of_more_where_every_stage_has_its_own_width() -> None:
    widths = Widths(3, (2, 4), 1)
    widest = Reading(3, True, True)
    rows = torch.arange(2 * 20.0).reshape(2, 20)  # two views of 3 + 2 + 4 + 1
    assert widths.total(widest) == 10
    found = widths.of(rows, Reading(2, True, True), widest)
    assert found[0].tolist() == [0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 19]
    assert widths.of(rows, Reading(3), widest)[1].tolist() == list(range(20, 29))


def test_what_is_read_has_the_least_error_and_every_projection_is_drawn_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mean of the patches alone tells the classes apart; rows have two views of three blocks
    and that mean.
    """
    random = torch.Generator().manual_seed(0)
    targets = torch.arange(40) % 4
    drawn = list[int]()
    rows = torch.randn(40, 2, 4, 5, generator=random)
    rows[:, :, 3] += 3 * torch.eye(5)[targets][:, None]
    draw = np.random.RandomState
    monkeypatch.setattr(np.random, "RandomState", lambda seed: drawn.append(seed) or draw(seed))
    head = RidgeHead(5, RidgeSettings(size=30))
    train = SimpleNamespace(labels=targets.tolist())
    session: Any = SimpleNamespace(classes=range(4), train=train, only=lambda _: None)
    network: Any = SimpleNamespace(widths=THREE)
    fit: Any = SimpleNamespace(transform=SimpleNamespace(flip=0.5), agree=bool)
    fit.features = lambda *_: (targets, rows.flatten(1))
    choose_reading(head, network, session, fit)
    assert len(drawn) == len(set(drawn)) == 4  # of one to four blocks
    errors = {}
    for option in head.settings.readings(THREE, True):
        twin = RidgeHead(5, RidgeSettings(size=30))
        twin.read(option)
        errors[option] = float(
            twin.leave_one_out(THREE.of(rows.flatten(1), option, ALL), targets).mean()
        )
        if option == head.reading:
            assert torch.equal(twin.project.projection, head.project.projection)
    assert head.reading == min(errors, key=lambda one: errors[one]) and head.reading.patches
