"""Which pictures of a session judge a tuning."""

import pytest
import torch
from torch import Tensor

from safecl.heads.leave_one_out import MAX_JUDGING_PICTURES, MIN_JUDGING_PICTURES, judges


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
