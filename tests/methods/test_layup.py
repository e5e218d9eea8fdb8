"""The preset LayUP: one ridge regression on the CLS tokens of the last blocks, whatever the
sessions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from safecl.backbone.backbone import Backbone
from safecl.experiments.config import load

CLASSES = [["a", "b"], ["c", "d"]]


def tokens(backbone: Backbone, images: torch.Tensor, tools: Any) -> np.ndarray:
    """CLS tokens of the blocks, the last one first, after the final norm: (N, 2 d)."""
    found = []
    for depth in (2, 1):
        vit: Any = backbone.network
        blocks = vit.blocks
        vit.blocks = vit.blocks[:depth]
        found.append(tools.forward(backbone, images)[:, 0].detach())
        vit.blocks = blocks
    return torch.cat(found, dim=1).double().numpy()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_it_is_one_ridge_regression_on_all_sessions(
    order: list[int],
    layers: int,
    make_backbone: Callable[..., Backbone],
    make_stream: Any,
    images: Any,
    tools: Any,
) -> None:
    backbone = make_backbone(depth=2)
    ridge = load("layup").method.model_dump()["ridge"]
    assert (ridge["layers"], ridge["project"], ridge["evidence"]) == (6, False, "session")
    chosen = type(load("layup").method.ridge)(**{**ridge, "layers": layers, "betas": (0.5,)})  # type: ignore[attr-defined]
    method = tools.new_method(backbone, {"name": "ranpac"}, "none", ridge=chosen)
    stream = make_stream([CLASSES[i] for i in order], train=5)
    tools.teach(method, stream)
    pictures = [part.train for part in stream._parts]
    shown = (
        torch.cat([own.plain(range(len(own)), stream.transform) for own in pictures]).float() / 255
    )
    h = tokens(backbone, shown, tools)[:, : layers * 24]
    y = np.eye(4)[[method.classes.index(label) for own in pictures for label in own.labels]]
    weight = np.linalg.solve(h.T @ h + 0.5 * np.eye(h.shape[1]), h.T @ y)
    expected = tokens(backbone, images, tools)[:, : layers * 24] @ weight
    assert np.allclose(method.logits(images), expected, atol=2e-3)
