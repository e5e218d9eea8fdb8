"""A ViT written out by hand, in float64, from a state dict: what each PET is compared with."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.pet.settings import VptSettings

State = dict[str, Tensor]
After = Callable[[str, Tensor], Tensor]


def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-6) -> Tensor:
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


def reference(
    vit: VisionTransformer,
    images: Tensor,
    after: After = lambda place, x: x,
    beside: Callable[[int, Tensor], Tensor] | None = None,
    prompts: dict[int, Tensor] | None = None,
    dropped: tuple[int, ...] = (),
    weights: State | None = None,
    inserted: Tensor | None = None,
    prefixes: dict[int, tuple[Tensor, Tensor]] | None = None,
    learned: dict[int, tuple[Tensor, Tensor]] | None = None,
    beside_attention: Callable[[int, Tensor], Tensor] | None = None,
) -> Tensor:
    """All tokens after the final norm: (N, L, d).

    ``after(place, x)`` may change the output of any layer (SSF); ``beside(i, x)`` is added next to
    the MLP of block i, from the residual stream (adapter); ``prompts[i]`` are appended before block
    i, and after each block of ``dropped`` as many tokens are cut off at the end (VPT); ``weights``
    stand in for those of ``vit``. ``inserted`` tokens (N, L, d) follow the CLS token;
    ``prefixes[i]`` are keys and values (N, P, d) before those of block i, and ``learned[i]`` more
    of them, (P, d), of a PET. ``beside_attention(i, y)`` is added next to the attention of block i,
    from what it reads.
    """
    w = {key: value.double() for key, value in (weights or vit.state_dict()).items()}
    x = images.double()
    n = len(x)
    patch = vit.patch_embed.patch_size[0]
    heads = vit.blocks[0].attn.num_heads
    cells = x.unfold(2, patch, patch).unfold(3, patch, patch)  # (N, 3, rows, columns, patch, patch)
    cells = cells.permute(0, 2, 3, 1, 4, 5).reshape(n, -1, 3 * patch * patch)
    x = cells @ w["patch_embed.proj.weight"].flatten(1).T + w["patch_embed.proj.bias"]
    x = after("patches", x)
    first = [
        w[key].expand(n, -1, -1) for key in ("cls_token", "dist_token", "reg_token") if key in w
    ]
    if vit.no_embed_class:
        x = torch.cat([*first, x + w["pos_embed"]], dim=1)
    else:
        x = torch.cat([*first, x], dim=1) + w["pos_embed"]
    if inserted is not None:
        x = torch.cat([x[:, :1], inserted, x[:, 1:]], dim=1)
    for i in range(len(vit.blocks)):

        def layer(name: str, i: int = i) -> tuple[Tensor, Tensor]:
            return w[f"blocks.{i}.{name}.weight"], w[f"blocks.{i}.{name}.bias"]

        def linear(name: str, x: Tensor, i: int = i) -> Tensor:
            weight, bias = layer(name, i)
            return after(f"{i}_{name.split('.')[-1]}", x @ weight.T + bias)

        if prompts and i in prompts:
            x = torch.cat([x, prompts[i].double().expand(n, -1, -1)], dim=1)
        y = after(f"{i}_norm1", norm(x, *layer("norm1")))
        q, k, v = linear("attn.qkv", y).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        if f"blocks.{i}.attn.q_norm.weight" in w:
            q = norm(q, *layer("attn.q_norm"))
            k = norm(k, *layer("attn.k_norm"))
        for given in (prefixes, learned):
            if given and i in given:
                keys, values = (
                    each.expand(n, -1, -1).unflatten(2, (heads, -1)).transpose(1, 2)
                    for each in given[i]
                )
                k = torch.cat([keys, k], dim=2)
                v = torch.cat([values, v], dim=2)
        mixed = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]), dim=-1) @ v
        a = beside_attention(i, y) if beside_attention is not None else 0
        y = linear("attn.proj", mixed.transpose(1, 2).flatten(2))
        x = x + y * w.get(f"blocks.{i}.ls1.gamma", 1) + a
        y = after(f"{i}_norm2", norm(x, *layer("norm2")))
        y = linear("mlp.fc1", y)
        y = linear("mlp.fc2", y * (1 + torch.erf(y / math.sqrt(2))) / 2)
        a = beside(i, x) if beside is not None else 0
        x = x + y * w.get(f"blocks.{i}.ls2.gamma", 1) + a
        if i in dropped:
            x = x[:, : x.shape[1] - len(next(iter((prompts or {}).values())))]
    return after("norm", norm(x, w["norm.weight"], w["norm.bias"]))


@pytest.fixture(name="reference", scope="session")
def _reference() -> Callable[..., Tensor]:
    return reference


def tuned(kind: str, vit: VisionTransformer, pet: nn.ModuleDict) -> dict[str, Any]:
    """What ``reference`` takes for a PET with default settings that is attached to ``vit``."""
    if kind == "adapter":

        def beside(i: int, x: Tensor) -> Tensor:
            down = pet[str(i)].down
            up = pet[str(i)].up
            hidden = (x @ down.weight.double().T + down.bias.double()).clamp(min=0)
            return 0.1 * (hidden @ up.weight.double().T + up.bias.double())

        return {"beside": beside}
    if kind == "ssf":
        return {"after": lambda at, x: x * pet[at].scale.double() + pet[at].shift.double()}
    if kind == "lora":
        weights = vit.state_dict()
        for i, lora in pet.items():
            rank = len(lora.down) // 2
            q = lora.up[0] @ lora.down[:rank]
            v = lora.up[1] @ lora.down[rank:]
            change = 8.0 / rank * torch.cat([q, torch.zeros_like(q), v]).double()
            weights[f"blocks.{i}.attn.qkv.weight"] = (
                weights[f"blocks.{i}.attn.qkv.weight"].double() + change
            )
        return {"weights": weights}
    if kind == "prefix":
        return {
            "learned": {
                int(i): tuple(each.scale.double() * each.tokens.double()) for i, each in pet.items()
            }
        }
    if kind == "full":
        return {"weights": pet["vit"].state_dict(keep_vars=True)}
    if kind.startswith("vpt"):
        # The same numbers; the gradient is multiplied by the rate, as that of the prompts is.
        rate = VptSettings().rate
        prompts = {int(i): rate * p.tokens + (1 - rate) * p.tokens.detach() for i, p in pet.items()}
        depth = len(vit.blocks)
        return {
            "prompts": prompts,
            "dropped": tuple(range(depth)) if kind == "vpt_deep" else (depth - 1,),
        }
    return {}


@pytest.fixture(name="tuned", scope="session")
def _tuned() -> Callable[..., dict[str, Any]]:
    return tuned


FAMILIES: dict[str, dict[str, Any]] = {
    "vit": {},
    "dinov2 with registers": {"reg_tokens": 4, "init_values": 1e-5, "no_embed_class": True},
    "deit": {"kind": VisionTransformerDistilled},
    "qk_norm": {"qk_norm": True},
}


@pytest.fixture(params=FAMILIES, scope="session")
def vit(
    request: pytest.FixtureRequest, make_vit: Callable[..., VisionTransformer]
) -> VisionTransformer:
    """A frozen tiny network of each family, in float64: in float32 the order of sums differs
    between processors.
    """
    return make_vit(**FAMILIES[request.param]).double().requires_grad_(False)


@pytest.fixture
def images(images: Tensor) -> Tensor:
    """The same pictures in float64."""
    return images.double()
