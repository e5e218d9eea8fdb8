"""A model's weights as safetensors: a tuned learner as timm loads it, or all learners and heads
with the card.
"""

import json
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save
from torch import Tensor

import safecl
from safecl.backbone.backbone import Backbone
from safecl.backbone.families.find import made_for_any_size
from safecl.backbone.load import load_backbone, metadata
from safecl.classifier.answers.card import licence, model_card, without_folders
from safecl.classifier.model import Model
from safecl.errors import SafeclError, unknown
from safecl.learner import Learner
from safecl.methods.method import Method
from safecl.methods.parts import heads_of, plain
from safecl.outputs import write_output
from safecl.pet.ssf import ScaleShift

MAX_DIFFERENCE = 1e-3  # of features, in units of their size, between timm's network and the learner


def export_timm(
    model: Model, path: Path, learner: str | None = None, *, force: bool = False
) -> float:
    """Write a tuned learner as timm's weights; gives how far timm's features are from its, in units
    of their size.
    """
    method = model.method(load_backbone(model.settings.backbone))
    network = _chosen(method, learner)
    state = _timm_state(network)
    options: dict[str, Any] = {**_options(model, method), "num_classes": 0}
    twin: Any = timm.create_model(method.backbone.name, **options).eval()
    if missing := sorted(state.keys() ^ twin.state_dict().keys()):
        raise SafeclError(
            "export.timm.other-weights", backbone=method.backbone.name, key=missing[0]
        )
    twin.load_state_dict(state)
    mean, std = (
        torch.tensor(each).view(3, 1, 1) for each in (method.backbone.mean, method.backbone.std)
    )
    random = torch.Generator().manual_seed(0)
    images = torch.rand(4, 3, method.backbone.size, method.backbone.size, generator=random)
    with torch.no_grad():
        wanted = network.features(images)
        found = method.backbone.family.features(twin, (images - mean) / std)
    difference = float((wanted - found).abs().max() / wanted.abs().max())
    if difference > MAX_DIFFERENCE:
        raise SafeclError("export.timm.other-features", difference=difference)
    plain = {name: tensor.contiguous() for name, tensor in state.items()}
    write_output(path, save(plain, _facts(model, method)), "safetensors", force)
    return difference


def export_safetensors(model: Model, path: Path, *, force: bool = False) -> int:
    """Write the learners as far as they can be merged, else backbone and PET, and the heads; gives
    the bytes.
    """
    method = model.method(load_backbone(model.settings.backbone))
    learners = {name: part for name, part in method.named_modules() if isinstance(part, Learner)}
    merged = {name: _timm_state(part) for name, part in learners.items() if _merges(part)}
    found = {
        f"{name}.{key}": value for name, state in merged.items() for key, value in state.items()
    }
    read = (plain(method.networks[name]) for name in heads_of(method))
    if len(merged) < len(learners) or not learners or any(one is method.backbone for one in read):
        found |= {
            f"backbone.{key}": value for key, value in method.backbone.network.state_dict().items()
        }
    left_out = tuple(f"{name}." for name in merged) + method.learning
    for name, value in method.state_dict().items():
        if not name.startswith(left_out) and not name.endswith("_extra_state"):
            found[name] = value
    buffers = method.named_buffers(remove_duplicate=False)  # heads share what is drawn by one seed
    found |= {
        name.replace(".project.", "."): value
        for name, value in buffers
        if name.endswith("projection")
    }
    tensors = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in found.items()
        if value.numel()
    }
    data = save(tensors, _facts(model, method))
    write_output(path, data, "safetensors", force)
    return len(data)


def _chosen(method: Method, learner: str | None) -> Learner | Backbone:
    """The learner of that name; the only one, or the backbone itself, if none is given."""
    there = {name: part for name, part in method.named_modules() if isinstance(part, Learner)}
    if learner is not None and learner not in there:
        raise unknown("learner", learner, there or ["none"])
    if learner is None and len(there) > 1:
        raise SafeclError("export.timm.several-learners", learners=" or ".join(there))
    name = learner or next(iter(there), None)
    return method.backbone if name is None else there[name]


def _merges(network: Learner | Backbone) -> bool:
    """Whether the tuning can be a part of the weights."""
    return not isinstance(network, Learner) or network.settings.kind in (
        "ssf",
        "lora",
        "full",
        "none",
    )


def _timm_state(network: Learner | Backbone) -> dict[str, Tensor]:
    """The weights of a learner with its PET merged into them, or of the backbone, by timm's
    names.
    """
    if not isinstance(network, Learner):
        return {name: value.clone() for name, value in network.network.state_dict().items()}
    if not _merges(network):
        kind = network.settings.kind
        raise SafeclError("export.timm.beside", kind=kind)
    network.fuse()
    fused: Any = network.fused
    state = {name: value.clone() for name, value in network.backbone.network.state_dict().items()}
    state |= {name: value.clone() for name, value in fused.state_dict().items()}
    after = getattr(getattr(fused, "patch_embed", None), "norm", None)
    # an SSF after the projection of the patches, which has no norm
    if isinstance(after, ScaleShift):
        scale, shift = (state.pop(f"patch_embed.norm.{name}") for name in ("scale", "shift"))
        weight = state["patch_embed.proj.weight"]
        bias = state.get("patch_embed.proj.bias", torch.zeros_like(shift))
        state["patch_embed.proj.weight"] = weight * scale.view(-1, 1, 1, 1)
        state["patch_embed.proj.bias"] = bias * scale + shift
    return state


def _options(model: Model, method: Method) -> dict[str, Any]:
    """What timm needs to build the backbone: its size, and what its weight file says."""
    file = model.settings.backbone.weights
    given = metadata(Path(file).expanduser()) if file and file != "random" else {}
    backbone = method.backbone
    size = {"img_size": backbone.size} if made_for_any_size(backbone.network) else {}
    return {**json.loads(given.get("create_kwargs", "{}")), **size}


def _facts(model: Model, method: Method) -> dict[str, str]:
    """What a reader of the file wants to know; the first four are those of any weight file that
    safecl reads.
    """
    backbone = method.backbone
    header = without_folders(model.header)
    return {
        "timm_model": backbone.name,
        "create_kwargs": json.dumps(_options(model, method)),
        "mean": str(backbone.mean),
        "std": str(backbone.std),
        "safecl": safecl.__version__,
        "classes": json.dumps(model.classes, ensure_ascii=False),
        "licence": licence(header),
        "card": model_card(header),
        "settings": json.dumps(header["settings"]),
        "transform": json.dumps(header["transform"]),
        "calibration": json.dumps(header["calibration"]),
    }
