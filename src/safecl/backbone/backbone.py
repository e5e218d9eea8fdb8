"""The backbone: a frozen pre-trained timm network, from pictures to features."""

from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeAlias, Unpack

import torch
from timm.layers.patch_embed import PatchEmbed
from torch import Tensor, nn

from safecl.backbone.families.find import family_of
from safecl.backbone.families.vit import Vit
from safecl.backbone.layers import use_layers
from safecl.backbone.view import Inserted, Once, rounding, tokens
from safecl.errors import SafeclError
from safecl.heads.reading import PLAIN, Reading

PerChannel: TypeAlias = tuple[float, ...]


class Backbone:
    """A frozen ``network`` of a ``name``, for inputs of side ``size``, with the ``mean`` and
    ``std`` of its pixels.

    It takes the network over: layers of a ViT are replaced by faster ones under the same names, and
    the weights are frozen and moved. A PET is attached to a view of it, and changes neither its
    modules nor its weights. What may be read of it, its ``family`` says.
    """

    def __init__(
        self, network: nn.Module, name: str, size: int, mean: PerChannel, std: PerChannel
    ) -> None:
        self.network: Any = network.eval().requires_grad_(False)
        self.family = family_of(network, size)
        if isinstance(self.family, Vit):
            use_layers(self.family.network)
            embedding: Any = self.network.patch_embed
            if type(embedding) is not PatchEmbed:  # convolutions, which are faster in this layout
                embedding.to(memory_format=torch.channels_last)
        self._ptm = self.family.view(network)
        self.name = name
        self.size = size
        self.widths = self.family.widths
        self.width = self.widths.own
        self.mean = mean
        self.std = std
        self.to(torch.device("cpu"))

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> "Backbone":
        """Move it, and choose the precision of weights and activations.

        Pictures, features, the weights of norms and the parameters of PETs stay float32; so do all
        weights of a family that does not round them.
        """
        if dtype != torch.float32:
            _ = self.digest  # of the weights before they are rounded
        self.network.train().eval()  # what some networks keep of their weights is forgotten
        for module in self.network.modules():
            rounds = self.family.rounds and not isinstance(module, nn.LayerNorm)
            precision = dtype if rounds else torch.float32
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                tensor.data = tensor.data.to(
                    device, precision if tensor.is_floating_point() else None
                )
        factor = 1 / torch.tensor(self.std, device=device).view(3, 1, 1)
        self._scale_offset = factor, -torch.tensor(self.mean, device=device).view(3, 1, 1) * factor
        self.dtype = dtype
        self._prepared = Once()  # forgets pictures of the device and precision before
        return self

    def __repr__(self) -> str:
        precision = str(self.dtype).removeprefix("torch.")
        return (
            f"<Backbone {self.name}: inputs of {self.size}, {self.width} features, {precision} on"
            f" {self.device}>"
        )

    @cached_property
    def digest(self) -> str:
        """The fingerprint of the weights as they were loaded: blake2b of their names, shapes and
        float32 values.

        Of a position embedding that was resampled only the shape counts: its last bits differ from
        machine to machine.
        """
        facts = getattr(self.network, "pretrained_cfg", None) or {}
        resampled = facts.get("input_size", (self.size,))[-1] != self.size
        digest = blake2b(digest_size=16)
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
            if name != "pos_embed" or not resampled:
                digest.update(tensor.cpu().float().contiguous().numpy().astype("<f4", copy=False))
        return digest.hexdigest()

    @property
    def device(self) -> torch.device:
        parameter: Tensor = next(self.network.parameters())
        return parameter.device

    @property
    def margin(self) -> float | None:
        """What the shorter side of a picture has, in units of the input's, before the central crop:
        as the network's own configuration asks for, or None for what is usual (a ViT with a CLS
        token, which we measured so).
        """
        crop = (getattr(self.network, "pretrained_cfg", None) or {}).get("crop_pct")
        return None if isinstance(self.family, Vit) or not crop else 1 / crop

    @property
    def blocks(self) -> int:
        """How many there are into which prefixes can be inserted."""
        self.check_inserts()
        return len(self.network.blocks)

    @property
    def cls_position(self) -> Tensor:
        """The position embedding of the CLS token (d,), in float32; zeros where the network has
        none.
        """
        self.check_inserts()
        if self.network.pos_embed is None or self.network.no_embed_class:
            return torch.zeros(self.width, device=self.device)
        position: Tensor = self.network.pos_embed[0, 0]
        return position.float()

    def check_inserts(self) -> None:
        """Refuse a network that takes no prompts and prefixes with its pictures."""
        if not self.family.inserts:
            raise SafeclError("backbone.inserts.none", name=self.name)

    def features(self, images: Tensor, view: Any = None, **inserted: Unpack[Inserted]) -> Tensor:
        """The network's own feature of pictures in [0, 1], (N, 3, size, size) → (N, d): of a ViT
        the CLS token after the final norm, which ``inserted`` tokens may change.
        """
        if inserted:
            return self.tokens(images, 1, view, **inserted)[:, 0]
        return self.read(images, PLAIN, view)

    def read(self, images: Tensor, reading: Reading, view: Any = None) -> Tensor:
        """What a ridge head reads of pictures, that of ``features`` first, view after view:
        (N, d′).
        """

        def ask(network: Any, pictures: Tensor) -> Tensor:
            return self.family.read(network, pictures, reading)

        views = [images, images.flip(3)] if reading.mirror else [images]
        return torch.cat([self.through(each, view, ask) for each in views], dim=1)

    def tokens(
        self, images: Tensor, count: int, view: Any = None, **inserted: Unpack[Inserted]
    ) -> Tensor:
        """Pictures in [0, 1], (N, 3, size, size) → the first ``count`` tokens of a ViT after the
        final norm, (N, count, d).
        """
        self.check_inserts()
        return self.through(
            images, view, lambda network, pictures: tokens(network, pictures, count, **inserted)
        )

    def through(self, images: Tensor, view: Any, ask: Callable[[Any, Tensor], Tensor]) -> Tensor:
        """One forward pass: what ``ask`` makes of the network or a view of it and of normalised
        pictures.
        """
        if (
            images.ndim != 4
            or images.shape[1:] != (3, self.size, self.size)
            or not images.is_floating_point()
        ):
            given = f"{tuple(images.shape)} of {str(images.dtype).removeprefix('torch.')}"
            raise SafeclError(
                "backbone.pictures.shape", name=self.name, size=self.size, given=given
            )
        # The same tensor again for the same pictures: by its identity views know that these are
        # embedded already.
        pictures = self._prepared(images, self._normalise)
        network = self._ptm if view is None else view
        with rounding(network, pictures):
            return ask(network, pictures).float()

    def _normalise(self, images: Tensor) -> Tensor:
        factor, offset = self._scale_offset
        return torch.addcmul(offset, images, factor).to(self.dtype)
