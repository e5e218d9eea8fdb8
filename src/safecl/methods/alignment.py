"""Classifier alignment: a linear head is trained on features drawn from the Gaussians of all classes (SLCA, SSIAT)."""

from functools import partial

import torch

from safecl.heads.gaussians import ClassGaussians
from safecl.heads.linear import LinearHead
from safecl.methods.method import Fit, Loss, Recipe
from safecl.methods.settings.base import AlignedSettings


def align(head: LinearHead, gaussians: ClassGaussians, settings: AlignedSettings, fit: Fit, loss: Loss) -> None:
    """Train all of ``head`` on features drawn from N(κ_c μ_c, Σ_c), κ_c = 0.9 + 0.1 · (task(c) + 1) / t."""
    s = settings
    head.requires_grad_(True)
    tasks = torch.tensor([head.block_of(index) for index in range(head.classes)])
    kappa = 0.9 + 0.1 * (tasks + 1) / len(head.sizes)
    recipe = Recipe(epochs=s.align_epochs, batch_size=s.align_samples, lr=s.align_lr, every="epoch")
    draw = partial(gaussians.sample, s.align_samples, scale=kappa, ridge=s.spread)
    fit("align", head, draw, loss, recipe=recipe)
