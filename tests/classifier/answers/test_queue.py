"""What to label next: unsure and unknown pictures first, different from each other, and none that
was learned.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from safecl.classifier.answers import queue
from safecl.classifier.answers.queue import order
from safecl.classifier.classifier import ContinualClassifier
from tests.conftest import raises

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]


def test_the_order_is_that_of_all_gains_computed_anew(seed: int = 3) -> None:
    dice = np.random.default_rng(seed)
    features = dice.normal(size=(40, 5))
    worth = dice.uniform(size=40)
    centred = features - features.mean(axis=0)
    f = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    similar = (f @ f.T).clip(min=0)
    covered = np.zeros(40)
    expected = list[int]()
    for _ in range(40):
        gains = (np.maximum(similar - covered, 0) * worth).sum(axis=1) + 1e-6 * worth
        gains[expected] = -1
        expected.append(int(gains.argmax()))
        covered = np.maximum(covered, similar[expected[-1]])
    found = order(torch.tensor(worth), torch.tensor(features), 40)
    assert found[:20] == expected[:20] and sorted(found) == list(range(40))
    assert order(torch.tensor(worth), torch.tensor(features), 99) == found


def test_what_is_worth_more_and_unlike_the_others_comes_first() -> None:
    groups = torch.eye(3).repeat_interleave(4, dim=0) + 0.01 * torch.arange(12)[:, None]
    worth = torch.tensor([0.9] * 4 + [0.5] * 4 + [0.1] * 4)
    assert [i // 4 for i in order(worth, groups, 3)] == [0, 1, 2]


def test_many_pictures_are_compared_with_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MAX_CANDIDATES", 10)
    monkeypatch.setattr(queue, "MAX_COMPARED", 7)
    worth = torch.arange(50.0)
    features = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    assert sorted(order(worth, features, 10)) == list(range(40, 50))
    assert len(order(worth, features, 20)) == 20


def test_learned_pictures_are_omitted_and_twins_come_last(
    taught: ContinualClassifier, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    learned = lesson("ab")[0]
    new = lesson("abxy", 2, seed=5)[0]
    given = np.concatenate([learned[:3], new, new[:1]])
    found = taught.queue(given, 99)
    assert sorted(one.index for one in found) == list(range(3, 12))
    twins = [place for place, one in enumerate(found) if one.index in (3, 11)]
    assert twins[1] == len(found) - 1  # it adds nothing to the other one
    assert [one.index for one in taught.queue(given, 4)] == [one.index for one in found[:4]]
    taught.save(tmp_path / "frozen.safecl", frozen=True)
    frozen = ContinualClassifier.load(tmp_path / "frozen.safecl", device="cpu")
    assert len(frozen.queue(given, 99)) == 12  # it does not know what it was taught with
    assert taught.queue(learned, 5) == []
    with raises("queue.count", count=re.compile("^0")):
        taught.queue(given, 0)


def test_an_unknown_picture_is_worth_most(
    taught: ContinualClassifier, lesson: Lesson, tmp_path: Path
) -> None:
    Image.fromarray(lesson("z", 1)[0][0]).save(tmp_path / "z.png")
    found = taught.queue(tmp_path, unknown=0.9)
    assert (
        found[0].where == str(tmp_path / "z.png")
        and found[0].answer.unknown
        and found[0].worth == 1
    )
    (sure,) = taught.queue(tmp_path, unknown=0.0)
    assert 0 < sure.worth < 1 and sure.worth == 1 - sure.answer.nearest[0][1]


@pytest.mark.parametrize("name", ["ranpac", "simplecil", "l2p", "ease"])
def test_any_method_has_a_queue(name: str, new_model: New, lesson: Lesson) -> None:
    model = new_model(name)
    model.learn(*lesson("ab", 3))
    assert len(model.queue(lesson("abc", 2, seed=1)[0], 4)) == 4
