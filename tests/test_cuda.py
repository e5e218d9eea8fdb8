"""What only a GPU can show: kernels against the lines of torch beside them, and recorded steps against plain ones."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from safecl.backbone import kernels
from safecl.backbone.backbone import Backbone
from safecl.engine.fit import Fitting, TrainSettings
from safecl.engine.progress import Quiet
from safecl.heads import RidgeHead, RidgeSettings
from safecl.learner import Learner, random_rows
from safecl.pet.attach import attach
from safecl.pet.settings import PETS, pet_settings
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
    ]
    _, mean, spread = torch.native_layer_norm(x, (width,), weight, bias, 1e-6)
    results.append(both(monkeypatch, kernels.layer_norm_gradient, g, x, mean, spread, weight, bias))
    for offset in (bias, None):
        results.append(both(monkeypatch, kernels.norm_scale_gradients, g, x, mean, spread, weight, offset, scale))
    for pairs in results:
        for one, other in pairs:
            assert torch.allclose(one, other, atol=tolerance * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 8e-2)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gelu_in, gelu_out", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("rows, inputs, width", [(1, 24, 24), (500, 100, 384), (9456, 768, 768)])
def test_the_gradient_of_a_scale_is_exact_at_any_scale(
    rows: int, inputs: int, width: int, gelu_in: bool, gelu_out: bool, bias: bool, dtype: torch.dtype, tolerance: float
) -> None:
    """Against the plain formula in float64, with channels whose u cannot be read back from z and without any."""
    if kernels.fast is None:
        pytest.skip("needs triton")
    generator = torch.Generator(CUDA).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=CUDA).to(dtype)

    x, g = draw(rows, inputs), draw(rows, width)
    weight, offset = draw(width, inputs) / inputs**0.5, draw(width) if bias else None
    a = nn.functional.gelu(x.double()) if gelu_in else x.double()
    u = nn.functional.linear(a, weight.double(), offset if offset is None else offset.double())
    for scales, shifts in (((1.0, 0.1, 0.01, 0.001, 1e-6, 0.0, -0.3), (0.0, 0.3, -2.0)), ((1.0, -0.3), (0.0, 0.3))):
        pairs = torch.cartesian_prod(torch.tensor(scales), torch.tensor(shifts)).to(CUDA)
        scale, shift = pairs.repeat(width, 1)[:width].T.contiguous()
        z = u * scale + shift
        by_z = g.double()
        if gelu_out:
            by_z = torch.ops.aten.gelu_backward(by_z, z)
        gelus = {"gelu_in": gelu_in, "gelu_out": gelu_out}
        found = kernels.scale_gradients(g, z.to(dtype), x, weight, offset, scale, shift, **gelus)
        ratio = (shift / scale).abs()
        # Rounding is random: its sum grows like the root of the rows, with the size of what is rounded.
        size = (by_z.square().sum(dim=0) * (u.square().mean(dim=0) + torch.where(ratio <= 8, ratio, 0) ** 2)).sqrt()
        assert ((found[1] - (by_z * u).sum(dim=0)).abs() <= tolerance * size).all()
        assert torch.allclose(found[0].double(), by_z, atol=tolerance * float(by_z.abs().max()))
        assert torch.allclose(found[2].double(), by_z.sum(dim=0), atol=tolerance * float(by_z.norm(dim=0).max()))


@pytest.mark.parametrize("kind", [kind for kind in PETS if kind != "none"])
def test_bf16_features_and_gradients_point_where_float32_ones_do(
    kind: Any, make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        backbone = make_backbone().to(CUDA, dtype)
        view, pet = attach(backbone.vit, pet_settings(kind))
        scramble(pet)
        features = backbone.features(images.to(CUDA), view)
        gradients = torch.autograd.grad(features.pow(3).mean(), list(pet.parameters()))
        found.append((features.flatten(), torch.cat([gradient.flatten() for gradient in gradients])))
    for one, other in zip(*found, strict=True):
        assert torch.cosine_similarity(one, other, dim=0) > 0.99


def test_prompts_and_prefixes_are_the_same_on_the_device(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    found = []
    for device in (torch.device("cpu"), CUDA):
        backbone, generator = make_backbone().to(device), torch.Generator().manual_seed(0)
        prompts, keys, values = (
            torch.randn(5, 3, 24, generator=generator).to(device).requires_grad_() for _ in range(3)
        )
        tokens = backbone.tokens(images.to(device), 4, prompts=prompts, prefixes={1: (keys, values)})
        gradients = torch.autograd.grad(tokens.pow(3).mean(), (prompts, keys, values))
        found.append([each.cpu() for each in (tokens, *gradients)])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-3 * float(other.detach().abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_full_fine_tuning_can_be_recorded_in_a_cuda_graph(
    dtype: torch.dtype, make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone().to(CUDA, dtype)
    view, modules = attach(backbone.vit, pet_settings("full"))
    parameters, pictures = list(modules.parameters()), images.to(CUDA)

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(backbone.features(pictures, view).pow(3).mean(), parameters)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    with torch.no_grad():
        for parameter in parameters:
            parameter.mul_(1.1)  # the graph must round the weights anew, not those it was recorded with
    graph.replay()
    for one, other in zip(recorded, step(), strict=True):
        assert one.dtype == torch.float32 and torch.allclose(one, other, atol=2e-2 * float(other.abs().max()) + 1e-6)


def trained(
    backbone: Backbone, stream: Stream, graphs: bool, kind: Any, trick: Callable[[Tensor], Tensor] = lambda loss: loss
) -> tuple[Tensor, list[str], list[float]]:
    """Parameters after a phase of training, what was said meanwhile, and the losses that were noted."""
    settings = pet_settings(kind, **({"bottleneck": 4} if kind == "adapter" else {}))
    learner = Learner(backbone, settings, RidgeSettings(size=20))
    learner.cosine.grow(random_rows(3, backbone.width, 0))
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


def test_the_ridge_head_is_the_same_on_the_device() -> None:
    generator = torch.Generator().manual_seed(0)
    features, targets = torch.randn(300, 24, generator=generator), torch.arange(300) % 5
    logits = []
    for device in (torch.device("cpu"), CUDA):
        head = RidgeHead(24, RidgeSettings(size=500)).to(device)
        head.add(features.to(device), targets.to(device))
        head.solve()
        logits.append(head.logits(features.to(device)).cpu())
    assert torch.allclose(*logits, atol=1e-3)
