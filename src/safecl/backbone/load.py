"""Build a timm network, fill it with weights, and make a backbone of it."""

import contextlib
import difflib
import inspect
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import timm
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from safecl.backbone import hub
from safecl.backbone.backbone import Backbone, PerChannel
from safecl.backbone.families.family import Family
from safecl.backbone.families.find import family_of, side
from safecl.backbone.families.sequence import KINDS
from safecl.backbone.settings import (
    EMBEDDED,
    PAPER,
    SIZES,
    SUFFIXES,
    BackboneSettings,
    embedded_weights,
    short_form,
)
from safecl.errors import SafeclError, unknown
from safecl.ram import Bounded
from safecl.settings import explain

NORMALISATIONS: dict[
    str, tuple[PerChannel, PerChannel]
] = {  # mean and deviation of pixels in [0, 1]
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
MAX_NUMBERS = 1 << 33  # of any network
MAX_DEPTH = 256
MAX_OPTION = 1 << 13  # blocks, and other numbers that a weight file may ask for
OTHERS = {
    *inspect.signature(timm.create_model).parameters,
    "name",
    "meta",
    "device",
    "dtype",
    "in_chans",
}
# options that may be text
WORDS = (
    "act_layer",
    "global_pool",
    "norm_layer",
    "pos_embed",
    "weight_init",
)
# options with a number for each stage
LISTS = ("residual", "depths", "dims", "embed_dims", "num_heads")
COUNTERS = "num_batches_tracked"  # of batch norms, which a file may leave out
MAX_TIMES = 16
MAX_MORE = 1 << 30  # a weight file may have optimisers, averages and classifiers beside the network


def load_backbone(settings: str | BackboneSettings, *, image_size: int | None = None) -> Backbone:
    """The network by its ``settings``, or by the name of a timm network, ``safecl_micro``, or a
    weight file with metadata.

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
        options: dict[str, Any] = {
            **_plain(json.loads(facts.get("create_kwargs", "{}"))),
            "num_classes": 0,
        }
        texts = {
            key: facts[key].strip("()[]").split(",") for key in ("mean", "std") if key in facts
        }
        own: dict[str, PerChannel] = {
            key: tuple(map(float, numbers)) for key, numbers in texts.items()
        }
        known = [*own.get("mean", (0, 0, 0)), *own.get("std", (1, 1, 1))]
        if len(known) != 6 or not all(abs(one) <= MAX_OPTION for one in known) or 0 in known[3:]:
            raise ValueError(f"mean and std cannot be {own!s:.99}")
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SafeclError("backbone.weights.metadata", file=file, error=error) from error
    if settings.image_size is not None:
        options["img_size"] = settings.image_size
    most = (
        MAX_NUMBERS
        if file is None
        else min(MAX_NUMBERS, MAX_TIMES * file.stat().st_size + MAX_MORE // 16)
    )
    with Bounded(
        most,
        SafeclError("backbone.too-large", source=file or name, most=most, options=options),
    ):
        network = _create(name, options, pretrained=file is None and settings.weights != "random")
    size = _size(name, network, settings.image_size)
    if file is not None:
        _fill(network, file)
    for key, value in network.state_dict().items():
        if not value.isfinite().all():
            source = (
                f"The weight file {file}" if file is not None else f"What the hub has for {name}"
            )
            raise SafeclError("backbone.weights.not-finite", source=source, key=key)
    own = {**cast("dict[str, PerChannel]", network.pretrained_cfg), **own}
    mean, std = NORMALISATIONS.get(settings.normalisation) or (
        tuple(own["mean"]),
        tuple(own["std"]),
    )
    return Backbone(network, name, size, mean, std)


def _size(name: str, network: Any, wanted: int | None) -> int:
    """The side of the pictures that a network takes; one that it does not take is refused."""
    own = side(network)
    size = wanted or own
    if isinstance(network, KINDS):
        patch = int(network.patch_embed.patch_size[0])
        if size % patch:
            fitting = max(round(size / patch), 1) * patch
            raise SafeclError("backbone.size.patches", size=size, patch=patch, fitting=fitting)
        return own
    try:
        family_of(network.eval(), size)
    except Exception as error:  # whatever timm's networks raise
        if size == own:
            raise SafeclError("backbone.network.unread", name=name, error=_brief(error)) from error
        told = _brief(error)
        raise SafeclError(
            "backbone.size.refused", name=name, size=size, own=own, error=told
        ) from error
    return size


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """What a weight file, which may be anybody's, says of its network: no option that reads files,
    no large number.
    """
    for key, value in options.items():
        numbers = value if key in LISTS and isinstance(value, list) else [value]
        bound = MAX_DEPTH if key.startswith("depth") else MAX_OPTION
        small = all(
            one is None or (isinstance(one, int | float) and abs(one) <= bound) for one in numbers
        )
        if (
            key in OTHERS
            or not (small or key in WORDS)
            or max(len(numbers), len(options)) > MAX_DEPTH
        ):
            raise ValueError(f"{key!r:.99} cannot be {value!r:.99}")
    return options


def _weight_file(settings: BackboneSettings) -> Path | None:
    if settings.weights is None:
        return embedded_weights() if settings.name == EMBEDDED else None
    if settings.weights == "random":
        return None
    file = Path(settings.weights).expanduser()
    if not file.is_file():
        raise SafeclError("backbone.weights.missing", file=file)
    if file.suffix not in SUFFIXES:
        raise SafeclError("backbone.weights.suffix", file=file, suffixes=", ".join(SUFFIXES))
    return file


def without_weights(name: str, image_size: int | None = None) -> tuple[Any, Family]:
    """The network of this name, without values where timm can build it so, and its family."""
    _check_name(name)
    options = {} if image_size is None else {"img_size": image_size}
    network: Any = _sized(name, meta=True, num_classes=0, **options)
    return network.eval(), family_of(network, _size(name, network, image_size))


def _check_name(name: str) -> None:
    import safecl.backbone.micro  # noqa: F401  registers the embedded architecture with timm

    if not timm.is_model(name):
        known = [*SIZES, *timm.list_models(), EMBEDDED]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        choices = (  # too many for a list
            f"{', '.join(SIZES)}, or a timm network by its own name"
        )
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise SafeclError("backbone.name.unknown", name=name, choices=choices, hint=hint)
    architecture, _, tag = name.partition(".")
    tagged = timm.list_models(f"{architecture}.*", pretrained=True) if tag else []
    if tag and name not in tagged:
        raise unknown("backbone", name, tagged)


def _create(name: str, options: dict[str, Any], pretrained: bool) -> nn.Module:
    _check_name(name)
    if pretrained:
        without_weights(name, options.get("img_size"))  # before anything is downloaded
        warn_of_other_tag(name)
    try:
        file = hub.fetch(name) if pretrained else None
        # From the file that is at hand: timm would ask the hub for a newer one.
        own = {} if file is None else {"file": str(file), "custom_load": False}
        return _sized(name, pretrained=pretrained, pretrained_cfg_overlay=own, **options)
    except SafeclError:
        raise
    except Exception as error:  # timm takes any value, and fails where it is used
        if not pretrained or not isinstance(error, OSError | RuntimeError):
            raise SafeclError(
                "backbone.options.refused", name=name, options=options, error=_brief(error)
            ) from error
        raise hub.offline(name, error) from error


def _build(name: str, *, meta: bool = False, **options: Any) -> nn.Module:
    """timm's network. ``meta``: without values where that is possible; some networks read them
    while they are built.
    """
    # UserWarning: timm's on deprecated aliases; warn_of_other_tag has said what matters.
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", UserWarning)
        torch.manual_seed(0)  # random weights must be the same again when a run is resumed
        if meta:
            with contextlib.suppress(RuntimeError), torch.device("meta"):
                return timm.create_model(name, **options)
        return timm.create_model(name, **options)


def _sized(name: str, **options: Any) -> nn.Module:
    """The same, where ``img_size`` is left out for a network that takes any."""
    try:
        return _build(name, **options)
    except TypeError as error:
        if "'img_size'" not in str(error):
            raise
    side = options.pop("img_size")
    facts = timm.get_pretrained_cfg(name)
    if facts is not None and facts.fixed_input_size and facts.input_size[-1] != side:
        fixed = facts.input_size[-1]
        raise SafeclError("backbone.size.fixed", name=name, fixed=fixed, size=side)
    return _build(name, **options)


def warn_of_other_tag(name: str) -> None:
    """Warn where a name without a tag means other weights to timm than to the paper."""
    paper = PAPER["ViT-B/16-IN1K"]
    resolved = timm.get_pretrained_cfg(name) if name == paper.split(".")[0] else None
    if resolved is not None and resolved.tag and f"{name}.{resolved.tag}" != paper:
        read = f"timm reads {name!r} as {name}.{resolved.tag}"
        warnings.warn(
            f"{read}, which are not the paper's weights: write {paper!r} for those.", stacklevel=2
        )


def metadata(file: Path) -> dict[str, str]:
    if file.suffix != ".safetensors":
        return {}
    try:
        with safe_open(file, "pt") as opened:
            return opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise SafeclError("backbone.weights.no-safetensors", file=file, error=error) from error


def _fill(network: Any, file: Path) -> None:
    size = file.stat().st_size
    needed = sum(value.nbytes for value in network.state_dict().values())
    if size > MAX_TIMES * needed + MAX_MORE:
        raise SafeclError("backbone.weights.too-large", file=file, gigabytes=size / 1000000000.0)
    try:
        if file.suffix == ".npz":
            network.load_pretrained(str(file))
            return
        content = (
            load_file(file)
            if file.suffix == ".safetensors"
            else torch.load(file, "cpu", weights_only=True)
        )
    except UnpicklingError as error:
        raise SafeclError("backbone.weights.more-than-weights", file=file) from error
    except Exception as error:  # whatever a damaged or foreign file makes the readers raise
        raise SafeclError("backbone.weights.unreadable", file=file, error=_brief(error)) from error
    for wrapper in ("model", "state_dict"):
        content = content[wrapper] if isinstance(content, dict) and wrapper in content else content
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise SafeclError("backbone.weights.no-dictionary", file=file, kind=kind)
    weights = {key: value for key, value in content.items() if isinstance(value, Tensor)}
    try:
        state = _as_timm(network)(weights, network)
    except Exception as error:
        raise SafeclError(
            "backbone.weights.other-network", file=file, error=_brief(error)
        ) from error
    for key, own in network.state_dict().items():
        if key not in state and not key.endswith(COUNTERS):
            raise SafeclError("backbone.weights.lacking", file=file, key=key)
        if key in state and state[key].shape != own.shape:
            there, here = (" × ".join(map(str, shape)) for shape in (state[key].shape, own.shape))
            raise SafeclError("backbone.weights.shape", file=file, key=key, there=there, here=here)
    network.load_state_dict(state, strict=False)  # a classifier that comes along is ignored


def _as_timm(network: nn.Module) -> Callable[[dict[str, Tensor], nn.Module], dict[str, Tensor]]:
    """What timm does to weights under the names that their authors gave them."""
    module = sys.modules[type(network).__module__]
    return getattr(module, "checkpoint_filter_fn", lambda weights, _: weights)


def _brief(error: Exception) -> str:
    """The first line of what a library has to say."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
