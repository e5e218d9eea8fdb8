"""VPT: prompt tokens at the end of the sequence, new ones in every block (deep) or once (shallow)."""

from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.view import cls_of


class Prompts(nn.Module):
    """Learnable tokens (n, d), zero at first, without position embedding or dropout.

    They are read through a layer norm, which multiplies the gradient of a small vector by up to 1/√ε = 1000: at the
    rate of other parameters the first batches throw them somewhere from which there is no way back. ``rate`` is the
    factor on their gradient.
    """

    def __init__(self, tokens: int, width: int, rate: float = 1.0) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(tokens, width))
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Append the tokens to every sequence: (N, L, d) → (N, L + n, d)."""
        tokens = torch.lerp(self.tokens.detach(), self.tokens, self.rate)  # the same numbers; scales the gradient
        return torch.cat([x, tokens.to(x.dtype).expand(len(x), -1, -1)], dim=1)


class PromptedBlock(nn.Module):
    """Append prompts before a block, if it has its own; drop tokens after it, if it is the last to see them."""

    def __init__(self, block: nn.Module, prompts: Prompts | None, drop: int) -> None:
        super().__init__()
        self.block, self.prompts, self.drop = block, prompts, drop

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        y: Tensor = self.block(self._prompted(x), **options)
        return y[:, : y.shape[1] - self.drop]

    def cls_of(self, x: Tensor) -> Tensor:
        """What ``safecl.backbone.view.cls_of`` asks for."""
        return cls_of(self.block, self._prompted(x))

    def _prompted(self, x: Tensor) -> Tensor:
        return x if self.prompts is None else self.prompts(x)


def attach_vpt(vit: VisionTransformer, deep: bool, tokens: int = 5, rate: float = 1.0) -> nn.ModuleDict:
    """Let ``vit`` carry prompt tokens; gives them by block."""
    depth = len(vit.blocks)
    prompts = nn.ModuleDict({str(i): Prompts(tokens, vit.embed_dim, rate) for i in range(depth if deep else 1)})
    for i in range(depth):
        own = prompts[str(i)] if str(i) in prompts else None
        last = deep or i == depth - 1
        if own is not None or last:
            vit.blocks[i] = PromptedBlock(vit.blocks[i], own, tokens if last else 0)  # type: ignore[arg-type]
    return prompts
