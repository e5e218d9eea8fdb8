"""The backbone: a frozen pre-trained timm ViT, from pictures to the CLS feature after the final norm."""

import json
import warnings
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, TypeAlias, cast

import timm
import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from timm.layers.patch_embed import PatchEmbed
from timm.models import vision_transformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.errors import SafeclError, unknown
from safecl.layers import use_layers
from safecl.settings import Settings
from safecl.view import Once, cls_feature, shared_view

EMBEDDED = "safecl_micro"
Normalisation: TypeAlias = Literal["none", "half", "imagenet", "auto"]
Colours: TypeAlias = tuple[float, ...]

# The two sets of weights of the paper, by the names it uses for them.
PAPER = {
    "ViT-B/16-IN1K": "vit_base_patch16_224.augreg_in21k_ft_in1k",
    "ViT-B/16-IN21K": "vit_base_patch16_224.augreg_in21k",
}
SUFFIXES = (".safetensors", ".npz", ".pth", ".pt", ".bin")


class BackboneSettings(Settings):
    """Which ViT, with which weights, at which size."""

    name: str = Field(EMBEDDED, description="a timm model name with its weight tag, or the embedded safecl_micro")
    weights: str | None = Field(None, description="a local weight file, or 'random'; the model's own if not given")
    image_size: int | None = Field(None, gt=0, description="side of the input; the model's own if not given")
    normalisation: Normalisation = Field("auto", description="of pixels in [0, 1]: none, half, imagenet, or auto")


class Backbone:
    """A frozen ViT and the pixel normalisation that goes with it.

    ``vit`` itself is never changed: a learner attaches its PET to a view of it.
    """

    gathered: Callable[[Tensor], Tensor] | None = None  # the engine's, while several processes share a batch

    def __init__(self, vit: VisionTransformer, name: str, size: int, mean: Colours, std: Colours) -> None:
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
        self._colours = factor, -torch.tensor(self.mean, device=device).view(3, 1, 1) * factor
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
        factor, offset = self._colours
        return torch.addcmul(offset, images, factor).to(self.dtype)


def load_backbone(settings: BackboneSettings) -> Backbone:
    """Build the network, fill it, and resample its position embedding to the image size."""
    file = _weight_file(settings)
    facts = _metadata(file) if file is not None else {}
    name = facts.get("timm_model", settings.name)
    try:
        options: dict[str, Any] = {**json.loads(facts.get("create_kwargs", "{}")), "num_classes": 0}
        colours: dict[str, Colours] = {key: _numbers(facts[key]) for key in ("mean", "std") if key in facts}
    except (TypeError, ValueError) as error:
        raise SafeclError(f"The metadata of the weight file {file} cannot be read ({error}).") from error
    if settings.image_size is not None:
        options["img_size"] = settings.image_size
    vit = _create(name, options, pretrained=file is None and settings.weights != "random")
    size, patch = int(vit.patch_embed.img_size[0]), int(vit.patch_embed.patch_size[0])
    if size % patch:
        fitting = max(round(size / patch), 1) * patch
        raise SafeclError(f"backbone.image_size={size} cannot be cut into patches of {patch} pixels; try {fitting}.")
    if file is not None:
        _fill(vit, file)
    mean, std = _colours(settings.normalisation, vit, colours)
    return Backbone(vit, name, size, mean, std)


def _weight_file(settings: BackboneSettings) -> Path | None:
    if settings.weights == "random":
        return None
    if settings.weights is not None:
        file = Path(settings.weights).expanduser()
        if not file.is_file():
            raise SafeclError(f"The weight file {file} does not exist; give backbone.weights an existing file.")
        if file.suffix not in SUFFIXES:
            raise SafeclError(f"{file} is no weight file this can read; it must end in {', '.join(SUFFIXES)}.")
        return file
    if settings.name == EMBEDDED:
        return embedded_weights()
    return None


def embedded_weights() -> Path:
    """The weights that ship inside the package."""
    file = Path(str(resources.files("safecl") / "weights" / f"{EMBEDDED}.safetensors"))
    if not file.is_file():
        raise SafeclError(f"The embedded weights are missing from the installation ({file}); install safecl again.")
    return file


def _create(name: str, options: dict[str, Any], pretrained: bool) -> VisionTransformer:
    import safecl.micro  # noqa: F401  registers the embedded architecture with timm

    if not timm.is_model(name):
        raise unknown("backbone", name, [*timm.list_models("vit_*"), *timm.list_models("deit*"), EMBEDDED])
    architecture, _, tag = name.partition(".")
    tagged = timm.list_models(f"{architecture}.*", pretrained=True) if tag else []
    if tag and name not in tagged:
        raise unknown("backbone", name, tagged)
    if pretrained:
        point_out_tag(name)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore", UserWarning)  # timm's words on deprecated aliases; ours are above
            torch.manual_seed(0)  # random weights must be the same again when a run is resumed
            vit = timm.create_model(name, pretrained=pretrained, **options)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise SafeclError(
            f"The weights of {name} could not be fetched ({type(error).__name__}); "
            "go online once, or give a local file as backbone.weights=FILE."
        ) from error
    except TypeError as error:
        raise SafeclError(f"{name} does not take the options {options}: {error}.") from error
    if not isinstance(vit, VisionTransformer) or vit.cls_token is None:
        raise SafeclError(f"{name} is no timm VisionTransformer with a CLS token; choose a ViT, DeiT or DINOv2 model.")
    return vit


def point_out_tag(name: str) -> None:
    """Warn where a name without a tag means other weights to timm than to the paper."""
    if "." in name or timm.is_model(name) is False:
        return
    tags = {paper.split(".")[0]: paper for paper in [PAPER["ViT-B/16-IN1K"]]}
    resolved = timm.get_pretrained_cfg(name, allow_unregistered=True)
    tag = resolved.tag if resolved is not None else ""
    if name in tags and tag and f"{name}.{tag}" != tags[name]:
        warnings.warn(
            f"timm reads {name!r} as {name}.{tag}, which are not the paper's weights: write {tags[name]!r} for those.",
            stacklevel=2,
        )


def _metadata(file: Path) -> dict[str, str]:
    if file.suffix != ".safetensors":
        return {}
    try:
        with safe_open(file, "pt") as opened:
            return opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise SafeclError(f"The weight file {file} is damaged or no safetensors file ({error}).") from error


def _fill(vit: VisionTransformer, file: Path) -> None:
    try:
        if file.suffix == ".npz":
            vit.load_pretrained(str(file))
            return
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(file)
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
        state = vision_transformer.checkpoint_filter_fn(state, vit)
        state = {key: value.float() for key, value in state.items()}
    except UnpicklingError as error:
        raise SafeclError(
            f"The weight file {file} is damaged or holds more than weights, so it is not read."
        ) from error
    except Exception as error:  # whatever a damaged or foreign file makes the readers raise
        raise SafeclError(f"The weight file {file} is damaged or for another network ({_brief(error)}).") from error
    for key, own in vit.state_dict().items():
        if key not in state:
            raise SafeclError(f"The weight file {file} lacks {key!r}: it is for another network.")
        if state[key].shape != own.shape:
            there, here = (" × ".join(map(str, shape)) for shape in (state[key].shape, own.shape))
            raise SafeclError(f"The weight file {file} is for another network: its {key!r} is {there}, not {here}.")
    vit.load_state_dict(state, strict=False)  # a classifier that comes along is not wanted


def _brief(error: Exception) -> str:
    """The first line of what a library has to say."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")


def _colours(normalisation: Normalisation, vit: VisionTransformer, own: dict[str, Colours]) -> tuple[Colours, Colours]:
    if normalisation == "none":
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if normalisation == "half":
        return (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    if normalisation == "imagenet":
        return (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    own = {**cast("dict[str, Colours]", vit.pretrained_cfg), **own}
    return tuple(own["mean"]), tuple(own["std"])


def _numbers(text: str) -> Colours:
    return tuple(float(part) for part in text.strip("()[]").split(","))
