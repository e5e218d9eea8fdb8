"""The backbone: a frozen pre-trained timm ViT, from pictures to the CLS feature after the final norm."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from timm.layers.patch_embed import PatchEmbed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.layers import use_layers
from safecl.backbone.view import Once, cls_feature, shared_view

PerChannel: TypeAlias = tuple[float, ...]


class Backbone:
    """A frozen ViT and the pixel normalisation that goes with it.

    ``vit`` itself is never changed: a learner attaches its PET to a view of it.
    """

    gathered: Callable[[Tensor], Tensor] | None = None  # the engine's, while several processes share a batch

    def __init__(self, vit: VisionTransformer, name: str, size: int, mean: PerChannel, std: PerChannel) -> None:
        use_layers(vit)
        if not isinstance(vit.patch_embed, PatchEmbed):  # a stem of convolutions, which like this layout
            vit.patch_embed.to(memory_format=torch.channels_last)
        self.vit = vit.eval().requires_grad_(False)
        self._ptm = shared_view(vit)
        self.name, self.size, self.width = name, size, int(vit.embed_dim)
        self.mean, self.std = mean, std
        self.to(torch.device("cpu"))

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> "Backbone":
        """Move it, and choose the precision of weights and activations. Pictures and features stay float32.

        So do the few numbers of the norms, and what is learned: a PET rounds its numbers where they enter the network,
        never those it keeps.
        """
        for module in self.vit.modules():
            precision = torch.float32 if isinstance(module, nn.LayerNorm) else dtype
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                tensor.data = tensor.data.to(device, precision if tensor.is_floating_point() else None)
        factor = 1 / torch.tensor(self.std, device=device).view(3, 1, 1)
        self._scale_offset = factor, -torch.tensor(self.mean, device=device).view(3, 1, 1) * factor
        self.dtype, self._prepared = dtype, Once()  # pictures that were prepared before are not what is wanted now
        return self

    @property
    def device(self) -> torch.device:
        parameter: Tensor = next(self.vit.parameters())
        return parameter.device

    def features(self, images: Tensor, view: VisionTransformer | None = None) -> Tensor:
        """Pictures in [0, 1], (N, 3, size, size) → CLS features (N, d) in float32, of ``view`` or of the PTM."""
        network = self._ptm if view is None else view
        # The same tensor for the same pictures: by it views know that they have embedded them already.
        features = cls_feature(network, self._prepared(images, self._normalise)).float()
        return features if self.gathered is None else self.gathered(features)

    def _normalise(self, images: Tensor) -> Tensor:
        factor, offset = self._scale_offset
        return torch.addcmul(offset, images, factor).to(self.dtype)
