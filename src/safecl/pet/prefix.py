"""Prefix tuning: learnable keys and values before those of a block's attention."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.families.attention import POSITIONED, PositionedAttention
from safecl.backbone.layers import Attention
from safecl.pet.blocks import plain_attention
from safecl.pet.settings import PrefixSettings


class Prefixes(nn.Module):
    """Keys and values (2, P, d) ~ U(0, 0.01), each times a factor that is trained and starts at
    1.
    """

    def __init__(self, length: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.tokens = nn.Parameter(
            torch.empty(2, length, width).uniform_(0, 0.01, generator=generator)
        )
        self.scale = nn.Parameter(torch.ones(2, 1, 1))

    def forward(self) -> Tensor:
        return self.scale * self.tokens


class PrefixedAttention(Attention):
    """Attention with learnable keys and values of its own before all others.

    With ``compensate`` y = Σ_i a_i v_i + Σ_p a_p v_p / Σ_p a_p over tokens i and prefix p, where a
    is the softmax over both: without it the second sum is not divided.
    """

    def __init__(self, attention: Attention, prefixes: Prefixes, compensate: bool) -> None:
        super().__init__(attention)
        self.prefixes = prefixes
        self.compensate = compensate

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = by_head(self.prefixes(), k)
        k = torch.cat([keys, k], dim=2)
        if not self.compensate:
            return super().attend(q, k, torch.cat([values, v], dim=2))
        on_tokens = super().attend(q, k, torch.cat([torch.zeros_like(values), v], dim=2))
        return on_tokens + super().attend(q, keys, values)


class PrefixedPositions(PositionedAttention):
    """The same with rotary positions or a relative position bias, of which the prefix has none."""

    def __init__(self, attention: Any, prefixes: Prefixes, compensate: bool) -> None:
        super().__init__(attention)
        self.prefixes = prefixes
        self.compensate = compensate

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        keys, values = by_head(self.prefixes(), k)
        k = torch.cat([keys, k], dim=2)
        wider = None if bias is None else F.pad(bias, (keys.shape[2], 0))
        if not self.compensate:
            return super().attend(q, k, torch.cat([values, v], dim=2), wider)
        on_tokens = super().attend(q, k, torch.cat([torch.zeros_like(values), v], dim=2), wider)
        return on_tokens + super().attend(q, keys, values, None)


def by_head(prefixes: Tensor, k: Tensor) -> Tensor:
    """Keys and values (2, P, d) for every picture of ``k`` (N, heads, L, head_dim): (2, N, heads,
    P, head_dim).
    """
    tokens: Tensor = prefixes.to(k.dtype).unflatten(2, (k.shape[1], -1)).transpose(1, 2)  # type: ignore[no-untyped-call]  # torch's own
    return tokens[:, None].expand(-1, k.shape[0], -1, -1, -1)


def attach_prefix(pet: PrefixSettings, block: Any, generator: torch.Generator) -> Prefixes:
    """Keys and values of a block."""
    attention = block.attn
    width = attention.proj.in_features
    prefixes = Prefixes(pet.length, width, generator)
    if isinstance(attention, POSITIONED):
        block.attn = PrefixedPositions(attention, prefixes, pet.compensate)
    else:
        block.attn = PrefixedAttention(plain_attention(block), prefixes, pet.compensate)
    return prefixes
