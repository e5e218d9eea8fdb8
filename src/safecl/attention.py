"""timm's self-attention with its heads laid out so that nothing is copied on the way back."""

from typing import Any

import torch.nn.functional as F
from timm.layers import Attention as TimmAttention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn


class Attention(nn.Module):
    """The modules of a timm attention under their own names, where a PET finds them, and the same output.

    timm puts query, key and value first and the heads before the tokens, so that their gradients have to be put
    together and turned around again. Here they stay where the projection has them.
    """

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.num_heads, self.head_dim = attention.num_heads, attention.head_dim
        self.qkv, self.q_norm, self.k_norm = attention.qkv, attention.q_norm, attention.k_norm
        self.norm, self.proj = attention.norm, attention.proj

    def forward(self, x: Tensor, queries: int | None = None, **nothing: Any) -> Tensor:
        """Tokens (N, L, d), of which the first ``queries`` (all if not given) ask: (N, queries, d)."""
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, self.head_dim)).unbind(2)
        q, k = self.q_norm(q[:, :queries]), self.k_norm(k)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        mixed: Tensor = self.proj(self.norm(y.transpose(1, 2).flatten(2)))
        return mixed


def use_attention(vit: VisionTransformer) -> None:
    """Put it in the place of timm's own, wherever that does no more than this."""
    for owner in list(vit.modules()):
        found = getattr(owner, "attn", None)
        if type(found) is TimmAttention and getattr(found, "gate", None) is None and hasattr(found, "norm"):
            owner.attn = Attention(found)
