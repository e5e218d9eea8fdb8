"""MOS's pull, losses and choice of PETs against their definitions."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.engine.settings import TrainSettings
from safecl.methods.method import Batch, restore
from safecl.methods.parts import drop_class

SESSIONS = [["a", "b"], ["c", "d"], ["e", "a"]]
STILL = TrainSettings(epochs=3, batch_size=4, lr=1e-30, weight_decay=0)


@pytest.fixture(scope="module")
def learned(backbone: Backbone, make_stream: Any, tools: Any) -> Any:
    method = tools.new_method(backbone, {"name": "mos"})
    stream = make_stream(SESSIONS, train=4)
    tools.teach(method, stream)
    return method, stream


def views(stream: Any, number: int) -> tuple[Tensor, list[str]]:
    part = stream._parts[number].train
    return part.plain(range(len(part)), stream.transform).float() / 255, list(part.labels)


def test_every_step_pulls_the_pet_to_the_mean_of_earlier_ones(
    backbone: Backbone, make_stream: Any, scramble: Any, tools: Any
) -> None:
    """At no rate only the pulls act: after n of them, m + 0.9ⁿ (θ − m)."""
    method = tools.new_method(backbone, {"name": "mos"})
    stream = make_stream(SESSIONS, train=4)
    fit = tools.new_fit(method, stream, STILL)
    tools.teach(method, stream, last=2, fit=fit)
    for seed, learner in enumerate(method.learners):
        scramble(learner, seed + 1)
    stored = [learner.tuning() for learner in method.learners]
    tools.teach(method, stream, first=3, fit=fit)
    for key, value in method.learners[2].tuning().items():
        mean = (stored[0][key] + stored[1][key]) / 2
        steps = 3 * 2  # epochs, and batches of eight pictures
        assert torch.allclose(value, mean + 0.9**steps * (stored[1][key] - mean), atol=1e-6)
    assert all(
        tools.same(learner.tuning(), own)
        for learner, own in zip(method.learners, stored, strict=False)
    )


# a class that comes back belongs to its latest session
OWNERS = {
    "a": 2,
    "b": 0,
    "c": 1,
    "d": 1,
    "e": 2,
}


@torch.no_grad()
def by_hand(method: Any, shown: Tensor) -> tuple[Tensor, int]:
    """Sums of both probabilities (N, C), and how often a PET was chosen anew."""
    rows = []
    moves = 0
    for image in shown:
        features = [learner.features(image[None])[0] for learner in method.learners]
        first = F.cosine_similarity(features[0][None], method.prototypes.weight)
        a = OWNERS[method.classes[int(first.argmax())]]
        for _ in range(4):
            z = method.head(features[a][None])[0]
            following = OWNERS[method.classes[int(z.argmax())]]
            if following == a:
                break
            a = following
            moves = moves + 1
        rows.append(z.softmax(0) + (3 * first).softmax(0))
    return torch.stack(rows), moves


def test_the_class_found_chooses_the_pet_until_it_stays(
    learned: Any, images: Tensor, tools: Any
) -> None:
    method, stream = learned
    shown = torch.cat([images, *(views(stream, n)[0] for n in range(3))])
    before, (expected, moves) = tools.snapshot(method), by_hand(method, shown)
    assert torch.allclose(method.logits(shown).exp(), expected, atol=1e-5)
    assert moves  # otherwise the loop was not tried
    assert tools.same(before, tools.snapshot(method))  # to answer changes no stored PET


def test_prototypes_are_means_under_the_first_pet_and_gaussians_under_the_own(learned: Any) -> None:
    method, stream = learned
    first: dict[str, list[Tensor]] = {}
    own: dict[str, list[Tensor]] = {}
    for number, learner in enumerate(method.learners):
        pictures, labels = views(stream, number)
        with torch.no_grad():
            both = method.learners[0].features(pictures), learner.features(pictures)
        for into, features in zip((first, own), both, strict=True):
            for label, feature in zip(labels, features, strict=True):
                into.setdefault(label, []).append(feature)
    for c, label in enumerate(method.classes):
        assert torch.allclose(
            method.prototypes.weight[c], torch.stack(first[label]).mean(dim=0), atol=1e-5
        )
        assert torch.allclose(
            method.gaussians.means[c], torch.stack(own[label]).mean(dim=0), atol=1e-5
        )


@torch.no_grad()
def test_the_loss_holds_features_apart_from_each_other_and_from_old_means(
    learned: Any, images: Tensor
) -> None:
    method, _ = learned
    targets = torch.tensor([2, 3, 2, 3, 3])
    means = method.gaussians.means[:2]
    found = method.loss(torch.tensor([2, 3]), means, Batch(images, targets))
    features = method.learners[-1].features(images)
    z = [*means, *features]
    total = 0.0
    for i, one in enumerate(z):
        total -= float(torch.stack([one @ other / 0.8 for other in z]).log_softmax(0)[i])
    assert float(found["contrast"]) == pytest.approx(0.1 * total / len(z), rel=1e-3, abs=1e-6)
    logits = method.head(features)[:, 2:4]
    assert float(found["cls"]) == pytest.approx(
        float(F.cross_entropy(logits, targets - 2)), rel=1e-4
    )


def test_old_means_are_those_of_classes_that_the_session_does_not_bring(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "mos"})
    stream = make_stream(SESSIONS)
    seen = []
    own = method.loss
    method.loss = lambda current, means, batch: (
        seen.append(len(means)) or own(current, means, batch)
    )
    fit = tools.new_fit(method, stream)
    tools.teach(method, stream, fit=fit)
    # b, c and d in the third session, for a is there again
    assert [*dict.fromkeys(seen)] == [
        0,
        2,
        3,
    ]
    assert fit.calls == [(1, "mos"), (2, "mos"), (2, "align"), (3, "mos"), (3, "align")]


def test_the_head_learns_at_a_tenth_of_the_rate(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "mos"})
    stream = make_stream([["a", "b"]])
    train = TrainSettings(epochs=1, batch_size=8, lr=0.1, momentum=0, weight_decay=0)
    fit = tools.new_fit(method, stream, train)
    gradients = []
    before = []

    def around(loss: Any) -> Any:
        def watched(batch: Any) -> Any:
            terms = loss(batch)
            before.append(method.head.weights[0].detach().clone())
            gradients.extend(
                torch.autograd.grad(terms["cls"], method.head.weights[0], retain_graph=True)
            )
            return terms

        return watched

    fit.around = around
    tools.teach(method, stream, fit=fit)
    assert torch.allclose(method.head.weights[0], before[0] - 0.01 * gradients[0], atol=1e-7)


def test_a_forgotten_class_takes_its_owner_with_it(
    learned: Any, images: Tensor, backbone: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "mos"})
    restore(method, tools.snapshot(learned[0]), learned[0].classes)
    drop_class(method, method.classes.index("b"))
    method.classes.remove("b")
    assert method.owners.tolist() == [2, 1, 1, 2]
    assert torch.allclose(method.logits(images).exp(), by_hand(method, images)[0], atol=1e-5)


@pytest.mark.parametrize("diagonal", [True, False])
def test_features_are_drawn_from_the_diagonal_where_asked(
    diagonal: bool, learned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaussians = learned[0].gaussians
    random = torch.Generator().manual_seed(0)
    monkeypatch.setattr(gaussians, "diagonal", diagonal)
    drawn, _ = gaussians.sample(20_000, random, ridge=1e-4)
    own = drawn[:20_000]
    covariance = gaussians.covariances([0], 1e-4)[0].float()
    found = torch.cov(own.T)
    assert torch.allclose(found.diagonal(), covariance.diagonal(), rtol=0.1)
    off = covariance - torch.diag(covariance.diagonal())
    # how much of the covariances there is in the sample
    share = float((found * off).sum() / off.square().sum())
    assert share == pytest.approx(0.0 if diagonal else 1.0, abs=0.1)
