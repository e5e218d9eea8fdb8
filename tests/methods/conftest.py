"""Methods of every make on a tiny backbone, and the engine's own training loop to teach them
with.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.engine.fit import Trainer
from safecl.engine.learn import learn
from safecl.engine.progress import Progress
from safecl.engine.settings import TrainSettings
from safecl.heads.settings import RidgeSettings
from safecl.methods.catalog import make_method, method_settings
from safecl.methods.method import Loss, Method
from safecl.methods.safe import SAFE
from safecl.pet.settings import pet_settings
from safecl.streams.stream import Stream

METHODS = method_settings()
BEYOND = ("pilots", "limit", "average", "release", "untuned")  # groups of SAFE that have a switch
TRAIN = TrainSettings(epochs=1, batch_size=4, lr=0.05)
PLAIN: dict[str, Any] = {"layers": 1, "patches": False, "mirror": False}
RIDGE = RidgeSettings(size=40, **PLAIN)
READING_MORE = RidgeSettings(size=40, patches=True, mirror=True)
APART = RidgeSettings(size=40, blocks="apart")
ONE_BETA = RidgeSettings(size=40, betas=(5.0,), scale="absolute", **PLAIN)

# Every method, some with switches, and SAFE with its switches on other sides than the default,
# several at a time.
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in METHODS},
    "finetune linear local": {"name": "finetune", "head": "linear", "softmax": "local"},
    "ranpac without projection": {"name": "ranpac", "ridge": RidgeSettings(project=False, **PLAIN)},
    "safe that chooses what to read": {"name": "safe", "ridge": RidgeSettings(size=40)},
    "ranpac that reads more": {
        "name": "ranpac",
        "ridge": READING_MORE.model_copy(update={"project": False}),
    },
    "safe that reads more": {"name": "safe", "ridge": READING_MORE},
    "safe that reads blocks apart": {"name": "safe", "ridge": APART},
    **{
        "safe " + " ".join(f"{key}={value}" for key, value in switches.items()): {
            "name": "safe",
            **switches,
        }
        for switches in (
            {"teacher": "none", "aggregation": "add", "loss": "none"},
            {"teacher": "ptm", "aggregation": "max", "loss": "fa", "new_rows": "zero"},
            {
                "teacher": "previous",
                "aggregation": "concat",
                "statistics": "shared",
                "loss": "la",
                "beyond": False,
                "temperature": "learned",
            },
            {
                "lambda_cross": 0.0,
                "loss": "ssa",
                "beyond": False,
                "statistics": "shared",
                "aggregation": "add",
            },
            {
                "new_rows": "zero",
                "slow_rows": "keep",
                "reset_scale": True,
                "cross_pooling": "concat",
                "cos_reduction": "sum",
                "statistics": "shared",
                "aggregation": "entropy",
                "beyond": False,
            },
            {"reduction": "mean", "lambda_diag": 1.0, "beyond": False},
            {
                "teacher": "ptm",
                "cross_pooling": "concat",
                "slow_rows": "keep",
                "aggregation": "concat",
                "statistics": "stale",
            },
        )
    },
}


class Watched(Trainer):
    """The engine's training loop; tells what it was asked for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls: list[tuple[int, str]] = []
        self.on_fit: Callable[[str, Any, Any], None] = lambda name, module, data: None
        self.after_fit: Callable[[str, Any, Any], None] = lambda name, module, data: None
        self.around: Callable[[Loss], Loss] = lambda loss: loss

    @torch.enable_grad()  # for what is looked at beside the steps
    def __call__(self, name: str, module: nn.Module, data: Any, loss: Loss, **options: Any) -> None:
        self.calls.append((self.session, name))
        self.on_fit(name, module, data)
        super().__call__(name, module, data, self.around(loss), **options)
        self.after_fit(name, module, data)


def new_method(
    backbone: Backbone,
    settings: dict[str, Any],
    pet: str = "adapter",
    seed: int = 0,
    ridge: RidgeSettings = RIDGE,
) -> Method:
    """A method that has learned nothing yet; a PET or a ridge head goes to those that have one."""
    kind = METHODS[settings["name"]]
    tiny = {
        "pet": pet_settings(pet, **({"bottleneck": 4} if pet == "adapter" else {})),
        "ridge": ridge,
    }
    groups = {name: value for name, value in tiny.items() if name in kind.model_fields}
    return make_method(
        kind(**{**SHORT.get(settings["name"], {}), **groups, **grouped(settings)}), backbone, seed
    )


def grouped(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a method with those of its groups inside them: ``gamma`` in ``answer``."""
    fields = METHODS[settings["name"]].model_fields
    found = dict[str, Any]()
    for key, value in settings.items():
        if key == "beyond":  # all that SAFE has beyond its paper, as it learns; or pilots so long
            found |= {name: {"use": bool(value)} for name in BEYOND}
            if value and value is not True:
                found["pilots"]["epochs"] = value
        elif key in fields:
            found[key] = value
        else:
            group = next(
                name
                for name, field in fields.items()
                if key in getattr(type(field.default), "model_fields", ())
            )
            found.setdefault(group, {})[key] = value
    return found


SHORT: dict[str, dict[str, Any]] = {
    **{
        name: {"align_epochs": 1, "align_samples": 4}
        for name in ("slca", "ssiat", "tuna", "mos", "rsiat")
    },
    "siprompts": {"length": 2},
    "loranpac": {"size": 16},
}


def new_fit(
    method: Method,
    stream: Stream,
    train: TrainSettings = TRAIN,
    seed: int = 0,
    folder: Path | None = None,
) -> Watched:
    return Watched(Accelerator(cpu=True), method, train, stream.transform, seed, Progress(), folder)


def teach(
    method: Method,
    stream: Stream,
    first: int = 1,
    last: int | None = None,
    fit: Watched | None = None,
) -> Watched:
    """Learn the sessions ``first`` to ``last``, as a run does."""
    fit = fit or new_fit(method, stream)
    for number in range(first, (last or len(stream)) + 1):
        learn(method, stream.open(number), fit)
    return fit


def snapshot(method: Method) -> dict[str, Tensor]:
    """The state as it is now, whatever is learned later."""
    return {key: value.detach().clone() for key, value in method.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Equal to the bit; pytest shows what is printed when a test fails."""
    differing = [key for key in {**one, **other} if key not in one or key not in other]
    differing += [key for key in one.keys() & other.keys() if not torch.equal(one[key], other[key])]
    if differing:
        print("These differ:", *sorted(differing))
    return not differing


def forward(
    backbone: Backbone, images: Tensor, prompts: Tensor | None = None, prefixes: Any = None
) -> Tensor:
    """All tokens after the final norm (N, L, d), written out: prompts (N, P, d) after the CLS
    token, keys and values (N, P, d) by block before those of attention.
    """
    vit: Any = backbone.network
    x = vit._pos_embed(vit.patch_embed(2 * images - 1))  # the tiny backbone takes pixels to [-1, 1]
    if prompts is not None:
        x = torch.cat([x[:, :1], prompts, x[:, 1:]], dim=1)
    for i, block in enumerate(vit.blocks):
        y = block.norm1(x)
        q, k, v = (y @ block.attn.qkv.weight.T + block.attn.qkv.bias).chunk(3, dim=2)
        if prefixes is not None and i in prefixes:
            k = torch.cat([prefixes[i][0], k], dim=1)
            v = torch.cat([prefixes[i][1], v], dim=1)
        heads = []
        for a, b, c in zip(
            *(each.split(block.attn.head_dim, dim=2) for each in (q, k, v)), strict=True
        ):
            heads.append(torch.softmax(a @ b.transpose(1, 2) / block.attn.head_dim**0.5, dim=2) @ c)
        x = x + block.attn.proj(torch.cat(heads, dim=2))
        x = x + block.mlp(block.norm2(x))
    return vit.norm(x)


class Tools:
    """What is above, where a test can reach it."""

    new_method = staticmethod(new_method)
    new_fit = staticmethod(new_fit)
    teach = staticmethod(teach)
    snapshot = staticmethod(snapshot)
    same = staticmethod(same)
    forward = staticmethod(forward)
    ridge = RIDGE


@pytest.fixture(scope="session")
def tools() -> type[Tools]:
    return Tools


# Switches are part of everyday tests where a method is watched; elsewhere they are slow.
EVERY = [pytest.param(name, marks=() if name in METHODS else pytest.mark.slow) for name in VARIANTS]


@pytest.fixture(scope="session", params=EVERY)
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of every method."""
    return VARIANTS[request.param]


# SAFE and RanPAC are watched on every kind of stream, other methods and the switches of SAFE on the
# one that has known and new classes in a session; the rest is slow.
WATCHED = [
    pytest.param((name, protocol), marks=() if often else pytest.mark.slow)
    for name in VARIANTS
    for protocol in (("class", "domain", "mixed") if name in METHODS else ("class", "mixed"))
    for often in [name in ("safe", "ranpac") or protocol == "mixed"]
]


@pytest.fixture(scope="session", params=WATCHED, ids=" on ".join)
def watched(request: pytest.FixtureRequest) -> tuple[dict[str, Any], str]:
    """Settings of a method, and the kind of stream to watch it on."""
    name, protocol = request.param
    return VARIANTS[name], protocol


@pytest.fixture(scope="session")
def backbone(make_backbone: Callable[..., Backbone]) -> Backbone:
    return make_backbone(depth=1)


@pytest.fixture
def new(backbone: Backbone, tools: Any) -> Callable[..., SAFE]:
    """``new(ridge=…, pet=…, **switches)``: a SAFE that has learned nothing."""

    def make(ridge: RidgeSettings = ONE_BETA, pet: str = "adapter", **switches: Any) -> SAFE:
        return tools.new_method(backbone, {"name": "safe", **switches}, pet, ridge=ridge)

    return make
