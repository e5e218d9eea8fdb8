"""Build a timm ViT, fill it with weights, and make a backbone of it."""

import contextlib
import difflib
import inspect
import json
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import timm
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from timm.models import vision_transformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone import hub
from safecl.backbone.backbone import Backbone, PerChannel
from safecl.backbone.settings import EMBEDDED, PAPER, SIZES, SUFFIXES, BackboneSettings, embedded_weights, short_form
from safecl.errors import SafeclError, unknown
from safecl.ram import Bounded
from safecl.settings import explain

NORMALISATIONS: dict[str, tuple[PerChannel, PerChannel]] = {  # mean and deviation of pixels in [0, 1]
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
MAX_NUMBERS = 1 << 33  # of any network
MAX_DEPTH, MAX_OPTION = 256, 1 << 13  # blocks, and other numbers that a weight file may ask for
OTHERS = {*inspect.signature(timm.create_model).parameters, "name", "meta", "device", "dtype", "in_chans"}
WORDS = ("act_layer", "global_pool", "norm_layer", "pos_embed", "weight_init")  # options that may be text
MAX_TIMES, MAX_MORE = 16, 1 << 30  # a weight file may have optimisers, averages and classifiers beside the network


def load_backbone(settings: str | BackboneSettings, *, image_size: int | None = None) -> Backbone:
    """The network by its ``settings``, or by the name of a timm ViT, ``safecl_micro``, or a weight file with metadata.

    ``image_size``: side of the input; that of the settings, or the network's own, if not given.
    """
    values = short_form(settings) if isinstance(settings, str) else settings.model_dump()
    given = {} if image_size is None else {"image_size": image_size}
    try:
        settings = BackboneSettings.model_validate({**values, **given})
    except ValidationError as error:
        raise explain(error.errors()[0], "backbone.image_size") from None
    file = _weight_file(settings)
    facts = metadata(file) if file is not None else {}
    name = facts.get("timm_model", settings.name)
    try:
        options: dict[str, Any] = {**_plain(json.loads(facts.get("create_kwargs", "{}"))), "num_classes": 0}
        texts = {key: facts[key].strip("()[]").split(",") for key in ("mean", "std") if key in facts}
        own: dict[str, PerChannel] = {key: tuple(map(float, numbers)) for key, numbers in texts.items()}
        known = [*own.get("mean", (0, 0, 0)), *own.get("std", (1, 1, 1))]
        if len(known) != 6 or not all(abs(one) <= MAX_OPTION for one in known) or 0 in known[3:]:
            raise ValueError(f"mean and std cannot be {own!s:.99}")
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SafeclError(f"The metadata of the weight file {file} cannot be read ({error}).") from error
    if settings.image_size is not None:
        options["img_size"] = settings.image_size
    most = MAX_NUMBERS if file is None else min(MAX_NUMBERS, MAX_TIMES * file.stat().st_size + MAX_MORE // 16)
    with Bounded(most, f"{file or name} has more than {most:,} numbers with the options {options!s:.300}: too many."):
        vit = _create(name, options, pretrained=file is None and settings.weights != "random")
    size, patch = int(vit.patch_embed.img_size[0]), int(vit.patch_embed.patch_size[0])
    if size % patch:
        fitting = max(round(size / patch), 1) * patch
        raise SafeclError(f"backbone.image_size={size} cannot be cut into patches of {patch} pixels; try {fitting}.")
    if file is not None:
        _fill(vit, file)
    for key, value in vit.state_dict().items():
        if not value.isfinite().all():
            source = f"The weight file {file}" if file is not None else f"What the hub has for {name}"
            raise SafeclError(f"{source} holds NaN or infinite weights, first in {key!r}: fetch or export it again.")
    own = {**cast("dict[str, PerChannel]", vit.pretrained_cfg), **own}
    mean, std = NORMALISATIONS.get(settings.normalisation) or (tuple(own["mean"]), tuple(own["std"]))
    return Backbone(vit, name, size, mean, std)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """What a weight file, which may be anybody's, says of its network: no option that reads files, no large number."""
    for key, value in options.items():
        numbers, bound = value if key == "residual" else [value], MAX_DEPTH if key == "depth" else MAX_OPTION
        small = all(one is None or (isinstance(one, int | float) and abs(one) <= bound) for one in numbers)
        if key in OTHERS or not (small or key in WORDS) or max(len(numbers), len(options)) > MAX_DEPTH:
            raise ValueError(f"{key!r:.99} cannot be {value!r:.99}")
    return options


def _weight_file(settings: BackboneSettings) -> Path | None:
    if settings.weights is None:
        return embedded_weights() if settings.name == EMBEDDED else None
    if settings.weights == "random":
        return None
    file = Path(settings.weights).expanduser()
    if not file.is_file():
        raise SafeclError(f"The weight file {file} does not exist; give backbone.weights an existing file.")
    if file.suffix not in SUFFIXES:
        raise SafeclError(f"{file} is no weight file this can read; it must end in {', '.join(SUFFIXES)}.")
    return file


def _create(name: str, options: dict[str, Any], pretrained: bool) -> VisionTransformer:
    import safecl.backbone.micro  # noqa: F401  registers the embedded architecture with timm

    if not timm.is_model(name):
        known = [*SIZES, *timm.list_models("vit_*"), *timm.list_models("deit*"), EMBEDDED]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        choices = f"{', '.join(SIZES)}, or a timm ViT with a CLS token by its own name"  # too many for a list
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise SafeclError(f"There is no backbone {name!r}; choose one of {choices}{hint}.")
    architecture, _, tag = name.partition(".")
    tagged = timm.list_models(f"{architecture}.*", pretrained=True) if tag else []
    if tag and name not in tagged:
        raise unknown("backbone", name, tagged)
    if pretrained:
        _check_vit(name, _build(name, meta=True))  # before anything is downloaded
        warn_of_other_tag(name)
    try:
        with hub.quiet_hub():
            if pretrained:
                hub.check_hub(name)
            vit = _build(name, pretrained=pretrained, **options)
    except SafeclError:
        raise
    except Exception as error:  # timm takes any value, and fails where it is used
        if not pretrained or not isinstance(error, OSError | RuntimeError):
            raise SafeclError(f"{name} does not take the options {options!s:.300}: {_brief(error)}.") from error
        reason = str(error) if type(error) is ConnectionError else type(error).__name__
        raise SafeclError(
            f"The weights of {name} could not be fetched from the Hugging Face hub ({reason}); "
            "go online once, or give a local file as backbone.weights=FILE."
        ) from error
    return _check_vit(name, vit)


def _build(name: str, *, meta: bool = False, **options: Any) -> nn.Module:
    """timm's network. ``meta``: without values where that is possible; some networks read them while they are built."""
    # UserWarning: timm's on deprecated aliases; warn_of_other_tag has said what matters.
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", UserWarning)
        torch.manual_seed(0)  # random weights must be the same again when a run is resumed
        if meta:
            with contextlib.suppress(RuntimeError), torch.device("meta"):
                return timm.create_model(name, **options)
        return timm.create_model(name, **options)


def _check_vit(name: str, network: nn.Module) -> VisionTransformer:
    if not isinstance(network, VisionTransformer) or network.cls_token is None:
        raise SafeclError(f"{name} is no timm VisionTransformer with a CLS token; choose a ViT, DeiT or DINOv2 model.")
    return network


def warn_of_other_tag(name: str) -> None:
    """Warn where a name without a tag means other weights to timm than to the paper."""
    paper = PAPER["ViT-B/16-IN1K"]
    resolved = timm.get_pretrained_cfg(name) if name == paper.split(".")[0] else None
    if resolved is not None and resolved.tag and f"{name}.{resolved.tag}" != paper:
        read = f"timm reads {name!r} as {name}.{resolved.tag}"
        warnings.warn(f"{read}, which are not the paper's weights: write {paper!r} for those.", stacklevel=2)


def metadata(file: Path) -> dict[str, str]:
    if file.suffix != ".safetensors":
        return {}
    try:
        with safe_open(file, "pt") as opened:
            return opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise SafeclError(f"The weight file {file} is damaged or no safetensors file ({error}).") from error


def _fill(vit: VisionTransformer, file: Path) -> None:
    size, needed = file.stat().st_size, sum(value.nbytes for value in vit.state_dict().values())
    if size > MAX_TIMES * needed + MAX_MORE:
        raise SafeclError(f"The weight file {file} is for another network: it has {size / 1e9:,.1f} GB.")
    try:
        if file.suffix == ".npz":
            vit.load_pretrained(str(file))
            return
        content = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except UnpicklingError as error:
        raise SafeclError(f"The weight file {file} is damaged or holds more than weights: it is not read.") from error
    except Exception as error:  # whatever a damaged or foreign file makes the readers raise
        raise SafeclError(f"The weight file {file} is damaged or for another network ({_brief(error)}).") from error
    for wrapper in ("model", "state_dict"):
        content = content[wrapper] if isinstance(content, dict) and wrapper in content else content
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise SafeclError(f"The weight file {file} holds a {kind} where a dictionary of weights by name is needed.")
    weights = {key: value for key, value in content.items() if isinstance(value, Tensor)}
    try:
        state = vision_transformer.checkpoint_filter_fn(weights, vit)
    except Exception as error:
        raise SafeclError(f"The weight file {file} is for another network ({_brief(error)}).") from error
    for key, own in vit.state_dict().items():
        if key not in state:
            raise SafeclError(f"The weight file {file} lacks {key!r}: it is for another network.")
        if state[key].shape != own.shape:
            there, here = (" × ".join(map(str, shape)) for shape in (state[key].shape, own.shape))
            raise SafeclError(f"The weight file {file} is for another network: its {key!r} is {there}, not {here}.")
    vit.load_state_dict(state, strict=False)  # a classifier that comes along is ignored


def _brief(error: Exception) -> str:
    """The first line of what a library has to say."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
