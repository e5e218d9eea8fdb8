"""What pictures that nobody has tuned on decide: about the first session, and about later ones."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.heads import RidgeHead, RidgeSettings
from safecl.methods.pilot import FEWEST, MATTERS, MOST, SHARES, SURE, helped
from safecl.methods.safe import SAFE
from safecl.streams.stream import Stream

MakeStream = Callable[..., Stream]
FOUR = [["a", "b", "c", "d"], ["e", "f"]]
HALF = 6  # pictures of half of the four classes
LESS = SHARES[1:]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int, float], Tensor]], list[tuple[int, float]]]:
    """Answer for the other half of the classes: ``errors(loss, share)`` (12,); gives what was asked."""

    def answer(errors: Callable[[int, float], Tensor]) -> list[tuple[int, float]]:
        asked: list[tuple[int, float]] = []

        def questions() -> Iterator[Tensor]:
            ways, chosen, least = [(0, 1.0), (1, 1.0)], (0, 1.0), errors(0, 1.0)
            while ways:
                way = ways.pop(0)
                asked.append(way)
                found = errors(*way)
                yield found[:HALF]
                yield found[HALF:]
                if (least - found).mean() > SURE * (least - found).std() / (2 * HALF) ** 0.5:
                    chosen, least = way, found
                if way == (1, 1.0):
                    ways = [(chosen[0], share) for share in LESS]

        question = questions()
        monkeypatch.setattr(RidgeHead, "leave_one_out", lambda self, features, targets: next(question))
        return asked

    return answer


def test_pilots_are_tuned_on_one_half_of_the_classes_and_asked_about_the_other(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, stream = new(pilot=True), make_stream(FOUR)
    fit = tools.new_fit(method, stream)
    trained: dict[str, set[int]] = {}
    terms: dict[str, set[str]] = {}
    real = fit.around

    def around(loss: Any) -> Any:
        name = fit.calls[-1][1]

        def watched(x: Tensor, y: Tensor) -> dict[str, Tensor]:
            found: dict[str, Tensor] = real(loss)(x, y)
            trained.setdefault(name, set()).update(y.tolist())
            terms.setdefault(name, set()).update(found)
            return found

        return watched

    fit.around = around
    asked: list[set[int]] = []
    monkeypatch.setattr(
        RidgeHead, "leave_one_out", lambda self, features, y: asked.append(set(y.tolist())) or torch.ones(len(y))
    )
    tools.teach(method, stream, last=1, fit=fit)
    assert [name for _, name in fit.calls] == ["pilot1", "pilot2", "pilot3", "pilot4", "slow"]
    assert trained == {"slow": {0, 1, 2, 3}} | {f"pilot{i + 1}": {0, 2} if i < 2 else {1, 3} for i in range(4)}
    assert terms["pilot1"] == terms["pilot3"] == terms["slow"] == {"cls"}
    assert terms["pilot2"] == terms["pilot4"] == {"cls", "diag", "rdn"}
    assert asked == [{1, 3}, {0, 2}] * (2 + len(LESS))


@pytest.mark.parametrize("best", SHARES)
@pytest.mark.parametrize("transfer", [False, True])
def test_what_was_best_in_the_pilots_is_done(
    transfer: bool, best: float, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, answers: Any
) -> None:
    free = new(pilot=False, pet="ssf", transfer="correlation" if transfer else "none")
    start = free.slow.tuning()
    tools.teach(free, make_stream(FOUR), last=1)
    end = free.slow.tuning()
    answers(lambda loss, share: torch.full((2 * HALF,), abs(share - best) + (loss != transfer)))
    method = new(pilot=True, pet="ssf")
    tools.teach(method, make_stream(FOUR), last=1)
    for name, value in method.slow.tuning().items():
        assert torch.allclose(value, (1 - best) * start[name] + best * end[name], atol=1e-6)


@pytest.mark.parametrize("gain", [SURE - 0.5, SURE + 0.5])
def test_only_what_is_no_chance_changes_anything(
    gain: float, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, answers: Any
) -> None:
    """Errors of another way that are less by ``gain`` standard errors; in doubt the slow learner is RanPAC's."""
    free, method = new(pilot=False, transfer="none"), new(pilot=True)
    tools.teach(free, make_stream(FOUR), last=1)
    noise = torch.tensor([1.0, -1.0] * HALF)
    better = 2 + noise - gain * float(noise.std()) / (2 * HALF) ** 0.5
    asked = answers(lambda loss, share: better if loss else torch.full((2 * HALF,), 2.0))
    tools.teach(method, make_stream(FOUR), last=1)
    assert asked == [(0, 1.0), (1, 1.0), *((int(gain > SURE), share) for share in LESS)]
    mine, other = method.slow.tuning(), free.slow.tuning()
    assert all(torch.equal(mine[key], other[key]) for key in mine) == (gain < SURE)


def test_without_a_transfer_loss_only_the_share_is_asked_for(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    method = new(pilot=True, transfer="none")
    assert tools.teach(method, make_stream(FOUR), last=1).calls == [(1, "pilot1"), (1, "pilot2"), (1, "slow")]


@pytest.mark.parametrize(
    ("classes", "pictures"), [("abc", 5), ("abcd", 1), ("abcd", 2)], ids=["classes", "pictures of a class", "pictures"]
)
def test_with_too_little_to_ask_the_first_session_is_that_of_ranpac(
    classes: str, pictures: int, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    method, free = new(pilot=True), new(pilot=False, transfer="none")
    for each in (method, free):
        stream = make_stream([list(classes)], train=pictures)
        assert tools.teach(each, stream).calls == [(1, "slow")]
    assert all(torch.equal(value, free.slow.tuning()[key]) for key, value in method.slow.tuning().items())


def test_classes_of_one_picture_take_no_part(new: Callable[..., SAFE], make_stream: MakeStream, tools: Any) -> None:
    method, stream = new(pilot=True, transfer="none"), make_stream([list("abcdef")])
    labels = stream._parts[0].train.labels
    kept = [i for i, label in enumerate(labels) if label not in ("b", "f") or labels.index(label) == i]
    stream._parts = [dataclasses.replace(stream._parts[0], train=stream._parts[0].train.subset(kept))]
    fit, seen = tools.new_fit(method, stream), {}
    fit.on_fit = lambda name, learner, session: seen.update({name: session.classes})
    tools.teach(method, stream, fit=fit)
    assert seen == {"pilot1": ("a", "d"), "pilot2": ("c", "e"), "slow": tuple("abcdef")}


def test_without_a_pet_there_is_nothing_to_pilot(new: Callable[..., SAFE], make_stream: MakeStream, tools: Any) -> None:
    assert tools.teach(new(pilot=True, pet="none"), make_stream(FOUR), last=1).calls == [(1, "slow")]


# -- later sessions -------------------------------------------------------------------------------------------------


def cloud(targets: Tensor, signal: float) -> Tensor:
    """Features (N, 16) of which ``signal`` says how far the classes are apart."""
    draw = torch.Generator().manual_seed(0)
    centres, noise = torch.randn(8, 16, generator=draw), torch.randn(len(targets), 16, generator=draw)
    return signal * centres[targets] + noise


def test_a_tuning_helps_if_it_tells_unseen_pictures_apart() -> None:
    head, targets = RidgeHead(16, RidgeSettings(size=100)), torch.arange(8).repeat(8)
    worse, better = cloud(targets, 0.3), cloud(targets, 3.0)
    assert helped(head, worse, better, targets)
    assert not helped(head, better, worse, targets)
    assert not helped(head, better, better, targets)
    assert not helped(head, cloud(targets, 0.30), cloud(targets, 0.31), targets)


@pytest.mark.parametrize(
    "targets",
    [[0] * 20, [0] * 20 + [1], list(range(8)), [0, 1] * (FEWEST // 2 - 1) + [2, 3]],
    ids=["one class", "a class of one picture", "classes of one picture", "few pictures"],
)
def test_with_too_little_to_ask_nothing_has_helped(targets: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.tensor(targets)
    monkeypatch.setattr(RidgeHead, "leave_one_out", lambda self, f, y: pytest.fail("was asked"))
    assert not helped(RidgeHead(16, RidgeSettings(size=10)), cloud(labels, 0.1), cloud(labels, 9.0), labels)


@pytest.mark.parametrize(
    ("labels", "each"),
    [
        (torch.arange(8).repeat_interleave(MOST // 8), MOST // 8),
        (torch.arange(8).repeat_interleave(MOST), MOST // 8),
        (torch.arange(8).repeat(MOST), MOST // 8),
        (torch.arange(345).repeat_interleave(10), 2),
        (torch.cat([torch.zeros(MOST, dtype=torch.long), torch.tensor([1, 2, 2, 2])]), MOST // 2),
    ],
    ids=["all of few", "class by class", "by turns", "many classes", "one class with most"],
)
def test_of_many_pictures_some_of_every_class_are_asked(
    labels: Tensor, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Tensor] = []
    monkeypatch.setattr(RidgeHead, "leave_one_out", lambda self, f, y: asked.append(y) or torch.zeros(len(y)))
    features = torch.randn(len(labels), 16)
    assert not helped(RidgeHead(16, RidgeSettings(size=10)), features, features, labels)
    there = labels.bincount()
    expected = torch.where(there > 1, there.clamp(max=each), 0)
    assert len(asked) == 2 and all(torch.equal(y.bincount(minlength=len(there)), expected) for y in asked)


@pytest.mark.parametrize("gain", [MATTERS - 0.01, MATTERS + 0.01])
def test_a_gain_that_is_sure_but_small_is_none(gain: float, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.arange(8).repeat(8)
    before, after = cloud(labels, 1.0), cloud(labels, 2.0)
    noise = torch.linspace(-1e-3, 1e-3, len(labels))
    monkeypatch.setattr(
        RidgeHead,
        "leave_one_out",
        lambda self, f, y: torch.full_like(noise, 2.0) if torch.equal(f, before) else 2 * (1 - gain) + noise,
    )
    assert helped(RidgeHead(16, RidgeSettings(size=10)), before, after, labels) == (gain > MATTERS)
