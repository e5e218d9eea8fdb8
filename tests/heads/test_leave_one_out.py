"""Which pictures judge, and what heads answer to them as if they had been left out."""

import pytest
import torch
from torch import Tensor

from safecl.heads.leave_one_out import MAX_JUDGING_PICTURES, MIN_JUDGING_PICTURES, judges, leaving_out, one_of_each
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.heads.statistics import movement


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
            torch.cat([torch.zeros(MAX_JUDGING_PICTURES, dtype=torch.long), torch.tensor([1, 2, 2, 2])]),
            MAX_JUDGING_PICTURES // 2,
        ),
    ],
    ids=["all of few", "class by class", "by turns", "many classes", "one class with most"],
)
def test_of_many_pictures_some_of_every_class_are_asked(targets: Tensor, each: int) -> None:
    there = targets.bincount()
    expected = torch.where(there > 1, there.clamp(max=each), 0)
    assert torch.equal(targets[judges(targets, MAX_JUDGING_PICTURES)].bincount(minlength=len(there)), expected)


@pytest.mark.parametrize(("asked", "beta"), [(36, 1e-2), (24, 1e-2), (36, 1e-8)], ids=["all", "some", "no ridge"])
def test_a_head_that_follows_answers_as_if_the_pictures_had_been_left_out_before_it_followed(
    asked: int, beta: float
) -> None:
    """Against leaving them out of the statistics it follows, following by the same operator, solving and asking."""
    random = torch.Generator().manual_seed(0)
    settings, targets = RidgeSettings(size=50, betas=(beta,)), torch.arange(36) % 3
    slow, fast = (RidgeHead(8, settings).double() for _ in range(2))
    f_slow = (torch.randn(36, 8, generator=random) + 2 * torch.eye(8)[targets]).double()
    f_fast = f_slow + 0.5 * torch.randn(36, 8, generator=random)  # of the pictures themselves: no map gives them
    points = torch.randn(20, 8, generator=random).double()
    moved = movement(fast.project(points), fast.project(points.flip(1)))
    slow.add(f_slow, targets)
    fast.statistics.follow(slow.statistics, moved)
    fast.solve()
    groups = one_of_each(targets[:asked])
    with leaving_out(fast, targets[:asked], groups, {"": moved(slow.project(f_slow[:asked]))}):
        found = fast.logits(f_fast[:asked])
    absolute = fast.beta
    for group in groups.unique().tolist():
        left_out = (groups == group).nonzero()[:, 0]
        stays = torch.tensor([i for i in range(36) if i not in left_out.tolist()])
        rest, without = (RidgeHead(8, settings).double() for _ in range(2))
        rest.add(f_slow[stays], targets[stays])
        without.statistics.follow(rest.statistics, moved)
        gram, sums = without.statistics.gram, without.statistics.sums
        weight = torch.linalg.solve(gram + absolute * torch.eye(50).double(), sums)
        assert torch.allclose(found[left_out], fast.project(f_fast[left_out]) @ weight, atol=1e-3)


@pytest.mark.parametrize("asked", [120, 80], ids=["all", "some"])
@pytest.mark.parametrize("beta", [1e-6, 1e-4, 1e-2])
def test_left_out_answers_are_precise_however_little_is_regularised(beta: float, asked: int) -> None:
    """With fewer pictures than random features, rounded to float16: the others count, whether they are asked or not."""
    random, targets = torch.Generator().manual_seed(0), torch.arange(120) % 4
    features = torch.randn(120, 24, generator=random) + 2 * torch.eye(24)[targets]
    head = RidgeHead(24, RidgeSettings(size=400, betas=(beta,)))
    head.add(features, targets)
    head.solve()
    groups = one_of_each(targets[:asked])
    with leaving_out(head, targets[:asked], groups):
        found = head.logits(features[:asked].half().float())
    h, y = head.project(features).double(), torch.eye(4).double()[targets]
    wanted = torch.empty(asked, 4).double()
    for i in range(asked):
        rest = [j for j in range(120) if j >= asked or groups[j] != groups[i]]
        kernel = h[rest] @ h[rest].T + head.beta * torch.eye(len(rest))
        wanted[i] = h[i] @ h[rest].T @ torch.linalg.solve(kernel, y[rest])
    off = (found - wanted).abs()
    assert float(off.mean()) < 0.02 and float(off.max()) < 0.2
