"""The student while it is trained (heads, projections, BatchNorm in its stem), its teachers, and its export."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import safecl.backbone.micro as micro

TEACHER_SIDE = 112


class Normed(nn.Module):
    """A convolution and the BatchNorm that is folded into it at export."""

    def __init__(self, conv: nn.Conv2d, start: float = 1.0) -> None:
        super().__init__()
        self.conv, self.bn = conv, nn.BatchNorm2d(conv.out_channels)
        nn.init.constant_(self.bn.weight, start)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn(self.conv(x))
        return out


class Student(nn.Module):
    """The micro ViT, a linear head for each kind of picture, and linear maps to each teacher's features."""

    def __init__(self, shape: dict[str, Any], photographs: int, characters: int, teachers: list[int]) -> None:
        super().__init__()
        self.vit: VisionTransformer = timm.create_model(micro.NAME, **shape)
        self.grid = self.vit.patch_embed.grid_size[0]
        d = self.vit.embed_dim
        _add_norms(self.vit.patch_embed.stem)
        self.photographs, self.characters = nn.Linear(d, photographs), nn.Linear(d, max(1, characters))
        self.to_cls = nn.ModuleList(nn.Linear(d, width) for width in teachers)
        self.to_patches = nn.ModuleList(nn.Linear(d, width) for width in teachers)

    def forward(self, photographs: Tensor, characters: Tensor) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        """Logits of the photographs and of the characters; for each teacher (n, width) and (n, patches, width)."""
        n = len(photographs)
        tokens = self.vit.forward_features(normalised(torch.cat([photographs, characters])))
        cls, patches = tokens[:, 0], tokens[:n, 1:]
        return (
            self.photographs(cls[:n]),
            self.characters(cls[n:]),
            [to(cls[:n]) for to in self.to_cls],
            [to(patches) for to in self.to_patches],
        )


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
    """A copy of the network as the package builds it: BatchNorm folded, heads dropped."""
    vit = copy.deepcopy(student.vit).eval().float()
    _fold_norms(vit.patch_embed.stem)
    return vit


class Teacher(nn.Module):
    """A frozen larger ViT; its CLS and patch features come standardised by what it says of some first pictures."""

    def __init__(self, file: Path, dtype: torch.dtype) -> None:
        super().__init__()
        with safe_open(file, "pt") as opened:
            facts = opened.metadata()
            state = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118  not a dict
        options = {**json.loads(facts["create_kwargs"]), "img_size": TEACHER_SIDE, "num_classes": 0}
        self.vit: VisionTransformer = timm.create_model(facts["timm_model"], **options)
        self.vit.load_state_dict(checkpoint_filter_fn(_unpacked(state), self.vit), strict=False)
        self.vit.eval().requires_grad_(False).to(dtype)
        colours = [[float(v) for v in facts[name].strip("[]()").split(",")] for name in ("mean", "std")]
        self.register_buffer("colours", torch.tensor(colours).view(2, 1, 3, 1, 1))
        self.width, self.dtype = int(self.vit.embed_dim), dtype
        self.register_buffer("moments", torch.stack([torch.zeros(2, self.width), torch.ones(2, self.width)]))

    def raw(self, x: Tensor, grid: int) -> tuple[Tensor, Tensor]:
        """Pictures in [0, 1] → CLS (n, width) and patches averaged to the student's grid (n, grid², width)."""
        x = F.interpolate(x, size=TEACHER_SIDE, mode="bicubic", align_corners=False)
        tokens = self.vit.forward_features(((x - self.colours[0]) / self.colours[1]).to(self.dtype))
        side = TEACHER_SIDE // self.vit.patch_embed.patch_size[0]
        patches = tokens[:, self.vit.num_prefix_tokens :].transpose(1, 2).unflatten(2, (side, side))
        patches = F.adaptive_avg_pool2d(patches.float(), grid).flatten(2).transpose(1, 2)
        return tokens[:, 0].float(), patches

    def settle(self, x: Tensor, grid: int) -> None:
        """Take mean and deviation of the features from these pictures."""
        cls, patches = self.raw(x, grid)
        for i, features in enumerate((cls, patches.flatten(0, 1))):
            self.moments[0, i], self.moments[1, i] = features.mean(0), features.std(0) + 1e-3

    def forward(self, x: Tensor, grid: int) -> tuple[Tensor, Tensor]:
        cls, patches = self.raw(x, grid)
        return (cls - self.moments[0, 0]) / self.moments[1, 0], (patches - self.moments[0, 1]) / self.moments[1, 1]


def _unpacked(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """float32; weights kept as int8 rows (``.int8``) with one ``.scale`` each are multiplied out."""
    plain: dict[str, Tensor] = {}
    for key, value in state.items():
        if key.endswith(".int8"):
            name = key.removesuffix(".int8")
            plain[name] = value.float() * state[f"{name}.scale"].float().reshape(-1, *[1] * (value.ndim - 1))
        elif not key.endswith(".scale"):
            plain[key] = value.float()
    return plain


def save(student: Student, shape: dict[str, Any], file: Path, facts: dict[str, Any]) -> None:
    """float16 safetensors with timm key names, by atomic rename."""
    state = {key: value.half().contiguous().cpu() for key, value in plain(student).state_dict().items()}
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
