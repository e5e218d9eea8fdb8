"""The teacher, the student while it is trained (heads for labels, BatchNorm in its stem), and its
export.
"""

import copy
import json
import math
import os
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import safecl.backbone.micro as micro

# of the student's inputs in training; its position embedding is kept at the largest
SIZES = (
    64,
    96,
    128,
)


def read_network(file: Path, size: int | None = None) -> tuple[VisionTransformer, Tensor]:
    """A timm ViT from safetensors with metadata, at ``size``, and its pixels' mean and deviation
    (2, 1, 3, 1, 1).
    """
    with safe_open(file, "pt") as opened:
        facts = opened.metadata()
        state = {key: opened.get_tensor(key).float() for key in opened.keys()}  # noqa: SIM118  not a dict
    options = {**json.loads(facts["create_kwargs"]), "num_classes": 0}
    if size is not None:
        options["img_size"] = size
    vit: VisionTransformer = timm.create_model(facts["timm_model"], **options)
    missing = vit.load_state_dict(checkpoint_filter_fn(state, vit), strict=False).missing_keys
    if missing:
        raise SystemExit(f"{file} lacks {', '.join(missing)}.")
    colours = [[float(v) for v in facts[name].strip("[]()").split(",")] for name in ("mean", "std")]
    return vit.eval().requires_grad_(False), torch.tensor(colours).view(2, 1, 3, 1, 1)


def through_blocks(vit: VisionTransformer, x: Tensor) -> tuple[Tensor, Tensor]:
    """Embedded tokens (n, 1 + g², d) → the CLS feature (n, d) and the patch tokens it reads last
    (n, g², d).
    """
    for block in vit.blocks[:-1]:
        x = block(x)
    return vit.norm(vit.blocks[-1](x)[:, 0]), x[:, 1:]


class Teacher(nn.Module):
    """A frozen ViT; its features come standardised by their moments over some first pictures."""

    def __init__(self, file: Path, dtype: torch.dtype) -> None:
        super().__init__()
        vit, colours = read_network(file)
        self.vit = vit.to(dtype)
        self.dtype = dtype
        self.size = int(vit.patch_embed.img_size[0])
        self.register_buffer("colours", colours)

    def forward(self, x: Tensor, grid: int) -> tuple[Tensor, Tensor]:
        """Pictures in [0, 1] at its size → CLS (n, d) and patch tokens averaged to a smaller grid
        (n, grid², d).
        """
        x = ((x - self.colours[0]) / self.colours[1]).to(self.dtype)
        cls, patches = through_blocks(self.vit, self.vit._pos_embed(self.vit.patch_embed(x)))
        return cls, pooled(patches, grid)


def pooled(patches: Tensor, grid: int) -> Tensor:
    """Patch tokens (n, g², d) averaged to another grid: (n, grid², d)."""
    side = math.isqrt(patches.shape[1])
    if side == grid:
        return patches
    image = patches.transpose(1, 2).unflatten(2, (side, side))
    return F.adaptive_avg_pool2d(image, grid).flatten(2).transpose(1, 2)


class Normed(nn.Module):
    """A convolution and the BatchNorm that is folded into it at export."""

    def __init__(self, conv: nn.Conv2d, start: float = 1.0) -> None:
        super().__init__()
        self.conv = conv
        self.bn = nn.BatchNorm2d(conv.out_channels, momentum=0.01)
        nn.init.constant_(self.bn.weight, start)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn(self.conv(x))
        return out


class Student(nn.Module):
    """The micro ViT, its blocks begun as copies of the teacher's, and linear heads for photographs
    and characters.
    """

    def __init__(
        self, shape: dict[str, Any], teacher: VisionTransformer, classes: int, characters: int
    ) -> None:
        super().__init__()
        self.vit: VisionTransformer = timm.create_model(micro.NAME, img_size=SIZES[-1], **shape)
        self.stride = int(self.vit.patch_embed.patch_size[0])
        start = {
            key: value
            for key, value in teacher.state_dict().items()
            if not key.startswith("patch_embed")
        }
        start["pos_embed"] = self.positions(start["pos_embed"].float(), SIZES[-1] // self.stride)
        fitting = {
            key: value.shape
            for key, value in self.vit.state_dict().items()
            if not key.startswith("patch_embed")
        }
        if fitting != {key: value.shape for key, value in start.items()}:
            raise SystemExit(
                "Width, depth and heads of the student must be the teacher's: it begins with its"
                " blocks."
            )
        self.vit.load_state_dict(start, strict=False)
        _add_norms(self.vit.patch_embed.stem)
        self.classes = nn.Linear(self.vit.embed_dim, classes)
        self.characters = nn.Linear(self.vit.embed_dim, characters)

    @staticmethod
    def positions(embedding: Tensor, grid: int) -> Tensor:
        """A position embedding (1, 1 + g², d) at another grid, as timm resamples it when weights
        are loaded.
        """
        return resample_abs_pos_embed(embedding, [grid, grid], num_prefix_tokens=1)

    def forward(
        self, photographs: Tensor, drawings: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pictures in [0, 1] → CLS (n, d), patch tokens (n, g², d) and logits of photographs,
        logits of drawings.
        """
        x = torch.cat([photographs, drawings])
        n = len(photographs)
        grid = x.shape[-1] // self.stride
        x = self.vit.patch_embed(normalised(x).contiguous(memory_format=torch.channels_last))
        x = torch.cat([self.vit.cls_token.expand(len(x), -1, -1), x], 1) + self.positions(
            self.vit.pos_embed, grid
        )
        cls, patches = through_blocks(self.vit, x)
        return cls[:n], patches[:n], self.classes(cls[:n]), self.characters(cls[n:])


def normalised(x: Tensor) -> Tensor:
    """[0, 1] to what the micro ViT takes."""
    return (x - micro.MEAN[0]) / micro.STD[0]


def _add_norms(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d):
            # A residual block starts as the identity.
            setattr(module, name, Normed(child, start=0.0 if name == "conv2" else 1.0))
        else:
            _add_norms(child)


def _fold_norms(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, Normed):
            setattr(module, name, fuse_conv_bn_eval(child.conv, child.bn))
        else:
            _fold_norms(child)


def plain(student: Student) -> VisionTransformer:
    """A copy of the network as the package builds it: BatchNorm folded, the heads dropped."""
    vit = copy.deepcopy(student.vit).eval().float()
    _fold_norms(vit.patch_embed.stem)
    return vit


def save(student: Student, shape: dict[str, Any], file: Path, facts: dict[str, Any]) -> None:
    """float16 safetensors with timm key names, by atomic rename."""
    state = {
        key: value.half().contiguous().cpu() for key, value in plain(student).state_dict().items()
    }
    metadata = {
        "timm_model": micro.NAME,
        "create_kwargs": json.dumps(shape),
        "mean": ",".join(map(str, micro.MEAN)),
        "std": ",".join(map(str, micro.STD)),
        **{key: json.dumps(value) for key, value in facts.items()},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    save_file(state, partial, metadata)
    os.replace(partial, file)
