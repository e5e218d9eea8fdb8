"""Views of one ViT: module trees of their own over the very same tensors."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn


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
        tokens: Tensor = self.norm(last(x, source))
        return tokens


class Once:
    """The last result of a frozen function, given again for the very same input."""

    def __init__(self) -> None:
        self._last: tuple[Tensor, tuple[int, bool], Tensor] | None = None  # one object, so that threads cannot mix it

    @torch.no_grad()
    def __call__(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        # A tensor counts its changes in place; one made in inference mode cannot be told apart from a changed one.
        version = -1 if x.is_inference() else x._version
        stamp, last = (version, torch.is_autocast_enabled(x.device.type)), self._last
        if last is not None and version >= 0 and last[0] is x and last[1] == stamp:
            return last[2]
        result = function(x)
        self._last = x, stamp, result
        return result
