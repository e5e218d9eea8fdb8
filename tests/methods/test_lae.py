"""LAE's moving average, calibration and ensemble against their equations."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.engine.settings import TrainSettings
from safecl.methods.method import all_logits

SESSIONS = [["a", "b"], ["c", "d"]]


@pytest.fixture
def method(backbone: Backbone, tools: Any) -> Any:
    return tools.new_method(backbone, {"name": "lae", "decay": 0.9})


def test_the_offline_pet_is_the_moving_average_of_the_online_one(
    method: Any, make_stream: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream(SESSIONS)
    passed = []
    average = type(method).average

    def watched(self: Any) -> None:
        passed.append(self.learner.tuning())
        average(self)

    monkeypatch.setattr(type(method), "average", watched)
    fit = tools.new_fit(method, stream, TrainSettings(epochs=5, batch_size=4, lr=0.05))
    tools.teach(method, stream, last=1, fit=fit)
    assert not passed and tools.same(method.learner.tuning(), method.offline.tuning())
    expected = method.offline.tuning()
    tools.teach(method, stream, first=2, fit=fit)
    assert len(passed) == 5 * 2  # every step of both phases
    for values in passed:
        expected = {key: 0.9 * mine + 0.1 * values[key] for key, mine in expected.items()}
    for key, value in method.offline.tuning().items():
        assert torch.allclose(value, expected[key], atol=1e-6)
    assert not tools.same(method.learner.tuning(), method.offline.tuning())


def test_new_heads_are_calibrated_before_the_pet_moves(
    method: Any, make_stream: Any, tools: Any
) -> None:
    stream = make_stream(SESSIONS)
    fit = tools.new_fit(method, stream, TrainSettings(epochs=5, batch_size=4, lr=0.05))
    phases = []

    def state() -> Any:
        return method.learner.tuning(), [w.detach().clone() for w in method.head.weights]

    fit.on_fit = lambda *_: phases.append([state()])
    fit.after_fit = lambda *_: phases[-1].append(state())
    tools.teach(method, stream, fit=fit)
    assert fit.calls == [(1, "lae"), (2, "head"), (2, "lae")]
    # 3 of 5 epochs, 2 batches each
    assert [phase["steps"] for phase in fit.phases] == [
        3 * 2,
        2 * 2,
    ]
    (pet, heads), (pet_after, heads_after) = phases[1]
    assert tools.same(pet, pet_after) and not torch.equal(heads[1], heads_after[1])
    (pet, heads), (pet_after, heads_after) = phases[2]
    assert not tools.same(pet, pet_after) and not torch.equal(heads[1], heads_after[1])
    assert torch.equal(phases[0][1][1][0], method.head.weights[0])  # the head of session 1 stays


def test_adam_continues_with_the_head_where_the_pet_joins(
    method: Any, make_stream: Any, tools: Any
) -> None:
    stream = make_stream(SESSIONS)
    steps = []
    train = TrainSettings(epochs=5, batch_size=4, lr=0.01, optimiser="adam", weight_decay=0)
    fit = tools.new_fit(method, stream, train)
    fit.after_fit = lambda *_: steps.append(
        {p: int(s["step"]) for p, s in fit.optimiser.torch.state.items()}
    )
    tools.teach(method, stream, last=1)
    tools.teach(method, stream, first=2, fit=fit)
    head = method.head.weights[-1]
    pet = next(method.learner.parameters())
    # 3 of 5 epochs, 2 batches each
    assert head in steps[0] and pet not in steps[0] and steps[0][head] == 3 * 2
    assert steps[1][head] == 5 * 2 and steps[1][pet] == 2 * 2


def test_a_single_epoch_trains_everything(method: Any, make_stream: Any, tools: Any) -> None:
    fit = tools.teach(method, make_stream(SESSIONS))
    assert fit.calls == [(1, "lae"), (2, "lae")]


def test_the_answer_is_the_larger_of_two_probabilities(
    method: Any, make_stream: Any, images: Tensor, tools: Any
) -> None:
    tools.teach(method, make_stream(SESSIONS))
    online, offline = (
        F.softmax(method.head(learner.features(images)), dim=1)
        for learner in (method.learner, method.offline)
    )
    with torch.no_grad():
        found = all_logits(method, images)
    for i in range(len(images)):
        for c in range(4):
            assert float(found["lae"][i, c].exp()) == pytest.approx(
                max(float(online[i, c]), float(offline[i, c]))
            )
    assert torch.allclose(found["online"].exp(), online) and torch.allclose(
        found["offline"].exp(), offline
    )
