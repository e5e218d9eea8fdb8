"""SAFE whose fast learner answers together with the untuned backbone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from safecl.backbone.backbone import Backbone
from safecl.heads.nearest import NearestMean
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.ensemble import lead_weight
from safecl.methods.method import all_logits, restore
from safecl.methods.safe import SAFE
from safecl.streams.stream import Stream

pytestmark = pytest.mark.usefixtures("untuned")
READS = RidgeSettings(size=40, betas=(5.0,), scale="absolute", layers=1, patches=True, mirror=True)
IMAGES = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(7))
SESSIONS = {
    "class": [["a", "b"], ["c", "d", "e", "f"], ["g"]],
    "domain": [["a", "b", "c", "d"]] * 3,
}


@pytest.mark.parametrize(
    ("protocol", "pet"), [("class", "adapter"), ("domain", "lora"), ("class", "vpt_shallow")]
)
def test_its_statistics_answers_likeness_and_errors_are_those_of_frozen_features_of_all_sessions(
    protocol: str,
    pet: str,
    new: Callable[..., SAFE],
    make_stream: Callable[..., Stream],
    tools: Any,
    backbone: Backbone,
) -> None:
    method = new(ridge=READS, pet=pet)
    stream = make_stream(SESSIONS[protocol], train=6)
    exact = RidgeHead(24, READS)
    rows = list[tuple[Any, Any]]()
    errors = torch.zeros(())
    for number, part in enumerate(stream._parts, 1):
        tools.teach(method, stream, number, number)
        pictures = part.train.plain(range(len(part.train)), stream.transform).float() / 255
        features = backbone.read(pictures, method.ridge_slow.reading)
        targets = torch.tensor([method.classes.index(label) for label in part.train.labels])
        rows.append((features, targets))
        if number == 1:  # what is read is known now
            exact.read(method.ridge_slow.reading)
        exact.add(features, targets)
        exact.solve()
        found = all_logits(method, IMAGES)
        if number == 1:  # tuned for all classes there are, the slow learner answers alone
            tuned = 10 * method.ridge_slow.logits(
                method.slow.read(IMAGES, method.ridge_slow.reading)
            )
            assert all(torch.allclose(each, tuned, atol=1e-4) for each in found.values())
            continue
        for turn in range(6 if len(part.classes) == 4 else 0):
            every, all_targets = (torch.cat(column) for column in zip(*rows, strict=True))
            first = len(every) - len(features)
            out = torch.tensor(
                [first + int((targets == c).nonzero()[turn, 0]) for c in targets.unique()]
            )
            rest = torch.tensor([i for i in range(len(every)) if i not in out])
            other = RidgeHead(24, READS)
            other.read(exact.reading)
            other.add(every[rest], all_targets[rest])
            other.solve()
            wanted = F.one_hot(all_targets[out], len(method.classes))
            errors += (other.logits(every[out]) - wanted).square().sum()
    own = backbone.read(IMAGES, method.ridge_slow.reading.once)
    torch.testing.assert_close(method.ridge_untuned.statistics.gram, exact.statistics.gram)
    torch.testing.assert_close(found["slow"], 10 * exact.logits(own), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(method.judged.sums[0], errors, rtol=2e-3, atol=1e-3)
    weight = lead_weight(method.judged.sums).clamp(max=0.5) * method.fast_helps
    torch.testing.assert_close(found["safe"], (1 - weight) * found["slow"] + weight * found["fast"])
    nearest = NearestMean(24)
    nearest.follow(method.following.untuned)
    torch.testing.assert_close(method.likeness(method.embed(IMAGES)), -nearest(own[:, :24]))
    means = [
        torch.cat([f[t == c] for f, t in rows])[:, :24].mean(dim=0)
        for c in range(len(method.classes))
    ]
    torch.testing.assert_close(method.following.untuned.means, torch.stack(means))


@pytest.mark.parametrize(
    ("new_pictures", "judged", "weight"),
    [
        ((0, 0, 0), (2, 1), 0.5),
        ((0, 0, 0), (1, 2), 0),
        ((3, 4, 2), (2, 1), 0.5),
        ((3, 2, 4), (2, 1), 0),
    ],
    ids=["better", "worse", "better on new ones", "worse on new ones"],
)
def test_the_fast_learner_counts_no_more_than_the_untuned_backbone_and_not_where_it_harms(
    new_pictures: tuple[float, ...],
    judged: tuple[float, ...],
    weight: float,
    new: Callable[..., SAFE],
    make_stream: Callable[..., Stream],
    tools: Any,
) -> None:
    method = new()
    tools.teach(method, make_stream(SESSIONS["class"]), last=2)
    method.new_pictures.sums = torch.tensor(new_pictures).float()
    method.judged.sums = torch.tensor(judged).float()
    found = all_logits(method, IMAGES)
    torch.testing.assert_close(found["safe"], torch.lerp(found["slow"], found["fast"], weight))
    assert set(method.weights(found)["fast"].tolist()) == {weight}


def test_the_fast_learner_is_tuned_and_follows_as_without_it(
    new: Callable[..., SAFE], make_stream: Callable[..., Stream], tools: Any
) -> None:
    methods = [new(loss="none", beyond=pilot) for pilot in (0.5, 0)]
    for method in methods:
        tools.teach(method, make_stream(SESSIONS["class"]))
    ours, theirs = (tools.snapshot(method) for method in methods)
    alike = (
        "slow.",
        "fast.",
        "w_",
        "ridge_fast.",
        "ridge_slow.statistics.",
        "following.kept.",
        "following.map.",
    )
    assert not hasattr(methods[1], "ridge_untuned")
    assert tools.same(
        *({k: v for k, v in each.items() if k.startswith(alike)} for each in (ours, theirs))
    )
    assert not ours["ridge_slow.weight"].numel()  # which answers no more


@pytest.mark.parametrize("pet", ["adapter", "ssf", "vpt_deep", "vpt_shallow", "lora"])
@pytest.mark.parametrize("after", [1, 2])
def test_a_saved_method_goes_on_as_if_it_had_never_been_saved(
    pet: str, after: int, new: Callable[..., SAFE], make_stream: Callable[..., Stream], tools: Any
) -> None:
    sessions = SESSIONS["class" if after == 1 else "domain"]
    method = new(pet=pet)
    twin = new(pet=pet)
    tools.teach(method, make_stream(sessions), last=after)
    restore(twin, tools.snapshot(method), method.classes)
    for each in (method, twin):
        tools.teach(each, make_stream(sessions), first=after + 1)
    assert tools.same(tools.snapshot(method), tools.snapshot(twin))
    assert torch.equal(method.logits(IMAGES), twin.logits(IMAGES))
