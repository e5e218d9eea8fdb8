"""What follows when a phase fails, and when features are worse than before."""

import math

import pytest
import torch
from torch import Tensor, nn

from safecl.engine.retry import HELD, SLOWER, Attempt, Guard, retry, risen
from safecl.methods.method import Judged


def attempted(failures: int, begin: int = 0, guarded: bool = True) -> tuple[list[str], float]:
    """What happens where so many attempts fail, in words; and the share that succeeds, or −1."""
    told = []

    def train(attempt: Attempt) -> str | None:
        told.append(f"{attempt.share:g}" + " held" * attempt.holds)
        return "it failed" if len(told) // 2 < failures else None

    def undo(failure: str, following: Attempt) -> None:
        told.append(f"{failure}; {following.words}")

    last = retry((*SLOWER, HELD) if guarded else SLOWER, begin, train, undo)
    return told, -1 if last is None else last.share


def test_what_succeeds_is_not_tried_again() -> None:
    assert attempted(0) == (["1"], 1)


def test_each_attempt_is_at_a_tenth_of_the_rate_and_the_last_tunes_nothing() -> None:
    slower = "it failed; again at 0.1 of the rate"
    slowest = "it failed; again at 0.01 of the rate"
    held = "it failed; what is tuned stays as it was"
    assert attempted(2) == (["1", slower, "0.1", slowest, "0.01"], 0.01)
    assert attempted(3) == (["1", slower, "0.1", slowest, "0.01", held, "0.01 held"], 0.01)


@pytest.mark.parametrize("guarded", [True, False])
def test_where_every_attempt_fails_none_is_given_and_nothing_is_undone_after_the_last(
    guarded: bool,
) -> None:
    told, share = attempted(9, guarded=guarded)
    assert share == -1 and told[-1] == ("0.01 held" if guarded else "0.01")


@pytest.mark.parametrize("begin", [1, 2, 3])
def test_a_phase_that_resumes_goes_on_with_its_attempt(begin: int) -> None:
    assert attempted(0, begin)[0] == [["0.1"], ["0.01"], ["0.01 held"]][begin - 1]


@pytest.mark.parametrize(
    ("rise", "worse"),
    [(0.05, True), (0.02, False), (-0.3, False), (math.inf, True), (math.nan, True)],
)
def test_a_rise_counts_if_it_is_large(rise: float, worse: bool) -> None:
    """Of three classes a guess without a picture has an error of 2/3, and a twentieth of that is
    too much.
    """
    before = torch.full((18,), 0.4)
    now = before + rise + torch.tensor([0.01, -0.01] * 9)
    assert risen(before, now, torch.arange(18) % 3) is worse


class Scaled(nn.Module):
    """Features that are the pictures times a factor, which training may spoil."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(3))

    def forward(self, images: Tensor) -> Tensor:
        assert not self.training
        return images * self.factor


def guarded(tuned: Scaled) -> Guard:
    """On thirty rows that tell three classes apart."""
    random = torch.Generator().manual_seed(0)
    targets = torch.arange(30) % 3
    rows = nn.functional.one_hot(targets).float() + 0.1 * torch.randn(30, 3, generator=random)
    guard = Guard.make(tuned, Judged(tuned, tuned), targets, lambda at: [rows[at]])
    assert guard is not None
    return guard


def test_features_that_no_longer_tell_classes_apart_are_worse() -> None:
    tuned = Scaled().train()
    guard = guarded(tuned)
    assert not guard.worse()
    with torch.no_grad():
        tuned.factor.zero_()
    assert guard.worse() and tuned.training


def test_what_is_held_is_put_back() -> None:
    tuned = Scaled()
    guard = guarded(tuned)
    with torch.no_grad():
        tuned.factor.fill_(7.0)
    guard.hold()
    assert torch.equal(tuned.factor, torch.ones(3)) and not guard.worse()


@pytest.mark.parametrize("targets", [torch.zeros(30, dtype=torch.long), torch.arange(30) % 29])
def test_too_few_pictures_or_classes_judge_nothing(targets: Tensor) -> None:
    tuned = Scaled()
    assert Guard.make(tuned, Judged(tuned, tuned), targets, lambda at: []) is None
    assert Guard.make(nn.Linear(2, 2), None, torch.arange(30) % 3, lambda at: []) is None
