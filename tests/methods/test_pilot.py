"""What pilots on half of the classes decide about the first session."""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.engine.settings import TrainSettings
from safecl.heads.left_out import SURE
from safecl.heads.ridge import RidgeHead
from safecl.methods.method import Batch
from safecl.methods.pilot import SHARES
from safecl.methods.safe import SAFE
from safecl.streams.stream import Stream

MakeStream = Callable[..., Stream]
FOUR = [["a", "b", "c", "d"], ["e", "f"]]
HALF = 6  # pictures of half of the four classes
LESS = SHARES[1:]


@pytest.fixture
def answers(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[int, float], Tensor]], list[tuple[int, int, float]]]:
    """Answer for the other half of the classes: ``errors(loss, share)`` (12,), of which each half gives its own.

    Gives what was asked: the half, the loss and the share.
    """

    def answer(errors: Callable[[int, float], Tensor]) -> list[tuple[int, int, float]]:
        asked: list[tuple[int, int, float]] = []

        def questions() -> Iterator[Tensor]:
            def reply(half: int, loss: int, share: float) -> Tensor:
                asked.append((half, loss, share))
                return errors(loss, share)[half * HALF : (half + 1) * HALF]

            plain = reply(0, 0, 1.0)
            yield plain
            other = reply(0, 1, 1.0)
            yield other
            gains = plain - other
            way = int(gains.mean() > SURE * gains.std() / HALF**0.5)
            for share in LESS:
                yield reply(0, way, share)
            for share in SHARES:
                yield reply(1, way, share)

        question = questions()
        monkeypatch.setattr(RidgeHead, "leave_one_out", lambda self, features, targets: next(question))
        return asked

    return answer


def watched(fit: Any, trained: dict[str, set[int]], terms: dict[str, set[str]]) -> Any:
    """Note the classes and the terms that every phase of ``fit`` is trained with."""
    real = fit.around

    def around(loss: Any) -> Any:
        name = fit.calls[-1][1]

        def noted(batch: Batch) -> dict[str, Tensor]:
            found: dict[str, Tensor] = real(loss)(batch)
            trained.setdefault(name, set()).update(batch.targets.tolist())
            terms.setdefault(name, set()).update(found)
            return found

        return noted

    fit.around = around
    return fit


@pytest.mark.parametrize("sign", [False, True])
def test_pilots_are_tuned_on_one_half_of_the_classes_and_asked_about_the_other(
    sign: bool, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sign``: that less of the tuning would be better. Then the other half is tuned too."""
    method, stream = new(pilot=True), make_stream(FOUR)
    trained: dict[str, set[int]] = {}
    terms: dict[str, set[str]] = {}
    fit = watched(tools.new_fit(method, stream), trained, terms)
    asked: list[set[int]] = []

    def errors(self: RidgeHead, features: Tensor, targets: Tensor) -> Tensor:
        asked.append(set(targets.tolist()))
        return torch.ones(len(targets)) - (1e-3 if sign and len(asked) > 2 else 0)

    monkeypatch.setattr(RidgeHead, "leave_one_out", errors)
    tools.teach(method, stream, last=1, fit=fit)
    assert [name for _, name in fit.calls] == ["pilot1", "pilot2", *(["pilot3"] if sign else []), "slow"]
    halves = {"pilot1": {0, 2}, "pilot2": {0, 2}, "pilot3": {1, 3}, "slow": {0, 1, 2, 3}}
    assert trained == {name: halves[name] for name in trained} and len(trained) == len(fit.calls)
    assert terms["pilot2"] == {"cls", "diag", "rdn"}
    assert all(found == {"cls"} for name, found in terms.items() if name != "pilot2")
    assert asked == [{1, 3}] * (2 + len(LESS)) + [{0, 2}] * (len(SHARES) if sign else 0)


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
def test_only_what_is_no_chance_is_transferred(
    gain: float, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, answers: Any
) -> None:
    """Errors with the transfer loss that are less by ``gain`` standard errors; in doubt the learner is RanPAC's."""
    free, method = new(pilot=False, transfer="none"), new(pilot=True)
    tools.teach(free, make_stream(FOUR), last=1)
    noise = torch.tensor([1.0, -1.0] * HALF)
    better = 2 + noise - gain * float(noise[:HALF].std()) / HALF**0.5
    asked = answers(lambda loss, share: better if loss else torch.full((2 * HALF,), 2.0))
    tools.teach(method, make_stream(FOUR), last=1)
    assert asked == [(0, 0, 1.0), (0, 1, 1.0), *((0, int(gain > SURE), share) for share in LESS)]
    mine, other = method.slow.tuning(), free.slow.tuning()
    assert all(torch.equal(mine[key], other[key]) for key in mine) == (gain < SURE)


@pytest.mark.parametrize("gain", [SURE - 0.5, SURE + 0.5])
def test_only_what_is_no_chance_for_both_halves_is_taken_back(
    gain: float, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, answers: Any
) -> None:
    method = new(pilot=True)
    noise = torch.tensor([1.0, -1.0] * HALF)
    better = 2 + noise - gain * float(noise.std()) / (2 * HALF) ** 0.5
    asked = answers(lambda loss, share: better if share == 0.5 else torch.full((2 * HALF,), 2.0))
    tools.teach(method, make_stream(FOUR), last=1)
    first = [(0, 0, 1.0), (0, 1, 1.0), *((0, 0, share) for share in LESS)]
    assert asked == [*first, *((1, 0, share) for share in SHARES)]
    assert method.notes["kept"] == (0.5 if gain > SURE else 1.0)


def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every error is a little less than the one before: the other half is asked too, and nothing is sure."""
    steps = count()
    monkeypatch.setattr(
        RidgeHead, "leave_one_out", lambda self, f, y: 2 - 1e-6 * next(steps) + torch.arange(len(y)) % 2
    )


def test_without_a_transfer_loss_only_the_share_is_asked_for(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = new(pilot=True, transfer="none")
    falling(monkeypatch)
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


def test_classes_of_one_picture_take_no_part(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling(monkeypatch)
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


@pytest.mark.parametrize(("length", "epochs"), [(1.0, 8), (0.25, 2), (0.01, 1)])
def test_a_pilot_has_a_share_of_the_epochs(
    length: float,
    epochs: int,
    new: Callable[..., SAFE],
    make_stream: MakeStream,
    tools: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    falling(monkeypatch)
    method, stream = new(pilot=length, transfer="none"), make_stream(FOUR)
    fit = tools.new_fit(method, stream, TrainSettings(epochs=8, batch_size=HALF))
    tools.teach(method, stream, last=1, fit=fit)
    assert {phase["phase"]: phase["steps"] for phase in fit.phases} == {"pilot1": epochs, "pilot2": epochs, "slow": 16}
