"""An exported network answers as torch does, whatever is read of it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.reading import Reading
from safecl.learner import Learner
from safecl.pet.settings import pet_settings
from tests.backbone.families.conftest import FAMILIES, Tiny, build

FEW = ("test_resnet",)  # the others take minutes together
CANNOT = ("hiera_tiny_224",)  # attention over five dimensions, which torch's exporter does not know


class Read(nn.Module):
    """Pictures in [0, 1] → all that can be read of them and of their mirror images."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.learner = Learner(backbone, pet_settings("ssf", deviation=0.02))
        self.learner.freeze()
        self.learner.fuse()
        self.reading = Reading(backbone.widths.depth, backbone.widths.patches != 0, True)

    def forward(self, images: Tensor) -> Tensor:
        return self.learner.read(images, self.reading)


@pytest.mark.parametrize(
    "tiny",
    [
        pytest.param(tiny, id=tiny.name, marks=() if tiny.name in FEW else (pytest.mark.slow,))
        for tiny in FAMILIES
        if tiny.name not in CANNOT
    ],
)
def test_an_exported_network_is_read_as_here(tiny: Tiny, tmp_path: Path) -> None:
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    half = (0.5,) * 3
    network = Read(Backbone(build(tiny).float(), tiny.name, tiny.size, half, half))
    images = torch.rand(3, 3, tiny.size, tiny.size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = network(images)
        torch.onnx.export(
            network,
            (images[:2],),
            tmp_path / "network.onnx",
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("N")},),
            input_names=["images"],
            verbose=False,
        )
    session = onnxruntime.InferenceSession(tmp_path / "network.onnx")
    found = torch.from_numpy(session.run(None, {"images": images.numpy()})[0])
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-4
