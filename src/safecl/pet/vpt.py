"""VPT: prompt tokens at the end of the sequence, new ones in every block (deep) or once (shallow)."""

from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.layers import Prefix
from safecl.backbone.view import block_tokens
from safecl.pet.blocks import blocks
from safecl.pet.settings import VptSettings


class Prompts(nn.Module):
    """Learnable tokens (n, d) that start at 0, without position embedding or dropout.

    A layer norm reads them, and multiplies the gradient of a vector near 0 by up to 1/√ε = 1000: at the learning rate
    of other parameters the first steps are too long and training diverges. ``rate`` is the factor on their gradient.
    """

    def __init__(self, tokens: int, width: int, rate: float = 1.0, replace: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(tokens, width))
        self.rate, self.replace = rate, replace

    def forward(self, x: Tensor) -> Tensor:
        """Append the tokens to every sequence, (N, L, d) → (N, L + n, d), or replace its last n tokens."""
        tokens = torch.lerp(self.tokens.detach(), self.tokens, self.rate)  # the same numbers; scales the gradient
        rows = tokens.to(x.dtype).expand(x.shape[0], -1, -1)  # a tracer takes len(x) for a constant
        if self.replace:
            return torch.slice_scatter(x, rows, dim=1, start=x.shape[1] - len(tokens))
        return torch.cat([x, rows], dim=1)


class PromptedBlock(nn.Module):
    """Put prompts before a block, if it has its own, and cut the last ``drop`` tokens off after it."""

    def __init__(self, block: nn.Module, prompts: Prompts | None, drop: int) -> None:
        super().__init__()
        self.block, self.prompts, self.drop = block, nn.Identity() if prompts is None else prompts, drop

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        y: Tensor = self.block(self.prompts(x), **options)
        return y[:, : y.shape[1] - self.drop]

    def first_tokens(self, x: Tensor, count: int | None, prefix: Prefix | None) -> Tensor:
        """As ``safecl.backbone.view.block_tokens``; without a count, all but the dropped ones."""
        y = block_tokens(self.block, self.prompts(x), count, prefix)
        return y if count is not None else y[:, : y.shape[1] - self.drop]


def attach_vpt(pet: VptSettings, view: VisionTransformer) -> nn.ModuleDict:
    """Prompts by block: of every block (deep) or of the first (shallow)."""
    prompts, layers, deep = nn.ModuleDict(), blocks(view), pet.kind == "vpt_deep"
    for i, block in enumerate(layers):
        own = None
        if deep or i == 0:
            prompts[str(i)] = own = Prompts(pet.tokens, view.embed_dim, pet.rate, replace=i > 0)
        last = i == len(layers) - 1
        if own is not None or last:
            view.blocks[i] = PromptedBlock(block, own, pet.tokens if last else 0)
    return prompts
