"""What a timm network is, what may be read of it and which PETs it takes: known without its
weights.
"""

from dataclasses import dataclass
from typing import Any

from safecl.backbone.backbone import PerChannel
from safecl.backbone.families.find import made_for_any_size
from safecl.backbone.load import without_weights
from safecl.heads.reading import Widths
from safecl.pet.attach import possible


@dataclass(frozen=True)
class NetworkFacts:
    """Of a network by its ``name``.

    ``kind``: its class in timm. ``size``: the side of its pictures; ``fixed_size``: of all that it
    takes. ``parameters``: its numbers without a classifier. ``own``, ``earlier`` and ``patches``:
    what can be read of it, in words; ``widths``: how wide each of these is. ``pets``: the kinds
    that it takes; ``prompts``: whether methods of prompts take it. ``mean``, ``std``, ``crop`` and
    ``interpolation``: how timm prepares its pictures.
    """

    name: str
    kind: str
    size: int
    fixed_size: bool
    parameters: int
    widths: Widths
    own: str
    earlier: str
    patches: str | None
    pets: tuple[str, ...]
    prompts: bool
    mean: PerChannel
    std: PerChannel
    crop: float
    interpolation: str


def network_facts(name: str, image_size: int | None = None) -> NetworkFacts:
    """Of the network of this ``name``; nothing is downloaded, and nothing computed where timm can
    build it without values.
    """
    network, family = without_weights(name, image_size)
    facts: dict[str, Any] = network.pretrained_cfg
    return NetworkFacts(
        name=name,
        kind=type(network).__name__,
        size=family.size,
        fixed_size=bool(facts.get("fixed_input_size")) and not made_for_any_size(network),
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        widths=family.widths,
        own=family.own,
        earlier=family.earlier,
        patches=family.patches,
        pets=possible(family),
        prompts=family.inserts,
        mean=tuple(facts["mean"]),
        std=tuple(facts["std"]),
        crop=float(facts.get("crop_pct") or 1.0),
        interpolation=str(facts.get("interpolation") or "bicubic"),
    )
