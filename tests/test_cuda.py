"""What only a GPU can show: kernels against the lines of torch beside them, and recorded steps
against plain ones.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from timm.layers.attention import Attention as TimmAttention
from torch import Tensor, nn

from safecl.backbone import kernels
from safecl.backbone.backbone import Backbone
from safecl.backbone.layers import Attention, Mlp
from safecl.engine.fit import Trainer
from safecl.engine.progress import Progress
from safecl.engine.run import run
from safecl.engine.settings import TrainSettings
from safecl.heads.cosine import CosineHead
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.learner import Learner
from safecl.methods.catalog import make_method, method_settings
from safecl.methods.method import Batch, Group
from safecl.pet.attach import attach
from safecl.pet.settings import PETS, pet_settings
from safecl.randomness import generator
from safecl.streams.pictures.images import Transform
from safecl.streams.stream import Stream

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CUDA = torch.device("cuda")
LABELS = ["a", "b", "c"]


def both(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *inputs: Any
) -> list[tuple[Tensor, Tensor]]:
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
    if kernels.triton() is None:
        pytest.skip("needs triton")
    generator = torch.Generator(CUDA).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=CUDA)

    g, x, weight, bias = (
        draw(*shape).to(dtype) for shape in ((rows, width), (rows, width), (width,), (width,))
    )
    scale = draw(width) + 2
    shift = draw(width)
    results = [
        both(monkeypatch, kernels.layer_norm, x, weight, bias, 1e-6),
        both(monkeypatch, kernels.merged_weights, draw(width, 40).to(dtype), bias, scale, shift),
        both(monkeypatch, kernels.merged_weights, draw(width, 40).to(dtype), None, scale, shift),
    ]
    _, mean, spread = torch.native_layer_norm(x, (width,), weight, bias, 1e-6)
    results.append(both(monkeypatch, kernels.layer_norm_gradient, g, x, mean, spread, weight, bias))
    for offset in (bias, None):
        results.append(
            both(
                monkeypatch, kernels.norm_scale_gradients, g, x, mean, spread, weight, offset, scale
            )
        )
    for pairs in results:
        for one, other in pairs:
            assert torch.allclose(one, other, atol=tolerance * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 8e-2)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gelu_in, gelu_out", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("rows, inputs, width", [(1, 24, 24), (500, 100, 384), (9456, 768, 768)])
def test_the_gradient_of_a_scale_is_exact_at_any_scale(
    rows: int,
    inputs: int,
    width: int,
    gelu_in: bool,
    gelu_out: bool,
    bias: bool,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    """Against the plain formula in float64, with channels whose u cannot be read back from z and
    without any.
    """
    if kernels.triton() is None:
        pytest.skip("needs triton")
    generator = torch.Generator(CUDA).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=CUDA).to(dtype)

    x = draw(rows, inputs)
    g = draw(rows, width)
    weight = draw(width, inputs) / inputs**0.5
    offset = draw(width) if bias else None
    a = nn.functional.gelu(x.double()) if gelu_in else x.double()
    u = nn.functional.linear(a, weight.double(), offset if offset is None else offset.double())
    for scales, shifts in (
        ((1.0, 0.1, 0.01, 0.001, 1e-6, 0.0, -0.3), (0.0, 0.3, -2.0)),
        ((1.0, -0.3), (0.0, 0.3)),
    ):
        pairs = torch.cartesian_prod(torch.tensor(scales), torch.tensor(shifts)).to(CUDA)
        scale, shift = pairs.repeat(width, 1)[:width].T.contiguous()
        z = u * scale + shift
        by_z = g.double()
        if gelu_out:
            by_z = torch.ops.aten.gelu_backward(by_z, z)
        gelus = {"gelu_in": gelu_in, "gelu_out": gelu_out}
        found = kernels.scale_gradients(g, z.to(dtype), x, weight, offset, scale, shift, **gelus)
        ratio = (shift / scale).abs()
        # Rounding is random: its sum grows like the root of the rows, with the size of what is
        # rounded.
        # far left GELU's own slope is a difference of near numbers
        most = torch.maximum(by_z.abs(), g.double().abs())
        size = (
            most.square().sum(dim=0)
            * (u.square().mean(dim=0) + torch.where(ratio <= 8, ratio, 0) ** 2)
        ).sqrt()
        assert ((found[1] - (by_z * u).sum(dim=0)).abs() <= tolerance * size).all()
        assert torch.allclose(found[0].double(), by_z, atol=tolerance * float(by_z.abs().max()))
        assert torch.allclose(
            found[2].double(), by_z.sum(dim=0), atol=tolerance * float(by_z.norm(dim=0).max())
        )


@pytest.mark.parametrize("pictures", [48, 256])
def test_the_last_block_gives_the_same_each_time(pictures: int) -> None:
    attention = (
        Attention(TimmAttention(768, num_heads=12)).to("cuda", torch.bfloat16).requires_grad_(False)
    )
    x = (
        torch.randn(pictures, 197, 768, generator=generator(0, "x"))
        .to("cuda", torch.bfloat16)
        .requires_grad_()
    )

    def asked() -> tuple[Tensor, Tensor]:
        y = attention(x, queries=1)
        return y, torch.autograd.grad(y.float().square().sum(), x)[0]

    first = asked()
    assert all(torch.equal(a, b) for _ in range(40) for a, b in zip(first, asked(), strict=True))


@pytest.mark.parametrize("kind", [kind for kind in PETS if kind != "none"])
def test_bf16_features_and_gradients_point_where_float32_ones_do(
    kind: Any, make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        backbone = make_backbone().to(CUDA, dtype)
        view, pet = attach(backbone.network, pet_settings(kind))
        pet.eval()
        scramble(pet)
        features = backbone.features(images.to(CUDA), view)
        gradients = torch.autograd.grad(features.pow(3).mean(), list(pet.parameters()))
        found.append(
            (features.flatten(), torch.cat([gradient.flatten() for gradient in gradients]))
        )
    for one, other in zip(*found, strict=True):
        assert torch.cosine_similarity(one, other, dim=0) > 0.99


def test_prompts_and_prefixes_are_the_same_on_the_device(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    found = []
    for device in (torch.device("cpu"), CUDA):
        backbone = make_backbone().to(device)
        generator = torch.Generator().manual_seed(0)
        prompts, keys, values = (
            torch.randn(5, 3, 24, generator=generator).to(device).requires_grad_() for _ in range(3)
        )
        tokens = backbone.tokens(
            images.to(device), 4, prompts=prompts, prefixes={1: (keys, values)}
        )
        gradients = torch.autograd.grad(tokens.pow(3).mean(), (prompts, keys, values))
        found.append([each.cpu() for each in (tokens, *gradients)])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-3 * float(other.detach().abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_full_fine_tuning_can_be_recorded_in_a_cuda_graph(
    dtype: torch.dtype, make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone().to(CUDA, dtype)
    view, modules = attach(backbone.network, pet_settings("full"))
    parameters = list(modules.parameters())
    pictures = images.to(CUDA)

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
            # the graph must round the weights anew, not those it was recorded with
            parameter.mul_(1.1)
    graph.replay()
    for one, other in zip(recorded, step(), strict=True):
        assert one.dtype == torch.float32 and torch.allclose(
            one, other, atol=2e-2 * float(other.abs().max()) + 1e-6
        )


class Tuned(nn.Module):
    """A learner and a head, as a method has them."""

    def __init__(self, backbone: Backbone, kind: str) -> None:
        super().__init__()
        self.learner = Learner(
            backbone, pet_settings(kind, **({"bottleneck": 4} if kind == "adapter" else {}))
        )
        self.head = CosineHead(backbone.width)
        self.head.grow_random(3, generator(0, "head"))
        self.register_buffer("mean", torch.zeros(3, backbone.width))
        self.to(backbone.device)

    def follow(self) -> None:
        """A moving average, as ``after_step`` keeps one."""
        self.mean.lerp_(self.head.weight.detach(), 0.1)


def trained(
    backbone: Backbone,
    stream: Stream,
    graphs: bool,
    kind: Any,
    trick: Callable[[Tensor], Tensor] = lambda loss: loss,
    **changes: Any,
) -> tuple[Tensor, list[str], list[float]]:
    """Parameters and averages after a phase of training, what was said meanwhile, and the losses
    that were noted.
    """
    module = Tuned(backbone, kind)
    method = SimpleNamespace(classes=LABELS, backbone=SimpleNamespace(dtype=torch.float32))
    settings = TrainSettings(epochs=6, batch_size=4, lr=0.05, clip=1.0, graphs=graphs)
    fit = Trainer(Accelerator(), method, settings, Transform(16, margin=1.0), 0, Progress())  # type: ignore[arg-type]
    fit.begin(1)
    said: list[str] = []
    fit.progress.say = said.append  # type: ignore[method-assign]

    def loss(batch: Batch) -> dict[str, Tensor]:
        logits = module.head(batch.features(module.learner))
        return {"cls": trick(nn.functional.cross_entropy(logits, batch.targets))}

    groups = [Group(list(module.learner.parameters()), rate=0.5)]
    recipe = replace(fit.recipe(), **changes)
    fit(
        "fast", module, stream.open(1), loss, groups=groups, recipe=recipe, after_step=module.follow
    )
    values = torch.cat([value.detach().float().flatten() for value in module.state_dict().values()])
    return values, said, [line["loss"] for line in fit.losses]


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_a_step_of_every_optimiser_is_recorded(
    optimiser: str, make_backbone: Callable[..., Backbone], make_stream: Callable[..., Stream]
) -> None:
    results = []
    for graphs in (True, False):
        backbone = make_backbone(depth=1).to(CUDA, torch.float32)
        stream = make_stream([LABELS], train=3)
        rate = 0.05 if optimiser == "sgd" else 0.005
        results.append(trained(backbone, stream, graphs, "ssf", optimiser=optimiser, lr=rate))
    (fast, said, _), (plain, _, _) = results
    assert torch.allclose(fast, plain, atol=1e-3) and not said


def test_a_phase_that_asks_for_plain_steps_runs_its_python_code_at_every_step(
    make_backbone: Callable[..., Backbone], make_stream: Callable[..., Stream]
) -> None:
    calls: list[int] = []
    # two shapes: one plain call and one recording each
    for graph, expected in (
        (True, 4),
        (False, 18),
    ):
        calls.clear()
        backbone = make_backbone(depth=1).to(CUDA, torch.float32)
        stream = make_stream([LABELS], train=3)
        trained(backbone, stream, True, "ssf", lambda loss: calls.append(1) or loss, graph=graph)
        assert len(calls) == expected


@pytest.mark.parametrize("name", method_settings())
def test_every_method_learns_and_answers_on_the_device_as_with_plain_steps(
    name: str,
    make_backbone: Callable[..., Backbone],
    make_stream: Callable[..., Stream],
    tmp_path: Path,
) -> None:
    """Through CUDA graphs and without, class- and domain-incremental: the same answers, and nothing
    said.
    """
    kind = method_settings()[name]
    options: dict[str, Any] = {
        "pet": pet_settings("adapter", bottleneck=4, dropout=0.0),
        "ridge": RidgeSettings(size=40),
    }
    chosen = {key: value for key, value in options.items() if key in kind.model_fields}
    images = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(7)).to(CUDA)
    for protocol, sessions in (
        ("class", [list("abcd"), ["e", "f"]]),
        ("domain", [list("abcd")] * 2),
    ):
        answers = []
        for graphs in (True, False):
            method = make_method(kind(**chosen), make_backbone(depth=1).to(CUDA, torch.float32))
            train = TrainSettings(epochs=3, batch_size=4, lr=0.01, graphs=graphs)
            stream = make_stream(sessions, protocol=protocol)
            folder = tmp_path / f"{protocol}-{graphs}"
            run(method, stream, folder, accelerator=Accelerator(), train=train)
            answers.append(method.logits(images))
        assert torch.allclose(*answers, atol=2e-2 * float(answers[1].abs().max()))


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

    def phase(
        graphs: bool, trick: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, list[str], list[float]]:
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


def test_gelu_in_the_product_is_as_near_to_float32_as_after_it() -> None:
    torch.manual_seed(0)
    fc1 = nn.Linear(192, 768, device=CUDA)
    fc2 = nn.Linear(768, 192, device=CUDA)
    mlp = Mlp(fc1, fc2).requires_grad_(False)
    x = torch.randn(4, 50, 192, device=CUDA)
    exact = mlp(x)
    mlp.to(torch.bfloat16)
    with torch.enable_grad():
        after = (mlp(x.bfloat16()) - exact).norm()
    with torch.no_grad():
        inside = (mlp(x.bfloat16()) - exact).norm()
    assert inside < 1.2 * after


def test_the_ridge_head_is_the_same_on_the_device() -> None:
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(300, 24, generator=draw)
    targets = torch.arange(300) % 5
    logits = []
    for device in (torch.device("cpu"), CUDA):
        head = RidgeHead(24, RidgeSettings(size=500)).to(device)
        head.add(features.to(device), targets.to(device))
        head.solve()
        logits.append(head.logits(features.to(device)).cpu())
    assert torch.allclose(*logits, atol=1e-3)


@pytest.mark.parametrize("memory", ["statistics", "features"])
def test_a_model_lives_on_the_device_as_on_a_cpu(
    memory: str,
    new_model: Callable[..., Any],
    lesson: Callable[..., Any],
    tmp_path: Path,
    untuned: None,
) -> None:
    """Learned, asked with all opinions, corrected, forgotten, rolled back, explained, and opened by
    the other one.
    """
    pictures, labels = lesson("abcdef")
    models = []
    for device in ("cpu", CUDA.type):
        model = new_model(device=device, memory=memory)
        model.learn(*lesson("abcd"))
        model.learn(*lesson("ef"))
        assert [answer.weights is not None for answer in model.answers(pictures)] == [True] * len(
            labels
        )
        model.correct(pictures[:1], "e")
        model.rollback()
        model.forget("b")
        model.join("c", "d")
        assert model.heat_map(pictures[0]).shape == pictures[0].shape[:2]
        assert len(model.queue(pictures, 3)) == 3
        models.append(model)
    one, other = (model.predict_proba(pictures) for model in models)
    assert np.abs(one - other).max() < 0.05
    for device, model in zip((CUDA.type, "cpu"), models, strict=True):
        model.save(tmp_path / "model.safecl", force=True)
        again = type(model).load(tmp_path / "model.safecl", device=device)
        assert np.abs(again.predict_proba(pictures) - model.predict_proba(pictures)).max() < 0.01
