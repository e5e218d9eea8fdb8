"""What pictures of a later session, before anything is learned from them, say about tuning."""

import pytest
import torch
from torch import Tensor

from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.release import HELPS, Release, unseen_errors


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


@pytest.mark.parametrize("gains", [[0.0], [HELPS / 2], [2 * HELPS], [2 * HELPS, -HELPS], [-HELPS, 2 * HELPS]])
def test_l_cos_is_dropped_while_all_sessions_together_show_a_gain(gains: list[float]) -> None:
    release = Release()
    for gain in gains:
        release.errors += torch.tensor([1.0, 1.0 - gain])
    assert release.free == (sum(gains) / len(gains) > HELPS)
