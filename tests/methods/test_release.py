"""What pictures of a later session, before anything is learned from them, say about tuning."""

import pytest
import torch
from torch import Tensor

from safecl.heads.left_out import FEWEST
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.release import HELPS, MOST, Release, unseen_errors


def cloud(targets: Tensor, signal: float) -> Tensor:
    """Features (N, 16) of which ``signal`` says how far the classes are apart."""
    draw = torch.Generator().manual_seed(0)
    centres, noise = torch.randn(8, 16, generator=draw), torch.randn(len(targets), 16, generator=draw)
    return signal * centres[targets] + noise


def test_a_tuning_helps_if_it_tells_unseen_pictures_apart() -> None:
    head, targets = RidgeHead(16, RidgeSettings(size=100)), torch.arange(8).repeat(8)
    clouds = tuple(cloud(targets, signal) for signal in (0.3, 3.0, 3.0))
    worse, better, same = unseen_errors(head, clouds, targets).tolist()
    assert better == same < 0.5 * worse


@pytest.mark.parametrize(
    "targets",
    [[0] * 20, [0] * 20 + [1], list(range(8)), [0, 1] * (FEWEST // 2 - 1) + [2, 3]],
    ids=["one class", "a class of one picture", "classes of one picture", "few pictures"],
)
def test_with_too_little_to_ask_nothing_is_said(targets: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.tensor(targets)
    monkeypatch.setattr(RidgeHead, "leave_one_out", lambda self, f, y: pytest.fail("was asked"))
    errors = unseen_errors(RidgeHead(16, RidgeSettings(size=10)), (cloud(labels, 0.1), cloud(labels, 9.0)), labels)
    assert errors.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("labels", "each"),
    [
        (torch.arange(8).repeat_interleave(MOST // 8), MOST // 8),
        (torch.arange(8).repeat_interleave(MOST), MOST // 8),
        (torch.arange(8).repeat(MOST), MOST // 8),
        (torch.arange(345).repeat_interleave(10), 2),
        (torch.cat([torch.zeros(MOST, dtype=torch.long), torch.tensor([1, 2, 2, 2])]), MOST // 2),
    ],
    ids=["all of few", "class by class", "by turns", "many classes", "one class with most"],
)
def test_of_many_pictures_some_of_every_class_are_asked(
    labels: Tensor, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Tensor] = []
    monkeypatch.setattr(RidgeHead, "leave_one_out", lambda self, f, y: asked.append(y) or torch.zeros(len(y)))
    features = torch.randn(len(labels), 16)
    assert not unseen_errors(RidgeHead(16, RidgeSettings(size=10)), (features, features), labels).any()
    there = labels.bincount()
    expected = torch.where(there > 1, there.clamp(max=each), 0)
    assert len(asked) == 2 and all(torch.equal(y.bincount(minlength=len(there)), expected) for y in asked)


@pytest.mark.parametrize("gains", [[0.0], [HELPS / 2], [2 * HELPS], [2 * HELPS, -HELPS], [-HELPS, 2 * HELPS]])
def test_l_cos_is_dropped_while_all_sessions_together_show_a_gain(gains: list[float]) -> None:
    release = Release()
    for gain in gains:
        release.errors += torch.tensor([1.0, 1.0 - gain])
    assert release.free == (sum(gains) / len(gains) > HELPS)
