"""Which pictures judge, and what heads answer to them as if they had been left out."""

import pytest
import torch
from torch import Tensor

from safecl.heads.gram import movement
from safecl.heads.left_out import (
    MAX_JUDGING_PICTURES,
    MIN_JUDGING_PICTURES,
    LeftOut,
    judges,
    one_of_each,
)
from safecl.heads.reading import Reading
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings


@pytest.mark.parametrize(
    "targets",
    [[0] * 20, [0] * 20 + [1], list(range(8)), [0, 1] * (MIN_JUDGING_PICTURES // 2 - 1) + [2, 3]],
    ids=["one class", "a class of one picture", "classes of one picture", "few pictures"],
)
def test_with_too_little_to_ask_there_are_none(targets: list[int]) -> None:
    assert not len(judges(torch.tensor(targets), MAX_JUDGING_PICTURES))


@pytest.mark.parametrize(
    ("targets", "each"),
    [
        (torch.arange(8).repeat_interleave(MAX_JUDGING_PICTURES // 8), MAX_JUDGING_PICTURES // 8),
        (torch.arange(8).repeat_interleave(MAX_JUDGING_PICTURES), MAX_JUDGING_PICTURES // 8),
        (torch.arange(8).repeat(MAX_JUDGING_PICTURES), MAX_JUDGING_PICTURES // 8),
        (torch.arange(345).repeat_interleave(10), 2),
        (
            torch.cat(
                [torch.zeros(MAX_JUDGING_PICTURES, dtype=torch.long), torch.tensor([1, 2, 2, 2])]
            ),
            MAX_JUDGING_PICTURES // 2,
        ),
    ],
    ids=["all of few", "class by class", "by turns", "many classes", "one class with most"],
)
def test_of_many_pictures_some_of_every_class_are_asked(targets: Tensor, each: int) -> None:
    there = targets.bincount()
    expected = torch.where(there > 1, there.clamp(max=each), 0)
    assert torch.equal(
        targets[judges(targets, MAX_JUDGING_PICTURES)].bincount(minlength=len(there)), expected
    )


@pytest.mark.parametrize(
    ("asked", "beta"), [(36, 1e-2), (24, 1e-2), (36, 1e-8)], ids=["all", "some", "no ridge"]
)
def test_a_head_that_follows_answers_as_if_the_pictures_had_been_left_out_before_it_followed(
    asked: int, beta: float
) -> None:
    """Against leaving them out of the statistics it follows, following by the same operator,
    solving and asking.
    """
    random = torch.Generator().manual_seed(0)
    settings = RidgeSettings(size=50, betas=(beta,))
    targets = torch.arange(36) % 3
    slow, fast = (RidgeHead(8, settings).double() for _ in range(2))
    f_slow = (torch.randn(36, 8, generator=random) + 2 * torch.eye(8)[targets]).double()
    # of the pictures themselves: no map gives them
    f_fast = f_slow + 0.5 * torch.randn(36, 8, generator=random)
    points = torch.randn(20, 8, generator=random).double()
    moved = movement(fast.project(points), fast.project(points.flip(1)))
    slow.add(f_slow, targets)
    fast.statistics.follow(slow.statistics, moved)
    fast.solve()
    groups = one_of_each(targets[:asked])
    rows = moved(slow.project(f_slow[:asked]))
    found = fast.logits(f_fast[:asked], LeftOut(targets[:asked], groups), rows)
    absolute = fast.beta
    for group in groups.unique().tolist():
        left_out = (groups == group).nonzero()[:, 0]
        stays = torch.tensor([i for i in range(36) if i not in left_out.tolist()])
        rest, without = (RidgeHead(8, settings).double() for _ in range(2))
        rest.add(f_slow[stays], targets[stays])
        without.statistics.follow(rest.statistics, moved)
        gram = without.statistics.gram
        sums = without.statistics.sums
        weight = torch.linalg.solve(gram + absolute * torch.eye(50).double(), sums)
        assert torch.allclose(found[left_out], fast.project(f_fast[left_out]) @ weight, atol=1e-8)


@pytest.mark.parametrize(
    ("dtype", "beta", "count", "off"),
    [
        (torch.float64, 1e-3, 60, 1e-9),
        (torch.float64, 1e-1, 300, 1e-9),
        (torch.float32, 1e-1, 300, 1e-5),
        (torch.float32, 1e-2, 300, 1e-4),
        (torch.float32, 1e-3, 60, 1e-3),  # G itself has no more digits
    ],
)
@pytest.mark.parametrize("mirror", [False, True])
def test_some_are_left_out_as_by_a_fit_to_the_others(
    dtype: torch.dtype, beta: float, count: int, off: float, mirror: bool
) -> None:
    """In relative terms, against solving anew in float64 without each group."""
    random = torch.Generator().manual_seed(0)
    targets = torch.arange(count) % 4
    features = torch.randn(count, 10 * (1 + mirror), generator=random)
    features[:, :4] += 2 * torch.eye(4)[targets]
    head = RidgeHead(10, RidgeSettings(size=150, betas=(beta,))).to(dtype)
    head.read(Reading(mirror=mirror))
    head.add(features.to(dtype), targets)
    head.solve()
    groups = one_of_each(targets)[:40]
    found = head.logits(features[:40].to(dtype), LeftOut(targets[:40], groups))
    views = 1 + mirror
    h = head.project(features.to(dtype)).double()
    y = torch.eye(4).double()[targets].repeat_interleave(views, dim=0)
    wanted = torch.empty(40, 4).double()
    for group in groups.unique():
        stays = torch.ones(count, dtype=torch.bool)
        stays[:40] = groups != group
        rows = h[stays.repeat_interleave(views)]
        gram = rows.T @ rows / views + head.beta * torch.eye(150).double()
        weight = torch.linalg.solve(gram, rows.T @ y[stays.repeat_interleave(views)] / views)
        wanted[groups == group] = h[::views][:40][groups == group] @ weight
    assert float((found - wanted).abs().max() / wanted.abs().max()) < off


@pytest.mark.parametrize("asked", [120, 80], ids=["all", "some"])
@pytest.mark.parametrize("beta", [1e-6, 1e-4, 1e-2])
def test_left_out_answers_are_precise_however_little_is_regularised(
    beta: float, asked: int
) -> None:
    """With fewer pictures than random features, rounded to float16: the others count, whether they
    are asked or not.
    """
    random = torch.Generator().manual_seed(0)
    targets = torch.arange(120) % 4
    features = torch.randn(120, 24, generator=random) + 2 * torch.eye(24)[targets]
    head = RidgeHead(24, RidgeSettings(size=400, betas=(beta,)))
    head.add(features, targets)
    head.solve()
    groups = one_of_each(targets[:asked])
    left_out = LeftOut(targets[:asked], groups)
    found = head.logits(features[:asked].half().float(), left_out)
    h = head.project(features).double()
    y = torch.eye(4).double()[targets]
    wanted = torch.empty(asked, 4).double()
    for i in range(asked):
        rest = [j for j in range(120) if j >= asked or groups[j] != groups[i]]
        kernel = h[rest] @ h[rest].T + head.beta * torch.eye(len(rest))
        wanted[i] = h[i] @ h[rest].T @ torch.linalg.solve(kernel, y[rest])
    off = (found - wanted).abs()
    assert float(off.mean()) < 0.02 and float(off.max()) < 0.2


def test_of_no_picture_there_are_no_answers() -> None:
    head = RidgeHead(5, RidgeSettings(size=20))
    head.add(torch.randn(8, 5), torch.arange(8) % 2)
    head.solve()
    none = torch.zeros(0, dtype=torch.int64)
    assert head.logits(torch.zeros(0, 5), LeftOut(none, none)).shape == (0, 2)


@pytest.mark.parametrize("mirror", [False, True])
def test_harm_is_what_the_errors_of_all_others_lose_without_a_picture(mirror: bool) -> None:
    """Each pair of pictures is left out by a fit to the others."""
    draw = torch.Generator().manual_seed(3)
    views = 1 + mirror
    features = torch.randn(9, views * 4, generator=draw).double()
    targets = torch.tensor([0, 1, 2] * 3)
    settings = RidgeSettings(size=30, betas=(0.1,))

    def error(asked: int, without: set[int]) -> float:
        rows = [i for i in range(9) if i not in {asked} | without]
        fitted = made(rows)
        beta = head.beta  # in units of all pictures
        gram = fitted.statistics.gram + beta * torch.eye(30).double()
        weight = torch.linalg.solve(gram, fitted.statistics.sums)
        z = fitted.project(features[asked : asked + 1])[:1] @ weight
        wanted = torch.nn.functional.one_hot(targets[asked], 3)
        return float((z - wanted).square().sum())

    def made(rows: list[int]) -> RidgeHead:
        found = RidgeHead(4, settings).double()
        found.read(Reading(mirror=mirror))
        found.statistics.accumulate(found.project, features[rows], targets[rows])
        return found

    head = made([*range(9)])
    alone = [error(j, set()) for j in range(9)]
    for i, harm in enumerate(head.harm(features, targets).tolist()):
        others = [j for j in range(9) if j != i]
        wanted = sum(alone[j] - error(j, {i}) for j in others)
        assert harm == pytest.approx(wanted, abs=1e-6)
