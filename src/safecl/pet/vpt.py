"""VPT: prompt tokens at the end of the sequence, new ones in every block (deep) or once (shallow).
Where positions turn with the place in the sequence (Eva), they stand before the patches.
"""

from typing import Any

import torch
from timm.models.eva import Eva
from torch import Tensor, nn

from safecl.backbone.families.attention import POSITIONED, PositionedAttention
from safecl.backbone.layers import Prefix
from safecl.backbone.view import block_tokens
from safecl.pet.blocks import blocks
from safecl.pet.settings import VptSettings


class Prompts(nn.Module):
    """Learnable tokens (n, d) that start at 0, without position embedding or dropout.

    A layer norm reads them, and multiplies the gradient of a vector near 0 by up to 1/√ε = 1000: at
    the learning rate of other parameters the first steps are too long and training diverges.
    ``rate`` is the factor on their gradient. ``at``: where they begin, at the end if not given.
    """

    def __init__(
        self,
        tokens: int,
        width: int,
        rate: float = 1.0,
        replace: bool = False,
        at: int | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(tokens, width))
        self.rate = rate
        self.replace = replace
        self.at = at

    def forward(self, x: Tensor) -> Tensor:
        """Put the tokens into every sequence, (N, L, d) → (N, L + n, d), or replace those that are
        there.
        """
        # the same numbers; scales the gradient
        tokens = torch.lerp(self.tokens.detach(), self.tokens, self.rate)
        rows = tokens.to(x.dtype).expand(x.shape[0], -1, -1)  # a tracer takes len(x) for a constant
        if self.replace:
            start = x.shape[1] - len(tokens) if self.at is None else self.at
            return torch.slice_scatter(x, rows, dim=1, start=start, end=start + len(tokens))
        if self.at is None:
            return torch.cat([x, rows], dim=1)
        return torch.cat([x[:, : self.at], rows, x[:, self.at :]], dim=1)


class PromptedBlock(nn.Module):
    """Put prompts before a block, if it has its own, and cut ``drop`` tokens off after it, the last
    ones or those from ``at`` on.
    """

    def __init__(
        self, block: nn.Module, prompts: Prompts | None, drop: int, at: int | None = None
    ) -> None:
        super().__init__()
        self.block = block
        self.prompts = nn.Identity() if prompts is None else prompts
        self.drop = drop
        self.at = at

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        y: Tensor = self.block(self.prompts(x), **options)
        if self.at is None or not self.drop:
            return y[:, : y.shape[1] - self.drop]
        return torch.cat([y[:, : self.at], y[:, self.at + self.drop :]], dim=1)

    def first_tokens(self, x: Tensor, count: int | None, prefix: Prefix | None) -> Tensor:
        """As ``safecl.backbone.view.block_tokens``; without a count, all but the dropped ones."""
        y = block_tokens(self.block, self.prompts(x), count, prefix)
        return y if count is not None else y[:, : y.shape[1] - self.drop]


def attach_vpt(pet: VptSettings, view: Any) -> nn.ModuleDict:
    """Prompts by block: of every block (deep) or of the first (shallow)."""
    prompts = nn.ModuleDict()
    at = view.num_prefix_tokens if isinstance(view, Eva) else None
    layers = blocks(view)
    deep = pet.kind == "vpt_deep"
    for i, block in enumerate(layers):
        own = None
        if deep or i == 0:
            own = Prompts(pet.tokens, view.embed_dim, pet.rate, replace=i > 0, at=at)
            prompts[str(i)] = own
        if isinstance(getattr(block, "attn", None), POSITIONED):
            block.attn = PositionedAttention(block.attn)
            block.attn.num_prefix_tokens += pet.tokens
        last = i == len(layers) - 1
        if own is not None or last:
            view.blocks[i] = PromptedBlock(block, own, pet.tokens if last else 0, at)
    return prompts
