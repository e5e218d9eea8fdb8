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
    softmax: str,
    classes: list[int],
    head: str,
    backbone: Backbone,
    make_stream: Any,
    images: Tensor,
    tools: Any,
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
    stream = make_stream(SESSIONS).joint()
    weights = {k: v.clone() for k, v in backbone.network.state_dict().items()}
    method = tools.new_method(backbone, {"name": "joint", "body_rate": 0.01}, pet)
    tuning = method.learner.tuning()
    fit = tools.teach(method, stream)
    assert fit.calls == ([] if pet == "none" else [(1, "joint")]) and method.classes == [
        "a",
        "b",
        "c",
        "d",
    ]
    assert tools.same(weights, backbone.network.state_dict())
    assert tools.same(tuning, method.learner.tuning()) is (pet == "none")


def test_ranpac_and_aper_without_a_pet_train_nothing(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    for name in ("ranpac", "aper"):
        assert not tools.teach(
            tools.new_method(backbone, {"name": name}, "none"), make_stream(SESSIONS)
        ).calls


def test_joint_training_answers_by_a_ridge_head_on_the_tuned_network(
    backbone: Backbone, make_stream: Any, images: Tensor, tools: Any
) -> None:
    """Sums do not ask for sessions: without a PET it is what RanPAC learns one session after the
    other.
    """
    joint, sequential = (
        tools.new_method(backbone, {"name": name}, "none") for name in ("joint", "ranpac")
    )
    tools.teach(joint, make_stream(SESSIONS).joint())
    tools.teach(sequential, make_stream(SESSIONS))
    assert torch.allclose(
        joint.ridge.statistics.gram, sequential.ridge.statistics.gram, rtol=1e-5, atol=1e-4
    )
    sequential.ridge.errors = joint.ridge.errors  # the evidence for β is each session's own
    sequential.ridge.solve()
    assert torch.allclose(joint.logits(images), sequential.logits(images), atol=1e-4)
    tuned = tools.new_method(backbone, {"name": "joint"})
    stream = make_stream(SESSIONS).joint()
    tools.teach(tuned, stream)
    part = stream._parts[0].train
    assert (
        tuned.learner.tuning()["0.up.weight"].any()
        and int(tuned.ridge.statistics.count) == len(part) * 2
    )
