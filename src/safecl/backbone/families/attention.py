"""The attention of Eva and BEiT with room for more tokens, keys and values than positions."""

from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.attention import AttentionRope
from timm.layers.pos_embed_sincos import apply_rot_embed_cat
from timm.models.beit import Attention as BeitAttention
from timm.models.eva import EvaAttention
from torch import Tensor, nn

POSITIONED = (EvaAttention, AttentionRope, BeitAttention)


class PositionedAttention(nn.Module):
    """timm's ``attention``, its modules under their own names; ``with_own_bias`` made it plain.

    Rotary positions turn all but the first ``num_prefix_tokens`` tokens. A relative position bias
    is 0 for tokens that come after its own, which are prompts.
    """

    qkv: Any
    q_proj: Any
    k_proj: Any
    v_proj: Any
    gate: Any
    q_norm: nn.Module
    k_norm: nn.Module
    norm: nn.Module
    positions: Any

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.num_heads = int(attention.num_heads)
        self.num_prefix_tokens = int(getattr(attention, "num_prefix_tokens", 0))
        self.rotate_half = bool(getattr(attention, "rotate_half", False))
        self.groups = int(getattr(attention, "num_kv_groups", 1))
        for name in ("qkv", "q_proj", "k_proj", "v_proj", "gate"):
            setattr(self, name, getattr(attention, name, None))
        for name in ("q_norm", "k_norm", "norm"):
            setattr(self, name, getattr(attention, name, nn.Identity()))
        self.proj = attention.proj
        # the table of a relative position bias, and how it is looked up
        table = getattr(attention, "relative_position_bias_table", None)
        self.positions = nn.ModuleList([attention] if table is not None else [])

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        shared_rel_pos_bias: Tensor | None = None,
    ) -> Tensor:
        """Tokens (N, L, d) → (N, L, d)."""
        if attn_mask is not None or is_causal:  # which timm's blocks hand on
            raise ValueError("this attention takes no mask")
        q, k, v = self._project(x)
        if rope is not None:
            q = self._turned(q, rope).to(v.dtype)
            k = self._turned(k, rope).to(v.dtype)
        if self.groups > 1:
            k = k.repeat_interleave(self.groups, dim=1)
            v = v.repeat_interleave(self.groups, dim=1)
        y = self.attend(q, k, v, self._bias(q, shared_rel_pos_bias))
        y = self.norm(y.transpose(1, 2).flatten(2))
        if self.gate is not None:
            y = y * self.gate(x).sigmoid()
        mixed: Tensor = self.proj(y)
        return mixed

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Queries, keys and values (N, heads, L, head_dim), and what is added to their products
        (1, heads, L, L): (N, heads, L, head_dim).
        """
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.qkv is not None:
            q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        else:
            heads = self.num_heads // self.groups
            q = self.q_proj(x).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
            k, v = (
                project(x).unflatten(2, (heads, -1)).transpose(1, 2)
                for project in (self.k_proj, self.v_proj)
            )
        return self.q_norm(q), self.k_norm(k), v

    def _turned(self, x: Tensor, rope: Tensor) -> Tensor:
        first = x[:, :, : self.num_prefix_tokens]
        rest = x[:, :, self.num_prefix_tokens :]
        turned: Tensor = apply_rot_embed_cat(rest, rope, half=self.rotate_half)
        return torch.cat([first, turned], dim=2)

    def _bias(self, q: Tensor, shared: Tensor | None) -> Tensor | None:
        parts = [each._get_rel_pos_bias() for each in self.positions]
        parts += [] if shared is None else [shared]
        if not parts:
            return None
        bias = torch.stack(parts).sum(dim=0).to(q.dtype)
        more = q.shape[2] - bias.shape[-1]
        return F.pad(bias, (0, more, 0, more))
