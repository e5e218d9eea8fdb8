"""``safecl_micro``: the small ViT whose weights ship with the package, a timm ViT with a
convolutional stem.

A small ViT learns local detail slowly from patches; the convolutions before the first block compute
it. They are frozen below every PET, which therefore has no backward pass through them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import timm
from timm.layers.patch_embed import PatchEmbed
from timm.models import register_model
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from safecl.backbone.settings import EMBEDDED, BackboneSettings

NAME = EMBEDDED
SIZE = 64
PHOTOGRAPH_SIZE = (
    128  # side of the input: its own, and for photographs; trained at both and between
)
MEAN = STD = (0.5, 0.5, 0.5)  # pixels in [0, 1] are taken to [-1, 1]


def sized(
    settings: BackboneSettings, shorter: int, option: str = ""
) -> tuple[BackboneSettings, str | None]:
    """The settings with the side of the input, and a sentence on it with ``option`` before a
    setting, if not given.

    ``shorter``: half of the pictures have at least this shorter side.
    """
    if settings.name != EMBEDDED or settings.weights is not None or settings.image_size is not None:
        return settings, None
    size = PHOTOGRAPH_SIZE if shorter >= (SIZE + PHOTOGRAPH_SIZE) // 2 else SIZE
    other = f"{option}backbone.image_size={SIZE} takes a quarter of the time"
    if size == SIZE:
        other = f"try {option}backbone.image_size={PHOTOGRAPH_SIZE} for more detail"
    told = (
        f"{EMBEDDED} reads the pictures at {size} × {size} pixels (half of them have {shorter} or"
        f" more); {other}."
    )
    return settings.model_copy(update={"image_size": size}), told


class Residual(nn.Module):
    """Two 3×3 convolutions beside the identity: (N, c, h, w) → (N, c, h, w)."""

    def __init__(self, channels: int, **made: Any) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, **made)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, **made)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x + self.conv2(F.gelu(self.conv1(x))))


class ConvStem(PatchEmbed):
    """Pictures (N, 3, S, S) → tokens (N, (S / stride)², d).

    One stage for each halving but the last: a 3×3 convolution of stride 2, then ``residual``
    blocks; the channels double from ``width``. The last halving is the projection. BatchNorm is
    folded into the convolutions.
    """

    def __init__(
        self,
        patch_size: int = 16,
        in_chans: int = 3,
        embed_dim: int = 192,
        width: int = 32,
        residual: Sequence[int] = (),
        **options: Any,
    ) -> None:
        super().__init__(patch_size=patch_size, in_chans=in_chans, embed_dim=embed_dim, **options)
        made: dict[str, Any] = {key: options.get(key) for key in ("device", "dtype")}
        layers: list[nn.Module] = []
        inside = in_chans
        outside = width
        for stage in range(patch_size.bit_length() - 2):
            layers += [nn.Conv2d(inside, outside, 3, stride=2, padding=1, **made), nn.GELU()]
            layers += [
                Residual(outside, **made)
                for _ in range(residual[stage] if stage < len(residual) else 0)
            ]
            inside = outside
            outside = 2 * outside
        self.stem = nn.Sequential(*layers)
        self.proj = nn.Conv2d(
            inside, embed_dim, 2, stride=2, bias=self.proj.bias is not None, **made
        )

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.norm(self.proj(self.stem(x)).flatten(2).transpose(1, 2))
        return tokens


def safecl_micro(
    pretrained: bool = False, width: int = 32, residual: Sequence[int] = (0, 1, 1), **options: Any
) -> VisionTransformer:
    """The model as timm creates it. ``patch_size``: the stem's stride, a power of two."""
    for handed_by_timm in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"):
        options.pop(handed_by_timm, None)
    own: dict[str, Any] = {
        "img_size": SIZE,
        "patch_size": 16,
        "embed_dim": 192,
        "depth": 12,
        "num_heads": 3,
        "num_classes": 0,
        "global_pool": "token",
        "embed_layer": partial(ConvStem, width=width, residual=tuple(residual)),
        "norm_layer": partial(nn.LayerNorm, eps=1e-6),
    }
    vit = VisionTransformer(**{**own, **options})
    facts = {"architecture": NAME, "input_size": (3, SIZE, SIZE), "mean": MEAN, "std": STD}
    for attribute in ("pretrained_cfg", "default_cfg"):
        vit.__dict__[attribute] = facts
    return vit


if not timm.is_model(NAME):
    register_model(safecl_micro)
