"""``train.accumulate``: what is learned does not depend on how many pieces a batch goes through the
network in.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.engine.batches import in_pieces
from safecl.engine.settings import TrainSettings
from safecl.learner import Learner
from safecl.methods.method import Batch, Method
from safecl.pet.settings import pet_settings

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LABELS = [["a", "b", "c"], ["d", "e"]]
SLOW = [
    *({"loss": "correlation", "reduction": how} for how in ("mean", "sum")),
    *({"loss": loss} for loss in ("fa", "la", "ssa", "none")),
]
FAST = [
    {"teacher": teacher, "cos_reduction": how, "cross_pooling": pooling}
    for teacher, how, pooling in (
        ("slow", "sum", "two_means"),
        ("slow", "mean", "concat"),
        ("previous", "sum", "concat"),
        ("ptm", "sum", "two_means"),
        ("none", "mean", "two_means"),
    )
]
SAFE = [{"name": "safe", "beyond": pilot, **each} for each in (*SLOW, *FAST) for pilot in (0, 0.75)]
OTHERS = [
    {"name": "rsiat", "pairs": 2.0, "pairs_warmup": 1},  # pairs of the batch
    {"name": "mos", "contrast": 2.0},  # every picture against all others
    {"name": "l2p", "top_k": 2, "batchwise": "train"},  # prompts by the vote of the batch
    {"name": "l2p", "top_k": 2},
    # by the place in the batch
    {
        "name": "dualprompt",
        "mixed_reshape": True,
        "g_length": 2,
        "e_length": 2,
    },
    {"name": "dualprompt", "g_length": 2, "e_length": 2},
    {"name": "coda", "components": 2, "length": 2},
    *(
        {"name": name}
        for name in ("siprompts", "slca", "lae", "finetune", "ranpac", "ease", "tuna", "aper")
    ),
]


def movements(method: Method, stream: Any, accumulate: int, tools: Any) -> list[dict[str, Tensor]]:
    """How far every phase of two sessions moves its parameters, in so many pieces."""
    starts: list[dict[str, Tensor]] = []
    found: list[dict[str, Tensor]] = []

    def values(module: nn.Module) -> dict[str, Tensor]:
        return {
            name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad
        }

    def note(name: str, module: nn.Module, data: Any) -> None:
        found.append({name: value - starts[-1][name] for name, value in values(module).items()})

    train = TrainSettings(
        epochs=2
        if method.settings.name == "rsiat"
        else 1,  # its loss on pairs begins with the second
        batch_size=6,
        lr=0.01,
        later_clip=None,
        guard=False,
        accumulate=accumulate,
    )
    fit = tools.new_fit(method, stream, train)
    fit.on_fit = lambda name, module, data: starts.append(values(module))
    fit.after_fit = note
    tools.teach(method, stream, fit=fit)
    return found


@pytest.mark.parametrize(
    "settings", [*SAFE, *OTHERS], ids=lambda chosen: " ".join(map(str, chosen.values()))
)
def test_a_batch_in_pieces_trains_by_the_loss_of_the_whole_batch(
    settings: dict[str, Any], backbone: Backbone, make_stream: Callable[..., Any], tools: Any
) -> None:
    """Of 12 pictures, and then 8, in batches of 6: one of the batches is short."""
    whole, pieces = (
        movements(
            tools.new_method(backbone, settings, "ssf"),
            make_stream(LABELS, train=4),
            accumulate,
            tools,
        )
        for accumulate in (1, 3)
    )
    assert len(whole) == len(pieces) >= 1
    for one, other in zip(whole, pieces, strict=True):
        most = max(float(moved.abs().max()) for moved in one.values())
        assert one.keys() == other.keys() and most > 0
        for name, expected in one.items():
            assert torch.allclose(other[name], expected, rtol=1e-3, atol=1e-3 * most), name


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_CUDA)])
@pytest.mark.parametrize("pet", ["adapter", "ssf", "vpt_deep", "lora", "prefix", "full"])
def test_a_piece_that_is_computed_again_has_the_same_gradient(
    pet: str,
    device: str,
    make_backbone: Callable[..., Backbone],
    images: Tensor,
    scramble: Callable[..., None],
) -> None:
    """With dropout too: what is computed again for the gradient draws the masks of the first
    time.
    """
    options = {"bottleneck": 4, "dropout": 0.5} if pet == "adapter" else {}
    learner = Learner(
        make_backbone(depth=1).to(torch.device(device)), pet_settings(pet, **options)
    ).train()
    scramble(learner)
    pictures = images.to(device)
    batch = Batch(pictures, torch.zeros(5), split=partial(in_pieces, 2))
    torch.manual_seed(0)
    features = batch.features(learner)
    found = torch.autograd.grad(features.square().sum(), list(learner.parameters()))
    torch.manual_seed(0)
    by_hand = torch.cat([learner.features(part) for part in pictures.split(2)])
    expected = torch.autograd.grad(by_hand.square().sum(), list(learner.parameters()))
    assert torch.equal(features, by_hand)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)
