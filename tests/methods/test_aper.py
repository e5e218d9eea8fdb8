"""APER, also as EASE's preset has it on OmniBenchmark: one cosine over bare and tuned features."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone

SESSIONS = [["a", "b"], ["c", "d", "e"], ["f", "a"]]


def test_a_logit_is_the_cosine_with_the_class_mean_of_both_features_side_by_side(
    backbone: Backbone, make_stream: Any, images: Tensor, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "aper"})
    stream = make_stream(SESSIONS, train=4)
    assert tools.teach(method, stream).calls == [(1, "aper")]  # one adapter, of the first session
    own: dict[str, list[np.ndarray]] = {}

    @torch.no_grad()
    def both(pictures: Tensor) -> np.ndarray:
        parts = [
            network.features(pictures).double().numpy() for network in (backbone, method.adapted)
        ]
        return np.concatenate(parts, axis=1)

    for part in stream._parts:
        views = part.train.plain(range(len(part.train)), stream.transform).float() / 255
        for label, row in zip(part.train.labels, both(views), strict=True):
            own.setdefault(label, []).append(row)
    assert len(own["a"]) == 8  # of both sessions that bring it
    shown = both(images)
    for i, found in enumerate(method.logits(images)):
        for c, label in enumerate(method.classes):
            mean = np.mean(own[label], axis=0)
            cosine = shown[i] @ mean / np.linalg.norm(shown[i]) / np.linalg.norm(mean)
            assert float(found[c]) == pytest.approx(cosine, abs=1e-4)
