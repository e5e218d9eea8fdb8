"""What pilots on half of the classes decide about the first session."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.engine.settings import TrainSettings
from safecl.heads.left_out import MIN_ERROR_CHANGE
from safecl.heads.ridge import RidgeHead
from safecl.methods.beyond.pilots import SHARES, UNJUDGED_SHARE
from safecl.methods.beyond.untuned import MIN_PILOT_GAIN
from safecl.methods.method import Batch
from safecl.methods.safe import SAFE
from safecl.streams.stream import Stream

MakeStream = Callable[..., Stream]
FOUR = [["a", "b", "c", "d"], ["e", "f"]]
HALF = 6  # pictures of half of the four classes
# With the transfer loss or without, and the share of the tuning; without any of it both are the
# same.
ASKED = [*((False, share) for share in SHARES), *((True, share) for share in SHARES if share)]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[bool, float], float]], None]:
    """Answer for the other half of the classes: ``error(transfer, share)``."""

    def answer(error: Callable[[bool, float], float]) -> None:
        questions = iter(ASKED)
        monkeypatch.setattr(
            RidgeHead,
            "leave_one_out",
            lambda self, f, y: torch.full((len(y),), error(*next(questions))),
        )

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


def test_pilots_are_tuned_on_one_half_of_the_classes_and_asked_about_the_other(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = new(beyond=True)
    stream = make_stream(FOUR)
    trained: dict[str, set[int]] = {}
    terms: dict[str, set[str]] = {}
    fit = watched(tools.new_fit(method, stream), trained, terms)
    asked: list[set[int]] = []

    def errors(self: RidgeHead, features: Tensor, targets: Tensor) -> Tensor:
        asked.append(set(targets.tolist()))
        return torch.ones(len(targets))

    monkeypatch.setattr(RidgeHead, "leave_one_out", errors)
    tools.teach(method, stream, last=1, fit=fit)
    assert trained == {"pilot1": {0, 2}, "pilot2": {0, 2}, "slow": {0, 1, 2, 3}}
    assert terms == {"pilot1": {"cls"}, "pilot2": {"cls", "diag", "rdn"}, "slow": {"cls"}}
    assert asked == [{1, 3}] * len(ASKED)
    noted = {"pilots": True, "transfer": False, "kept": 1.0, "untuned": True, "gain": 0.0}
    assert method.notes == noted


@pytest.mark.parametrize(("transfer", "best"), ASKED)
def test_what_was_best_in_the_pilots_is_done(
    transfer: bool,
    best: float,
    new: Callable[..., SAFE],
    make_stream: MakeStream,
    tools: Any,
    answers: Any,
) -> None:
    free = new(beyond=False, pet="ssf", loss="correlation" if transfer else "none")
    start = free.slow.tuning()
    tools.teach(free, make_stream(FOUR), last=1)
    end = free.slow.tuning()
    answers(lambda loss, share: 1 + abs(share - best) + (loss != transfer))
    method = new(beyond=True, pet="ssf")
    tools.teach(method, make_stream(FOUR), last=1)
    for name, value in method.slow.tuning().items():
        assert torch.allclose(value, (1 - best) * start[name] + best * end[name], atol=1e-6)


@pytest.mark.parametrize("gain", [MIN_ERROR_CHANGE / 4, MIN_ERROR_CHANGE])
def test_what_is_taken_back_must_pay(
    gain: float, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, answers: Any
) -> None:
    """Half of the tuning is taken back for half of what all of it would have to gain."""
    method = new(beyond=True)
    answers(lambda loss, share: 1 - gain if share == 0.5 else 1.0)
    tools.teach(method, make_stream(FOUR), last=1)
    assert method.notes["kept"] == (0.5 if gain == MIN_ERROR_CHANGE else 1.0)


@pytest.mark.parametrize("best", [(False, 1.0), (True, 0.5)])
@pytest.mark.parametrize(
    ("gain", "statistics"), [(0.9, "following"), (1.1, "following"), (0.9, "stale")]
)
def test_the_untuned_backbone_answers_where_the_best_pilot_gains_little_over_it(
    best: tuple[bool, float],
    gain: float,
    statistics: str,
    new: Callable[..., SAFE],
    make_stream: MakeStream,
    tools: Any,
    answers: Any,
) -> None:
    method = new(beyond=True, statistics=statistics)
    answers(lambda *asked: 1 - gain * MIN_PILOT_GAIN if asked == best else 1.0)
    tools.teach(method, make_stream(FOUR), last=1)
    wanted = gain < 1 and statistics == "following"
    follows = statistics == "following"  # otherwise nobody has a use for the untuned backbone
    noted = {"untuned": wanted} if follows else {}
    noted |= {"gain": pytest.approx(gain * MIN_PILOT_GAIN)}
    assert method.notes == {"pilots": True, "transfer": best[0], "kept": best[1], **noted}
    assert ("untuned" in method.experts()) == wanted
    if follows:
        assert method.following.untuned.width == (24 if wanted else 0)  # nothing is kept in vain


def test_without_a_transfer_loss_only_the_share_is_asked_for(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    method = new(beyond=True, loss="none")
    assert tools.teach(method, make_stream(FOUR), last=1).calls == [(1, "pilot1"), (1, "slow")]


@pytest.mark.parametrize(
    ("classes", "pictures"),
    [("ab", 5), ("abc", 5), ("abcd", 1), ("abcd", 2)],
    ids=["two classes", "classes", "pictures of a class", "pictures"],
)
def test_with_too_little_to_ask_half_of_a_tuning_as_that_of_ranpac_is_kept(
    classes: str, pictures: int, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    method = new(beyond=True)
    free = new(beyond=False, loss="none")
    for each in (method, free):
        start = each.slow.tuning()
        stream = make_stream([list(classes)], train=pictures)
        assert tools.teach(each, stream).calls == [(1, "slow")]
    share = UNJUDGED_SHARE if len(classes) > 2 else 1.0
    for key, value in free.slow.tuning().items():
        torch.testing.assert_close(method.slow.tuning()[key], torch.lerp(start[key], value, share))
    assert method.share.chosen == 1  # of the fast learner's, which later sessions tune


def test_classes_of_one_picture_take_no_part(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    method = new(beyond=True)
    stream = make_stream([list("abcdef")])
    labels = stream._parts[0].train.labels
    kept = [
        i for i, label in enumerate(labels) if label not in ("b", "f") or labels.index(label) == i
    ]
    stream._parts = [stream._parts[0]._replace(train=stream._parts[0].train.subset(kept))]
    fit = tools.new_fit(method, stream)
    seen = {}
    fit.on_fit = lambda name, learner, session: seen.update({name: session.classes})
    tools.teach(method, stream, fit=fit)
    assert seen == {"pilot1": ("a", "d"), "pilot2": ("a", "d"), "slow": tuple("abcdef")}


def test_of_many_pictures_some_of_every_class_judge(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []
    monkeypatch.setattr(
        RidgeHead,
        "leave_one_out",
        lambda self, f, y: asked.append(y.tolist()) or torch.ones(len(y)),
    )
    monkeypatch.setattr("safecl.methods.beyond.pilots.MAX_JUDGING_PICTURES", 7)
    fit = tools.teach(new(beyond=True), make_stream([["a", "b", "c", "d"]], train=5))
    assert all(sorted(found) == [1, 1, 1, 3, 3, 3] for found in asked) and len(asked) == len(ASKED)
    # on all pictures of their half
    assert [name for _, name in fit.calls] == [
        "pilot1",
        "pilot2",
        "slow",
    ]


def test_without_a_pet_there_is_nothing_to_pilot(
    new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    assert tools.teach(new(beyond=True, pet="none"), make_stream(FOUR), last=1).calls == [
        (1, "slow")
    ]


@pytest.mark.parametrize(("length", "epochs"), [(1.0, 8), (0.25, 2), (0.01, 1)])
def test_a_pilot_has_a_share_of_the_epochs(
    length: float, epochs: int, new: Callable[..., SAFE], make_stream: MakeStream, tools: Any
) -> None:
    method = new(beyond=length)
    stream = make_stream(FOUR)
    fit = tools.new_fit(method, stream, TrainSettings(epochs=8, batch_size=HALF))
    tools.teach(method, stream, last=1, fit=fit)
    assert {phase["phase"]: phase["steps"] for phase in fit.phases} == {
        "pilot1": epochs,
        "pilot2": epochs,
        "slow": 16,
    }
