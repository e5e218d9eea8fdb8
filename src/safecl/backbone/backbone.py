"""The backbone: a frozen pre-trained timm ViT, from pictures to tokens after the final norm."""

from functools import cached_property
from hashlib import blake2b
from typing import TypeAlias, Unpack

import torch
from timm.layers.patch_embed import PatchEmbed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.layers import use_layers
from safecl.backbone.view import Inserted, Once, shared_view, tokens
from safecl.errors import SafeclError
from safecl.heads.reading import PLAIN, Reading

PerChannel: TypeAlias = tuple[float, ...]


class Backbone:
    """A frozen ViT ``vit`` of a ``name``, for inputs of side ``size``, with the ``mean`` and ``std`` of its pixels.

    It takes ``vit`` over: layers are replaced by faster ones under the same names, and the weights are frozen and
    moved. A PET is attached to a view of it, and changes neither its modules nor its weights.
    """

    def __init__(self, vit: VisionTransformer, name: str, size: int, mean: PerChannel, std: PerChannel) -> None:
        use_layers(vit)
        if type(vit.patch_embed) is not PatchEmbed:  # a stem of convolutions, which are faster in this layout
            vit.patch_embed.to(memory_format=torch.channels_last)
        self.vit = vit.eval().requires_grad_(False)
        self._ptm = shared_view(vit)
        self.name, self.size, self.width = name, size, int(vit.embed_dim)
        self.mean, self.std = mean, std
        self.to(torch.device("cpu"))

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> "Backbone":
        """Move it, and choose the precision of weights and activations.

        Pictures, features, the weights of norms and the parameters of PETs stay float32.
        """
        if dtype != torch.float32:
            _ = self.digest  # of the weights before they are rounded
        for module in self.vit.modules():
            precision = torch.float32 if isinstance(module, nn.LayerNorm) else dtype
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                tensor.data = tensor.data.to(device, precision if tensor.is_floating_point() else None)
        factor = 1 / torch.tensor(self.std, device=device).view(3, 1, 1)
        self._scale_offset = factor, -torch.tensor(self.mean, device=device).view(3, 1, 1) * factor
        self.dtype, self._prepared = dtype, Once()  # forgets pictures of the device and precision before
        return self

    def __repr__(self) -> str:
        precision = str(self.dtype).removeprefix("torch.")
        return f"<Backbone {self.name}: inputs of {self.size}, {self.width} features, {precision} on {self.device}>"

    @cached_property
    def digest(self) -> str:
        """The fingerprint of the weights as they were loaded: blake2b of their names, shapes and float32 values.

        Of a position embedding that was resampled only the shape counts: its last bits differ from machine to machine.
        """
        facts = getattr(self.vit, "pretrained_cfg", None) or {}
        resampled = facts.get("input_size", (self.size,))[-1] != self.size
        digest = blake2b(digest_size=16)
        for name, tensor in sorted(self.vit.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
            if name != "pos_embed" or not resampled:
                digest.update(tensor.cpu().float().contiguous().numpy().astype("<f4", copy=False))
        return digest.hexdigest()

    @property
    def device(self) -> torch.device:
        parameter: Tensor = next(self.vit.parameters())
        return parameter.device

    @property
    def cls_position(self) -> Tensor:
        """The position embedding of the CLS token (d,), in float32; zeros where the network has none."""
        if self.vit.pos_embed is None or self.vit.no_embed_class:
            return torch.zeros(self.width, device=self.device)
        return self.vit.pos_embed[0, 0].float()

    def features(self, images: Tensor, view: VisionTransformer | None = None, **inserted: Unpack[Inserted]) -> Tensor:
        """The CLS token after the final norm, (N, d): the first of ``tokens``."""
        return self.tokens(images, 1, view, **inserted)[:, 0]

    def read(self, images: Tensor, reading: Reading, view: VisionTransformer | None = None) -> Tensor:
        """What a ridge head reads of pictures, the CLS token of ``features`` first, view after view: (N, d′)."""
        views = [images, images.flip(3)] if reading.mirror else [images]
        return torch.cat([self.tokens(each, 1, view, reading=reading).flatten(1) for each in views], dim=1)

    def tokens(
        self,
        images: Tensor,
        count: int,
        view: VisionTransformer | None = None,
        reading: Reading = PLAIN,
        **inserted: Unpack[Inserted],
    ) -> Tensor:
        """Pictures in [0, 1], (N, 3, size, size) → the first ``count`` tokens after the final norm, (N, count, d).

        What else the ``reading`` asks for follows.
        """
        if images.ndim != 4 or images.shape[1:] != (3, self.size, self.size) or not images.is_floating_point():
            given = f"{tuple(images.shape)} of {str(images.dtype).removeprefix('torch.')}"
            raise SafeclError(
                f"{self.name} takes pictures in [0, 1] of shape (N, 3, {self.size}, {self.size}), not {given}; resize "
                "them, or set backbone.image_size=SIDE."
            )
        # The same tensor again for the same pictures: by its identity views know that these are embedded already.
        pictures = self._prepared(images, self._normalise)
        return tokens(self._ptm if view is None else view, pictures, count, reading=reading, **inserted).float()

    def _normalise(self, images: Tensor) -> Tensor:
        factor, offset = self._scale_offset
        return torch.addcmul(offset, images, factor).to(self.dtype)
