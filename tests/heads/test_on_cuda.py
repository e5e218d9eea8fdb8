"""The heads on a GPU give what they give on the CPU."""

import re

import pytest
import torch

from safecl.heads.gaussians import ClassGaussians
from safecl.heads.linear import LinearHead
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.beyond.following import Following
from safecl.ram import free_memory
from safecl.randomness import generator
from tests.conftest import raises

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CPU = torch.device("cpu")
CUDA = torch.device("cuda")
FEATURES = torch.randn(300, 24, generator=generator(0))
TARGETS = torch.arange(300) % 5


@pytest.mark.parametrize("size", [100, 500], ids=["primal", "dual"])
def test_the_ridge_head_chooses_and_answers_the_same(size: int) -> None:
    found = []
    for device in (CPU, CUDA):
        head = RidgeHead(24, RidgeSettings(size=size, evidence="session"), device=device)
        head.add(FEATURES.to(device), TARGETS.to(device))
        head.solve()
        found.append((head.errors.cpu(), head.logits(FEATURES.to(device)).cpu()))
    (errors, logits), (others, same) = found
    assert torch.allclose(errors, others, rtol=1e-2) and torch.allclose(logits, same, atol=1e-3)


def test_heads_on_a_device_share_one_projection() -> None:
    one, other = (RidgeHead(24, RidgeSettings(size=50), device=CUDA) for _ in range(2))
    own = one.project.projection
    assert own.is_cuda and own.data_ptr() == other.project.projection.data_ptr()
    plain = RidgeHead(24, RidgeSettings(size=50))
    assert torch.equal(own.cpu(), plain.project.projection)


def test_a_size_that_does_not_fit_the_gpu_is_refused() -> None:
    with raises("ridge.memory", device="cuda", advice=re.compile(r"^set ridge\.size to")):
        RidgeHead(24, RidgeSettings(size=10**6), device=CUDA)


def test_memory_that_torch_holds_without_using_it_is_free() -> None:
    before = free_memory(CUDA)
    held = torch.empty(1 << 28, dtype=torch.uint8, device=CUDA)
    during = free_memory(CUDA)
    del held
    assert before - during >= 1 << 28 and abs(free_memory(CUDA) - before) < 1 << 26


def test_gaussians_sample_the_same_features() -> None:
    found = []
    for device in (CPU, CUDA):
        gaussians = ClassGaussians(24).to(device)
        gaussians.add(FEATURES.to(device), TARGETS.to(device))
        gaussians.shift(torch.ones(gaussians.classes, 24, device=device))
        features, targets = gaussians.sample(7, generator(1), scale=[0.5] * 5)
        assert features.device.type == targets.device.type == device.type
        found.append(features.cpu())
    assert torch.allclose(*found, atol=1e-4)


def test_a_memory_takes_the_fast_head_to_the_same_weights() -> None:
    found = []
    for device in (CPU, CUDA):
        slow, fast = (RidgeHead(24, RidgeSettings(size=40), device=device) for _ in range(2))
        memory = Following(24).to(device)
        for rows in (slice(0, 200), slice(200, 300)):
            slow.add(FEATURES[rows].to(device), TARGETS[rows].to(device))
            memory.kept.add(FEATURES[rows].to(device), TARGETS[rows].to(device))
        memory.map.fit(FEATURES.to(device), 2 * FEATURES.to(device) + 1, TARGETS.to(device))
        memory.follow(slow, fast)
        fast.solve()
        memory.kept.drop_class(2)
        found.append((fast.logits(FEATURES.to(device)).cpu(), memory.map.matrix.cpu()))
    assert all(torch.allclose(a, b, atol=2e-2) for a, b in zip(*found, strict=True))


def test_a_linear_head_grows_and_loads_on_its_device() -> None:
    here = LinearHead(24)
    there = LinearHead(24).to(CUDA)
    for head in (here, there):
        head.grow(3, generator(0, "head"))
    assert torch.allclose(there(FEATURES.to(CUDA)).cpu(), here(FEATURES), atol=1e-4)
    here.grow(2, generator(1, "head"))
    there.load_state_dict(here.state_dict())
    assert all(parameter.is_cuda for parameter in there.parameters()) and there.classes == 5
    for _ in range(5):
        there.drop_class(0)
    there.load_state_dict(here.state_dict())
    assert all(parameter.is_cuda for parameter in there.parameters()) and there.classes == 5
