"""The fast learner's statistics follow it: what is kept of the slow learner's features, moved to where it is now."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.memory import SlowMemory
from safecl.methods.safe import SAFE, concatenated
from safecl.methods.safe_settings import SafeSettings
from safecl.randomness import generator
from safecl.streams.stream import Stream

MakeStream = Callable[..., Stream]
KINDS: list[Any] = ["gaussians", "features"]
PROTOCOLS = {
    "class": [["a", "b"], ["c"], ["d", "e", "f", "g", "h", "i"]],
    "domain": [["a", "b", "c"]] * 3,
    "mixed": [["a", "b"], ["c", "a"], ["b", "d", "c"]],
}


def session(n: int, classes: range, seed: int, width: int = 6) -> tuple[Tensor, Tensor]:
    """Gaussian features: every class has its own mean and covariance."""
    y = torch.arange(n) % len(classes) + classes.start
    mixing = torch.randn(20, width, width, generator=generator(5))
    means = 3 * torch.randn(20, width, generator=generator(6))
    return means[y] + torch.einsum("nij,nj->ni", mixing[y], torch.randn(n, width, generator=generator(seed))), y


def statistics_of(memory: SlowMemory, head: RidgeHead) -> RidgeHead:
    head.rebuild(((fast, y, n) for _, fast, y, n in memory.recall(10**6)), memory.pictures)
    return head


# -- the promise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_fast_learner_is_a_linear_map_of_the_slow_one_its_statistics_are_exact(kind: Any) -> None:
    """G and W̃ of a head without projection depend on means and covariances alone."""
    memory, move = SlowMemory(6, kind), torch.randn(6, 6, generator=generator(1))
    first, second = session(240, range(3), 0), session(160, range(3, 5), 1)
    expected = RidgeHead(6, RidgeSettings(project=False))
    for x, y in (first, second):
        memory.add(x, y)
        expected.add(x @ move + 1, y)
    memory.move(second[0], second[0] @ move + 1, second[1])
    found = statistics_of(memory, RidgeHead(6, RidgeSettings(project=False)))
    assert torch.equal(found.statistics.count, expected.statistics.count)
    for name in ("gram", "sums"):
        a, b = (getattr(head.statistics, name) for head in (found, expected))
        assert torch.allclose(a, b, atol=0.02 * float(b.abs().max())), name


@pytest.mark.parametrize("kind", KINDS)
def test_random_features_of_what_is_recalled_are_those_of_the_pictures(kind: Any) -> None:
    memory, (x, y) = SlowMemory(6, kind), session(1200, range(3), 0)
    memory.add(x, y)
    settings = RidgeSettings(size=60)
    found, expected = statistics_of(memory, RidgeHead(6, settings)), RidgeHead(6, settings)
    expected.add(x, y)
    a, b = found.statistics.gram, expected.statistics.gram
    assert float((a - b).norm() / b.norm()) < 0.05
    a, b = found.statistics.sums, expected.statistics.sums
    assert float((a - b).norm() / b.norm()) < 0.03


def test_a_class_that_comes_again_counts_with_all_its_pictures() -> None:
    """Domain-incremental: counts and means are those of all pictures, however they came."""
    whole, parts = SlowMemory(6, "gaussians"), SlowMemory(6, "gaussians")
    x, y = session(90, range(3), 0)
    whole.add(x, y)
    for rows in torch.randperm(90, generator=generator(0)).split(25):
        parts.add(x[rows], y[rows])
    heads = [statistics_of(memory, RidgeHead(6, RidgeSettings(project=False))) for memory in (whole, parts)]
    assert torch.allclose(heads[0].statistics.sums, heads[1].statistics.sums, atol=1e-2)
    assert torch.allclose(heads[0].statistics.gram, heads[1].statistics.gram, rtol=0.02, atol=3.0)


# -- SAFE with it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_head_of_the_fast_learner_is_near_that_of_all_pictures_extracted_anew(
    kind: str, protocol: str, new: Callable[..., SAFE], make_stream: MakeStream, scramble: Any, tools: Any
) -> None:
    """Nearer than statistics that stay behind, when the fast learner moves."""
    stream, heads = make_stream(PROTOCOLS[protocol], train=12), {}
    for memory in (kind, "stale"):
        method, stream = new(memory=memory, pet="ssf", trust=None), make_stream(PROTOCOLS[protocol], train=12)
        fit = tools.new_fit(method, stream)
        fit.after_fit = lambda name, learner, session: scramble(learner[0].pet, deviation=0.05 * session.number)
        tools.teach(method, stream, fit=fit)
        heads[memory] = method
    method = heads[kind]
    assert all(torch.equal(v, heads["stale"].fast.tuning()[k]) for k, v in method.fast.tuning().items())
    anew = RidgeHead(24, method.ridge_fast.settings)
    for part in stream._parts:
        x = part.train.plain(range(len(part.train)), stream.transform).float() / 255
        with torch.no_grad():
            anew.add(method.fast.features(x), torch.tensor([method.classes.index(y) for y in part.train.labels]))
    far = {
        name: float((each.ridge_fast.statistics.sums - anew.statistics.sums).norm() / anew.statistics.sums.norm())
        for name, each in heads.items()
    }
    assert far[kind] < far["stale"]
    assert method.ridge_fast.statistics.count == anew.statistics.count


@pytest.mark.parametrize("kind", KINDS)
def test_the_slow_learners_statistics_stay_sums(
    kind: str, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    methods = [new(memory=memory) for memory in (kind, "stale")]
    for method in methods:
        tools.teach(method, make_stream(PROTOCOLS["mixed"]))
    states = [method.ridge_slow.state_dict() for method in methods]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_first_session_there_is_one_learner(
    kind: str, new: Callable[..., SAFE], make_stream: MakeStream, images: Tensor, tools: Any
) -> None:
    method = new(memory=kind, aggregation="concat")
    tools.teach(method, make_stream(PROTOCOLS["class"]), last=1)
    found = method.all_logits(images)
    assert torch.equal(found["slow"], found["fast"]) and torch.equal(found["safe"], found["slow"])


@pytest.mark.parametrize("kind", KINDS)
def test_no_gram_matrix_of_the_fast_learner_is_kept(
    kind: str, new: Callable[..., SAFE], make_stream: MakeStream, images: Tensor, tools: Any
) -> None:
    """It follows from the memory: ``refresh`` makes the same head again."""
    method = new(memory=kind)
    tools.teach(method, make_stream(PROTOCOLS["mixed"]))
    state = tools.snapshot(method)
    assert "ridge_slow.statistics.gram" in state and not any("ridge_fast.statistics" in name for name in state)
    twin = new(memory=kind)
    twin.restore(state, method.classes)
    assert torch.equal(twin.logits(images), method.logits(images))
    twin.refresh()
    assert torch.equal(twin.logits(images), method.logits(images))


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_is_dropped_leaves_the_fast_learners_head(
    kind: str, new: Callable[..., SAFE], make_stream: MakeStream, images: Tensor, tools: Any
) -> None:
    method = new(memory=kind)
    tools.teach(method, make_stream(PROTOCOLS["class"]))
    pictures = method.memory.pictures
    method.drop_class(1)
    method.refresh()
    assert method.memory.pictures == pictures - 3 and method.ridge_fast.statistics.count == pictures - 3
    assert all(logits.shape == (5, 8) for logits in method.all_logits(images).values())


@pytest.mark.parametrize("train", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sessions", [[["a", "b"], ["c"], ["d", "e"]], [["a"], ["b"]], [["a"], ["a"]]])
def test_a_picture_a_class_and_a_class_a_session_are_enough(
    sessions: list[list[str]], kind: str, train: int, new: Callable[..., SAFE], make_stream: MakeStream,
    images: Tensor, tools: Any,
) -> None:  # fmt: skip
    method = new(memory=kind)
    tools.teach(method, make_stream(sessions, train=train))
    assert all(logits.isfinite().all() for logits in method.all_logits(images).values())


def test_concat_is_made_of_both_learners_features_of_what_is_recalled(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    method = new(memory="features", aggregation="concat")
    tools.teach(method, make_stream(PROTOCOLS["class"]))
    assert method.memory is not None and method.joint is not None
    expected = RidgeHead(48, method.joint.settings)
    for slow, fast, y, _ in method.memory.recall(10):
        expected.add(concatenated(slow, fast), y)
    assert np.allclose(method.joint.statistics.gram, expected.statistics.gram, atol=1e-4)


def test_one_gram_matrix_for_both_learners_needs_stale_statistics() -> None:
    with pytest.raises(ValidationError, match=r"needs method\.memory=stale"):
        SafeSettings(statistics="shared", memory="gaussians")
    assert SafeSettings(statistics="shared", memory="stale").memory == "stale"
