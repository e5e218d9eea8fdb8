"""Cross-entropy over one session's classes is that of logits whose others are masked to −∞."""

import torch
import torch.nn.functional as F

from safecl.losses import local_cross_entropy


def test_it_is_the_cross_entropy_of_masked_logits_and_the_others_get_no_gradient() -> None:
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    targets, current = torch.tensor([1, 4, 4, 1, 3, 1]), torch.tensor([1, 3, 4])
    found = local_cross_entropy(logits, targets, current)
    masked = logits.detach().clone()
    masked[:, [0, 2]] = -torch.inf
    assert torch.allclose(found, F.cross_entropy(masked, targets))
    (gradient,) = torch.autograd.grad(found, logits)
    assert [bool(column.any()) for column in gradient.T] == [False, True, False, True, True]
