"""Transformers of a sequence of tokens that timm pools: ViTs without a CLS token (SigLIP), Eva
(EVA-02, DINOv3, PE) and BEiT.
"""

from typing import Any

import torch
from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.families.family import Family
from safecl.heads.reading import PLAIN, Reading, Widths

KINDS = (VisionTransformer, Eva, Beit)


class Sequence(Family):
    """Every block is read as the last one is: after the final norm, pooled as timm pools."""

    def __init__(self, network: nn.Module, size: int) -> None:
        vit: Any = network
        self.means = vit.global_pool == "avg"  # that of the patches is its own feature
        self.first = int(vit.num_prefix_tokens)  # the position of the first patch
        cls = getattr(vit, "cls_token", None) is not None
        self.patches = "the mean of the patch tokens"
        if self.means:
            self.patches = "the CLS token" if cls else None
        self.earlier = "the same"
        super().__init__(network, size)

    def read(self, view: Any, pictures: Tensor, reading: Reading) -> Tensor:
        if reading.once == PLAIN:
            return self.features(view, pictures)
        x, options = enter(view, pictures)
        length = x.shape[1]
        last = len(view.blocks) - 1
        earlier: list[Tensor] = []
        for i, block in enumerate(view.blocks):
            if i > last + 1 - reading.layers:
                earlier.insert(0, self.without_prompts(view, x, length))
            x = block(x, **options[i])
        found = [self.pooled(view, view.norm(each)) for each in (x, *earlier)]
        if reading.patches:
            final = view.norm(x)
            other = final[:, 0] if self.means else final[:, self.first :].mean(dim=1)
            found.append(view.fc_norm(other))
        return torch.cat(found, dim=1)

    def without_prompts(self, view: Any, x: Tensor, length: int) -> Tensor:
        """The ``length`` tokens that are the network's own; see ``pet.vpt``."""
        if not isinstance(view, Eva):
            return x[:, :length]
        return torch.cat([x[:, : self.first], x[:, x.shape[1] - length + self.first :]], dim=1)

    def _widths(self) -> Widths:
        vit: Any = self.network
        own = super()._widths().own
        same = own == vit.embed_dim
        patches = own if self.patches is not None and same else 0
        return Widths(own, (own,) * (len(vit.blocks) - 1), patches)


def enter(view: Any, pictures: Tensor) -> tuple[Tensor, list[dict[str, Any]]]:
    """The tokens before the first block (N, L, d), and what each block is handed besides."""
    x = view.patch_embed(pictures)
    if isinstance(view, Beit):
        x = torch.cat((view.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = view.pos_drop(x if view.pos_embed is None else x + view.pos_embed)
        bias = None if view.rel_pos_bias is None else view.rel_pos_bias()
        return x, [{"shared_rel_pos_bias": bias}] * len(view.blocks)
    if isinstance(view, Eva):
        x, rope = view._pos_embed(x)
        mixed = getattr(view, "rope_mixed", False) and rope is not None
        each: Any = rope if mixed else [rope] * len(view.blocks)
        return view.norm_pre(x), [{"rope": one} for one in each]
    return view.norm_pre(view.patch_drop(view._pos_embed(x))), [{}] * len(view.blocks)
