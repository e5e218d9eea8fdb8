"""Views of one ViT, module trees of their own over the same tensors, and the one function that
computes them.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypedDict

import torch
import torch.nn.functional as F
from timm.layers.patch_embed import PatchEmbed
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from safecl.backbone.layers import Attention, Prefix, begin_pass
from safecl.errors import SafeclError
from safecl.heads.reading import PLAIN, Reading


class Inserted(TypedDict, total=False):
    """``prompts``: tokens (N, L, d), or (L, d) for all pictures, after the CLS token, without
    position embedding.

    ``prefixes``: by block index, keys and values, (N, P, d) or (P, d) each, before those of that
    block's attention.
    """

    prompts: Tensor | None
    prefixes: Mapping[int, Prefix] | None


def tokens(
    vit: VisionTransformer,
    pictures: Tensor,
    count: int = 1,
    prompts: Tensor | None = None,
    prefixes: Mapping[int, Prefix] | None = None,
    reading: Reading = PLAIN,
) -> Tensor:
    """The first ``count`` tokens after the final norm, (N, count, d), of normalised pictures (N, 3,
    H, W).

    As in ``vit.forward_features``, but the last block computes no other token unless the
    ``reading`` asks for patches; see ``Inserted``. What else is read follows, after the final norm
    as well. Pictures in bfloat16 on a network with float32 weights (full fine-tuning) are computed
    by autocast.
    """
    with rounding(vit, pictures):
        x: Tensor = vit.patch_drop(vit._pos_embed(patches(vit.patch_embed, pictures)))
        if prompts is not None:
            x = torch.cat(
                [x[:, :1], prompts.to(x.dtype).expand(x.shape[0], -1, -1), x[:, 1:]], dim=1
            )
        last = len(vit.blocks) - 1
        for i in prefixes or ():
            if not 0 <= i <= last:
                raise ValueError(f"a prefix for block {i} of a network with the blocks 0 to {last}")
        if not 1 <= count <= x.shape[1]:
            raise ValueError(f"{count} tokens of {x.shape[1]}")
        first = vit.num_prefix_tokens + (0 if prompts is None else prompts.shape[-2])
        x = begin_pass(vit.norm_pre(x), first, vit.patch_embed.grid_size)
        more: list[Tensor] = []  # (N, 1, d) each
        for i, block in enumerate(vit.blocks):
            if i > last + 1 - reading.layers:
                more.insert(0, x[:, :1])
            few = count if i == last and not reading.patches else None
            x = block_tokens(block, x, few, prefixes.get(i) if prefixes else None)
        if reading.patches:
            height, width = vit.patch_embed.grid_size
            more.append(x[:, first : first + height * width].mean(dim=1, keepdim=True))
        y: Tensor = vit.norm(torch.cat([x[:, :count], *more], dim=1) if more else x)
        return y


def rounding(network: nn.Module, pictures: Tensor) -> AbstractContextManager[Any]:
    """Autocast for rounded pictures on a network with float32 weights."""
    rounded = (
        pictures.dtype in (torch.bfloat16, torch.float16)
        and next(network.parameters()).dtype != pictures.dtype
    )
    # Without its cache of rounded weights, which a CUDA graph could not record.
    return (
        torch.autocast(pictures.device.type, pictures.dtype, cache_enabled=False)
        if rounded
        else nullcontext()
    )


def block_tokens(
    block: Any, x: Tensor, count: int | None = None, prefix: Prefix | None = None
) -> Tensor:
    """The first ``count`` tokens, or all, that a block, or ``first_tokens`` of a PET around it,
    makes of (N, L, d).
    """
    y: Tensor
    if hasattr(block, "first_tokens"):
        y = block.first_tokens(x, count, prefix)
        return y
    own = isinstance(block, Block) and isinstance(block.attn, Attention)
    if prefix is not None and not own:
        kind = type(block.attn if isinstance(block, Block) else block).__name__
        raise SafeclError("backbone.blocks.no-prefixes", kind=kind)
    if not isinstance(block, Block) or (count is None and prefix is None):
        y = block(x)[:, :count]
        return y
    # Only attention reads other tokens: its queries and all that follows are those of the first
    # ``count``.
    options = {"queries": count, "prefix": prefix} if own else {}
    y = block.attn(block.norm1(x), **options)[:, :count]
    y = x[:, :count] + block.drop_path1(block.ls1(y))
    y = y + block.drop_path2(block.ls2(block.mlp(block.norm2(y))))
    return y


def shared_view(vit: VisionTransformer) -> VisionTransformer:
    """A second tree of modules over the frozen tensors of ``vit``; a batch is embedded once for all
    its views.
    """
    view = shared_tree(vit)
    if not isinstance(vit.patch_embed, SharedEmbedding):
        view.patch_embed = SharedEmbedding(vit.patch_embed)
    return view


def shared_tree(vit: VisionTransformer) -> VisionTransformer:
    """A second tree of modules over the tensors of ``vit``; a deep copy of a dozen tables of hooks
    a module is slow.
    """
    twins: dict[nn.Module | None, Any] = {None: None}
    for module in vit.modules():
        twins[module] = twin = module.__new__(type(module))
        twin.__dict__ = {
            k: v.copy() if isinstance(v, dict | set) else v for k, v in vars(module).items()
        }
    for module in vit.modules():
        twins[module]._modules.update(
            {name: twins[child] for name, child in module._modules.items()}
        )
    view: VisionTransformer = twins[vit]
    return view


class SharedEmbedding(nn.Module):
    """The frozen patch embedding behind all views, computed once per batch, then this view's own
    ``norm``.
    """

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self._source = [source]  # kept out of the module tree, and so out of copies
        self.norm: nn.Module = nn.Identity()

    def __getattr__(self, name: str) -> Any:
        """grid_size, img_size and other attributes that timm reads."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._source[0], name)

    def forward(self, x: Tensor) -> Tensor:
        source = self._source[0]
        last: Once = source.__dict__.setdefault("_last", Once())
        tokens: Tensor = self.norm(last(x, lambda x: patches(source, x)))
        return tokens


def patches(embedding: Any, x: Tensor) -> Tensor:
    """Pictures (N, 3, H, W) → patch tokens (N, L, d), by one matrix product where timm's embedding
    is a plain one.
    """
    if type(embedding) is not PatchEmbed or not embedding.flatten or embedding.dynamic_img_pad:
        tokens: Tensor = embedding(x)
        return tokens
    n, colours, height, width = x.shape
    p, q = embedding.patch_size
    cells = (
        x.reshape(n, colours, height // p, p, width // q, q)
        .permute(0, 2, 4, 1, 3, 5)
        .flatten(3)
        .flatten(1, 2)
    )
    tokens = embedding.norm(F.linear(cells, embedding.proj.weight.flatten(1), embedding.proj.bias))
    return tokens


class Once:
    """Keeps the last result of a function without gradient, and returns it for the same unchanged
    tensor.
    """

    def __init__(self) -> None:
        self._last: tuple[Tensor, int, Tensor] | None = (
            None  # one tuple: replaced in one step, also between threads
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> "Once":
        return Once()

    @torch.no_grad()
    def __call__(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        # ``_version`` counts changes in place; tensors of inference mode have none, so they are
        # never cached.
        version = -1 if x.is_inference() else x._version
        last = self._last
        if last is not None and version >= 0 and last[0] is x and last[1] == version:
            return last[2]
        result = function(x)
        self._last = x, version, result
        return result
