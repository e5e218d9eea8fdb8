"""The bounds: joint training, and fine-tuning with either softmax and head."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods.method import Batch

SESSIONS = [["a", "b"], ["c", "d"]]
TARGETS = torch.tensor([2, 3, 2, 3, 3])


@pytest.mark.parametrize("head", ["cosine", "linear"])
@pytest.mark.parametrize("softmax, classes", [("global", [0, 1, 2, 3]), ("local", [2, 3])])
def test_the_softmax_of_fine_tuning_is_over_all_classes_or_the_sessions(
    softmax: str, classes: list[int], head: str, backbone: Backbone, make_stream: Any, images: Tensor, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "finetune", "softmax": softmax, "head": head})
    tools.teach(method, make_stream(SESSIONS))
    found = method.loss(torch.tensor([2, 3]), Batch(images, TARGETS))["cls"]
    logits = method.logits(images)[:, classes]
    assert torch.allclose(found, F.cross_entropy(logits, TARGETS - classes[0]), atol=1e-5)
    if head == "linear":
        assert [w.requires_grad for w in method.head.weights] == [softmax == "global", True]


@pytest.mark.parametrize("pet", ["none", "adapter", "full"])
def test_joint_training_sees_all_classes_at_once_and_leaves_the_backbone_alone(
    pet: str, backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    stream, weights = make_stream(SESSIONS).joint(), {k: v.clone() for k, v in backbone.vit.state_dict().items()}
    method = tools.new_method(backbone, {"name": "joint", "body_rate": 0.01}, pet)
    tuning = method.learner.tuning()
    fit = tools.teach(method, stream)
    assert fit.calls == [(1, "joint")] and method.classes == ["a", "b", "c", "d"]
    assert tools.same(weights, backbone.vit.state_dict())
    assert tools.same(tuning, method.learner.tuning()) is (pet == "none")


def test_ranpac_and_aper_without_a_pet_train_nothing(backbone: Backbone, make_stream: Any, tools: Any) -> None:
    for name in ("ranpac", "aper"):
        assert not tools.teach(tools.new_method(backbone, {"name": name}, "none"), make_stream(SESSIONS)).calls
