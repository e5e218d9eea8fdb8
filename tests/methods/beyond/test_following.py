"""The fast learner's statistics follow it: what is kept of the slow learner's features, moved to
where it is now.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.beyond.following import Following
from safecl.methods.method import all_logits, restore
from safecl.methods.parts import drop_class
from safecl.methods.safe import SAFE
from safecl.methods.settings.safe import AnswerSettings, SafeSettings
from safecl.randomness import generator
from safecl.streams.stream import Stream

MakeStream = Callable[..., Stream]
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
    return (
        means[y]
        + torch.einsum("nij,nj->ni", mixing[y], torch.randn(n, width, generator=generator(seed))),
        y,
    )


def statistics_of(memory: Following, slow: RidgeHead) -> RidgeHead:
    fast = RidgeHead(memory.kept.width, slow.settings)
    memory.follow(slow, fast)
    return fast


def apart(found: RidgeHead, expected: RidgeHead, name: str) -> float:
    a, b = (getattr(head.statistics, name) for head in (found, expected))
    return float((a - b).norm() / b.norm())


# -- the promise -----------------------------------------------------------------------------------


def test_where_the_fast_learner_is_a_linear_map_of_the_slow_one_its_statistics_are_exact() -> None:
    memory = Following(6)
    move = torch.randn(6, 6, generator=generator(1))
    first = session(240, range(3), 0)
    second = session(160, range(3, 5), 1)
    slow, expected = (RidgeHead(6, RidgeSettings(project=False)) for _ in range(2))
    for x, y in (first, second):
        memory.kept.add(x, y)
        slow.add(x, y)
        expected.add(x @ move, y)
    memory.map.fit(second[0], second[0] @ move, second[1])
    found = statistics_of(memory, slow)
    assert torch.equal(found.statistics.count, expected.statistics.count)
    assert apart(found, expected, "gram") < 0.02 and apart(found, expected, "sums") < 0.02


def test_random_features_follow_a_linear_map() -> None:
    """The operator is linear in the random features, which the move is not: near, and much nearer
    than unmoved.
    """
    memory, (x, y) = Following(6), session(1200, range(3), 0)
    move = torch.eye(6) + 0.3 * torch.randn(6, 6, generator=generator(1))
    slow, expected = (RidgeHead(6, RidgeSettings(size=120)) for _ in range(2))
    memory.kept.add(x, y)
    slow.add(x, y)
    expected.add(x @ move, y)
    memory.map.fit(x, x @ move, y)
    found = statistics_of(memory, slow)
    for name in ("gram", "sums"):
        assert apart(found, expected, name) < min(0.2, 0.4 * apart(slow, expected, name))


def test_where_nothing_moves_the_statistics_are_the_slow_learners() -> None:
    memory, (x, y), slow = (
        Following(6),
        session(90, range(3), 0),
        RidgeHead(6, RidgeSettings(size=50)),
    )
    # in whatever order the pictures come
    for rows in torch.randperm(90, generator=generator(0)).split(25):
        memory.kept.add(x[rows], y[rows])
        slow.add(x[rows], y[rows])
    memory.map.fit(x, x, y)
    found = statistics_of(memory, slow)
    assert apart(found, slow, "gram") < 0.01 and apart(found, slow, "sums") < 0.01


def test_a_map_goes_on_from_the_one_before() -> None:
    """What a session cannot tell, for it lacks the pictures, earlier sessions have told."""
    x, y = session(200, range(4), 0)
    move = torch.eye(6) + 0.5 * torch.randn(6, 6, generator=generator(3))
    few = Following(6)
    many = Following(6)
    many.map.fit(x, x @ move, y)
    for memory in (few, many):
        memory.map.fit(x[:8], x[:8] @ move, y[:8])
    far = [float((memory.map(x) - x @ move).norm()) for memory in (many, few)]
    assert far[0] < 0.2 * far[1]


def streamed(sizes: list[int], move: Tensor) -> tuple[Following, RidgeHead, RidgeHead]:
    """Sessions of so many classes; after the first, features move, and those of each class by its
    own offset more.

    Gives the memory, the slow head, and the head of all features where they are in the end.
    """
    memory = Following(24)
    start = 0
    width = 24
    slow, expected = (RidgeHead(width, RidgeSettings(size=300)) for _ in range(2))
    means, offsets = (
        size * torch.randn(20, width, generator=generator(k)) for k, size in ((6, 3), (2, 1.5))
    )
    mixing = torch.randn(20, width, width, generator=generator(5)) / width**0.5
    for number, size in enumerate(sizes):
        y = torch.arange(20 * size) % size + start
        x = means[y] + torch.einsum(
            "nij,nj->ni", mixing[y], torch.randn(len(y), width, generator=generator(number))
        )
        memory.kept.add(x, y)
        slow.add(x, y)
        moved = x @ move + (offsets[y] if number else 0)
        expected.add(moved, y)
        if number:
            memory.fit(x, moved, y)
        start += size
    return memory, slow, expected


def far(found: RidgeHead, expected: RidgeHead, classes: slice) -> float:
    a, b = (head.statistics.sums[:, classes] for head in (found, expected))
    return float((a - b).norm() / b.norm())


def test_classes_that_move_each_in_its_own_way_beside_a_common_one_are_followed() -> None:
    move = torch.eye(24) + 0.1 * torch.randn(24, 24, generator=generator(1))
    memory, slow, expected = streamed([4, 4, 4, 4], move)
    with_offsets = statistics_of(memory, slow)
    memory.kept.offsets.zero_()
    by_map = statistics_of(memory, slow)
    for classes in (slice(16), slice(4, 16)):
        assert far(with_offsets, expected, classes) < 0.7 * far(by_map, expected, classes)
        assert far(with_offsets, expected, classes) < 0.5 * far(slow, expected, classes)


@pytest.mark.parametrize("size", [1, 2])
def test_sessions_of_one_or_two_classes_do_not_throw_the_old_ones_about(size: int) -> None:
    memory, slow, expected = streamed([6] + [size] * (10 // size), torch.eye(24))
    found = statistics_of(memory, slow)
    assert far(found, expected, slice(6)) < 0.15  # these have not moved
    assert far(found, expected, slice(6, 16)) < 0.4 * far(slow, expected, slice(6, 16))


def test_points_of_every_view_have_the_offset_of_their_class() -> None:
    memory, (x, y) = Following(6), session(30, range(3), 0)
    memory.kept.add(x, y)
    memory.fit(
        torch.cat([x, x + 1], dim=1), torch.cat([x + y[:, None], x + y[:, None] + 3], dim=1), y
    )
    moved = memory(torch.cat([x, x], dim=1), y)
    assert torch.equal(moved[:, :6], moved[:, 6:]) and torch.allclose(moved[:, :6], memory(x, y))
    left = (
        (torch.cat([x + y[:, None], x + y[:, None] + 3]) - memory.map(torch.cat([x, x + 1])))
        .reshape(2, 30, 6)
        .mean(0)
    )
    assert torch.allclose(
        memory.kept.offsets, torch.stack([left[y == c].mean(dim=0) for c in range(3)]), atol=1e-4
    )


# -- SAFE with it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_head_of_the_fast_learner_is_near_that_of_all_pictures_extracted_anew(
    protocol: str, new: Callable[..., SAFE], make_stream: MakeStream, scramble: Any, tools: Any
) -> None:
    """Nearer than statistics that stay behind, when the fast learner moves."""
    stream = make_stream(PROTOCOLS[protocol], train=12)
    heads = {}
    for statistics in ("following", "stale"):
        method = new(statistics=statistics, pet="ssf")
        stream = make_stream(PROTOCOLS[protocol], train=12)
        fit = tools.new_fit(method, stream)
        fit.after_fit = lambda name, learner, session: scramble(
            learner[0].pet, deviation=0.05 * session.number
        )
        tools.teach(method, stream, fit=fit)
        heads[statistics] = method
    method = heads["following"]
    assert all(
        torch.equal(v, heads["stale"].fast.tuning()[k]) for k, v in method.fast.tuning().items()
    )
    anew = RidgeHead(24, method.ridge_fast.settings)
    for part in stream._parts:
        x = part.train.plain(range(len(part.train)), stream.transform).float() / 255
        with torch.no_grad():
            anew.add(
                method.fast.features(x),
                torch.tensor([method.classes.index(y) for y in part.train.labels]),
            )
    far = {
        name: float(
            (each.ridge_fast.statistics.sums - anew.statistics.sums).norm()
            / anew.statistics.sums.norm()
        )
        for name, each in heads.items()
    }
    assert far["following"] < far["stale"]
    assert method.ridge_fast.statistics.count == anew.statistics.count


@pytest.mark.parametrize(
    ("protocol", "mirror"), [("class", False), ("domain", False), ("mixed", True)]
)
def test_the_offset_of_a_class_is_the_mean_over_its_pictures_of_what_the_map_left(
    protocol: str,
    mirror: bool,
    new: Callable[..., SAFE],
    make_stream: MakeStream,
    scramble: Any,
    tools: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Zero in the first session; also of classes that come again, and with several views of a
    picture.
    """
    left: dict[int, list[Tensor]] = {}
    plain = Following.fit

    def fit(self: Following, slow: Tensor, fast: Tensor, targets: Tensor) -> None:
        plain(self, slow, fast, targets)
        rows = (fast - self.map(slow)).reshape(len(targets), -1, self.kept.width)
        assert rows.shape[1] == 1 + mirror
        for row, c in zip(rows, targets.tolist(), strict=True):
            left.setdefault(c, []).append(row.mean(dim=0))

    monkeypatch.setattr(Following, "fit", fit)
    ridge = RidgeSettings(size=40, betas=(0.1,), layers=1, patches=False, mirror=mirror)
    method = new(ridge=ridge, pet="ssf")
    stream = make_stream(PROTOCOLS[protocol], train=4)
    trainer = tools.new_fit(method, stream)
    trainer.after_fit = lambda name, learner, session: scramble(
        learner[0].pet, deviation=0.05 * session.number
    )
    tools.teach(method, stream, fit=trainer)
    kept = method.following.kept
    assert len(kept.offsets) == len(method.classes) and left
    for c, (offset, count) in enumerate(zip(kept.offsets, kept.counts.tolist(), strict=True)):
        wanted = torch.stack(left[c]).sum(dim=0) / count if c in left else torch.zeros_like(offset)
        assert torch.allclose(offset, wanted, atol=1e-5) and (c in left) == bool(offset.any())


def test_the_slow_learners_statistics_stay_sums(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    methods = [new(statistics=statistics) for statistics in ("following", "stale")]
    for method in methods:
        tools.teach(method, make_stream(PROTOCOLS["mixed"]))
    states = [method.ridge_slow.state_dict() for method in methods]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_after_the_first_session_there_is_one_learner(
    new: Callable[..., SAFE], make_stream: MakeStream, images: Tensor, tools: Any
) -> None:
    method = new()
    tools.teach(method, make_stream(PROTOCOLS["class"]), last=1)
    found = all_logits(method, images)
    assert torch.equal(found["slow"], found["fast"]) and torch.equal(found["safe"], found["slow"])


def test_no_gram_matrix_of_the_fast_learner_is_kept(
    new: Callable[..., SAFE], make_stream: MakeStream, images: Tensor, tools: Any
) -> None:
    """It follows from the memory: ``refresh`` makes the same head again."""
    method = new()
    tools.teach(method, make_stream(PROTOCOLS["mixed"]))
    state = tools.snapshot(method)
    assert "ridge_slow.statistics.gram" in state and not any(
        "ridge_fast.statistics" in name for name in state
    )
    twin = new()
    restore(twin, state, method.classes)
    assert torch.equal(twin.logits(images), method.logits(images))
    twin.refresh()
    assert torch.equal(twin.logits(images), method.logits(images))


def test_a_class_that_is_dropped_leaves_the_fast_learners_head(
    new: Callable[..., SAFE], make_stream: MakeStream, images: Tensor, tools: Any
) -> None:
    method = new()
    tools.teach(method, make_stream(PROTOCOLS["class"]))
    pictures = int(method.ridge_fast.statistics.count)
    drop_class(method, 1)
    method.refresh()
    assert method.ridge_fast.statistics.sums.shape[1] == 8
    # the slow learner's G, which it follows, keeps its pictures
    assert method.ridge_fast.statistics.count == pictures
    assert all(logits.shape == (5, 8) for logits in all_logits(method, images).values())


@pytest.mark.parametrize("train", [1, 2])
@pytest.mark.parametrize(
    "sessions", [[["a", "b"], ["c"], ["d", "e"]], [["a"], ["b"]], [["a"], ["a"]]]
)
def test_a_picture_a_class_and_a_class_a_session_are_enough(
    sessions: list[list[str]],
    train: int,
    new: Callable[..., SAFE],
    make_stream: MakeStream,
    images: Tensor,
    tools: Any,
) -> None:
    method = new()
    tools.teach(method, make_stream(sessions, train=train))
    assert all(logits.isfinite().all() for logits in all_logits(method, images).values())


def test_concatenated_features_do_not_follow() -> None:
    with pytest.raises(ValidationError, match=r"needs method\.answer\.statistics=stale"):
        SafeSettings(answer=AnswerSettings(aggregation="concat"))
    with pytest.raises(ValidationError, match=r"and plain ridge"):
        stale = AnswerSettings(aggregation="concat", statistics="stale")
        SafeSettings(answer=stale, ridge=RidgeSettings(blocks="apart"))
