"""What only a GPU can show: kernels against the lines of torch beside them, and recorded steps against plain ones."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from safecl.backbone import Backbone, kernels
from safecl.engine.fit import Fitting, TrainSettings
from safecl.engine.progress import Quiet
from safecl.heads import RidgeSettings
from safecl.learner import Learner
from safecl.pet import PetSettings
from safecl.randomness import generator
from safecl.streams.images import Transform
from safecl.streams.stream import Stream

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CUDA = torch.device("cuda")
LABELS = ["a", "b", "c"]


def both(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *inputs: Any) -> list[tuple[Tensor, Tensor]]:
    """What a kernel gives and what torch gives."""
    fast = function(*inputs)
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "fast", None)
        plain = function(*inputs)
    pairs = [(fast, plain)] if isinstance(fast, Tensor) else list(zip(fast, plain, strict=True))
    return [(one.float(), other.float()) for one, other in pairs]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("rows, width", [(1, 24), (37, 384), (500, 768), (9456, 1024), (3, 3072)])
def test_kernels_give_what_torch_gives(
    rows: int, width: int, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels.fast is None:
        pytest.skip("needs triton")
    generator = torch.Generator(CUDA).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=CUDA)

    g, x, weight, bias = (draw(*shape).to(dtype) for shape in ((rows, width), (rows, width), (width,), (width,)))
    scale, shift = draw(width) + 2, draw(width)
    results = [
        both(monkeypatch, kernels.layer_norm, x, weight, bias, 1e-6),
        both(monkeypatch, kernels.merged_weights, draw(width, 40).to(dtype), bias, scale, shift),
        both(monkeypatch, kernels.merged_weights, draw(width, 40).to(dtype), None, scale, shift),
        *(both(monkeypatch, kernels.scale_gradients, g, x, scale, shift, gelu) for gelu in (False, True)),
    ]
    _, mean, spread = torch.native_layer_norm(x, (width,), weight, bias, 1e-6)
    results.append(both(monkeypatch, kernels.layer_norm_gradient, g, x, mean, spread, weight, bias))
    for pairs in results:
        for one, other in pairs:
            assert torch.allclose(one, other, atol=tolerance * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("kind", ["ssf", "adapter", "vpt_deep", "vpt_shallow", "lora"])
def test_bf16_features_and_gradients_point_where_float32_ones_do(
    kind: Any, make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        learner = Learner(make_backbone().to(CUDA, dtype), PetSettings(kind=kind), RidgeSettings(size=5))
        scramble(learner.pet)
        features = learner.features(images.to(CUDA))
        gradients = torch.autograd.grad(features.pow(3).mean(), list(learner.pet.parameters()))
        found.append((features.flatten(), torch.cat([gradient.flatten() for gradient in gradients])))
    for one, other in zip(*found, strict=True):
        assert torch.cosine_similarity(one, other, dim=0) > 0.99


def trained(
    backbone: Backbone, stream: Stream, graphs: bool, kind: Any, trick: Callable[[Tensor], Tensor] = lambda loss: loss
) -> tuple[Tensor, list[str], list[float]]:
    """Parameters after a phase of training, what was said meanwhile, and the losses that were noted."""
    learner = Learner(backbone, PetSettings(kind=kind, bottleneck=4), RidgeSettings(size=20))
    learner.cosine.grow_random(3, generator(0, "head"))
    method: Any = SimpleNamespace(classes=LABELS)
    settings = TrainSettings(epochs=6, batch_size=4, lr=0.05, clip=1.0, graphs=graphs)
    fit = Fitting(Accelerator(), method, settings, Transform(16, margin=1.0), 0, Quiet())
    said: list[str] = []
    fit.progress.say = said.append  # type: ignore[method-assign]

    def loss(images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"cls": trick(nn.functional.cross_entropy(learner.cosine(learner.features(images)), targets))}

    fit("fast", learner, stream.open(1), loss)
    parameters = torch.cat([p.detach().flatten() for p in learner.parameters()])
    return parameters, said, [line["loss"] for line in fit.losses]


@pytest.mark.parametrize("kind", ["ssf", "adapter", "vpt_deep"])
def test_recorded_steps_end_where_plain_ones_do(
    kind: Any, make_backbone: Callable[..., Backbone], make_stream: Callable[..., Stream]
) -> None:
    """Nine pictures in batches of four: two shapes are recorded. Dropout has the same masks."""
    results = []
    for graphs in (True, False):
        backbone = make_backbone(depth=1).to(CUDA, torch.float32)
        results.append(trained(backbone, make_stream([LABELS], train=3), graphs, kind))
    (fast, said, losses), (plain, _, expected) = results
    assert torch.allclose(fast, plain, atol=1e-4) and not said
    assert losses == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", ["ssf", "adapter"])
def test_a_step_that_cannot_be_recorded_runs_as_it_is_and_says_so(
    kind: Any, make_backbone: Callable[..., Backbone], make_stream: Callable[..., Stream]
) -> None:
    """Also where it draws random numbers; and the phase after it is recorded again."""

    def phase(graphs: bool, trick: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[str], list[float]]:
        backbone = make_backbone(depth=1).to(CUDA, torch.float32)
        return trained(backbone, make_stream([LABELS], train=3), graphs, kind, trick)

    looked: list[float] = []
    found, said, _ = phase(True, lambda loss: looked.append(float(loss.detach())) or loss)
    expected, _, _ = phase(False, lambda loss: loss)
    assert torch.allclose(found, expected, atol=1e-4) and len(looked) == 18
    assert len(said) == 1 and said[0].startswith("This step cannot be recorded as a CUDA graph")
    calls: list[int] = []
    found, said, _ = phase(True, lambda loss: calls.append(1) or loss)
    assert torch.allclose(found, expected, atol=1e-4) and not said
    assert len(calls) == 4  # two shapes: one plain call and one recording each
