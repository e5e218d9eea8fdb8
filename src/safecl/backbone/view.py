"""Views of one ViT, module trees of their own over the very same tensors, and what they compute: the CLS feature."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.patch_embed import PatchEmbed
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from safecl.backbone.layers import Attention


def shared_view(vit: VisionTransformer) -> VisionTransformer:
    """A second tree of modules over the tensors of ``vit``; a batch is embedded once for all views of it."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in [*vit.parameters(), *vit.buffers()]}
    embedding: Any = vit.patch_embed
    if not isinstance(embedding, SharedEmbedding):
        shared[id(embedding)] = embedding  # not copied: the views take their patches from it
    view = copy.deepcopy(vit, shared)
    if not isinstance(embedding, SharedEmbedding):
        view.patch_embed = SharedEmbedding(embedding)
    return view


def cls_feature(vit: VisionTransformer, pictures: Tensor) -> Tensor:
    """The CLS token after the final norm, (N, d): that of ``vit.forward_features``, without what only others need."""
    tokens: Tensor = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(pictures))))
    *blocks, last = vit.blocks
    for block in blocks:
        tokens = block(tokens)
    feature: Tensor = vit.norm(cls_of(last, tokens))[:, 0]
    return feature


def cls_of(block: Any, x: Tensor) -> Tensor:
    """The CLS token, (N, 1, d), that a block makes of the tokens (N, L, d)."""
    if not isinstance(block, Block):
        token: Tensor = block.cls_of(x) if hasattr(block, "cls_of") else block(x)[:, :1]
        return token
    # Only attention looks at other tokens; what is asked there, and what follows, is for one.
    only = {"queries": 1} if isinstance(block.attn, Attention) else {}
    x = x[:, :1] + block.drop_path1(block.ls1(block.attn(block.norm1(x), **only)[:, :1]))
    y: Tensor = x + block.drop_path2(block.ls2(block.mlp(block.norm2(x))))
    return y


class SharedEmbedding(nn.Module):
    """The patch embedding of the ViT behind a view, and this view's own ``norm`` after it, where a PET can attach.

    The embedding is frozen and nothing comes before it, so learners that see the same batch share its result.
    """

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self._source = [source]  # kept out of the module tree, and so out of copies
        self.norm: nn.Module = nn.Identity()

    def __deepcopy__(self, memo: dict[int, Any]) -> "SharedEmbedding":
        twin = SharedEmbedding(self._source[0])
        twin.norm = copy.deepcopy(self.norm, memo)
        return twin

    def __getattr__(self, name: str) -> Any:
        """timm asks for grid_size, img_size and the like."""
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
    """Pictures (N, 3, H, W) to patch tokens (N, L, d) by one matrix product, which is many times a convolution's speed.

    ``embedding`` is timm's, and is asked itself where it does more than cut into squares and project.
    """
    if type(embedding) is not PatchEmbed or not embedding.flatten or embedding.dynamic_img_pad:
        tokens: Tensor = embedding(x)
        return tokens
    n, colours, height, width = x.shape
    p, q = embedding.patch_size
    cells = x.reshape(n, colours, height // p, p, width // q, q).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    tokens = embedding.norm(F.linear(cells, embedding.proj.weight.flatten(1), embedding.proj.bias))
    return tokens


class Once:
    """The last result of a frozen function, given again for the very same input."""

    def __init__(self) -> None:
        self._last: tuple[Tensor, int, Tensor] | None = None  # one object, so that threads cannot mix it

    @torch.no_grad()
    def __call__(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        # A tensor counts its changes in place; one made in inference mode cannot be told apart from a changed one.
        version = -1 if x.is_inference() else x._version
        last = self._last
        if last is not None and version >= 0 and last[0] is x and last[1] == version:
            return last[2]
        result = function(x)
        self._last = x, version, result
        return result
