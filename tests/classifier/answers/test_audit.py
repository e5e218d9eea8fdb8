"""Pictures that do harm are found, named with the command that mends them, and mended by it."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from safecl.classifier.answers.audit import all_but_equal, hidden, suspects
from safecl.classifier.classifier import ContinualClassifier
from tests.conftest import raises


def squares(classes: str, each: int, seed: int, noise: float = 50) -> tuple[np.ndarray, list[str]]:
    """Pictures of four by four squares, in the colours of their class and some noise."""
    labels = [label for label in classes for _ in range(each)]
    draw = np.random.default_rng(seed)
    seeds = [list(label.encode()) for label in labels]
    means = [np.random.default_rng(one).uniform(40, 215, (4, 4, 3)) for one in seeds]
    found = np.array(means) + draw.normal(0, noise, (len(labels), 4, 4, 3))
    return found.clip(0, 255).astype(np.uint8).repeat(4, axis=1).repeat(4, axis=2), labels


@pytest.mark.parametrize("name", ["ranpac", "safe", "simplecil"])
def test_wrong_labels_come_first(name: str, new_model: Callable[..., Any]) -> None:
    images, labels = squares("abcdefgh", 20, 1)
    wrong = range(3, 160, 20)  # one of twenty
    for i in wrong:
        labels[i] = "abcdefgh"[("abcdefgh".index(labels[i]) + 3) % 8]
    model = new_model(name)
    model.learn(images[:80], labels[:80])
    model.learn(images[80:], labels[80:])
    found = model.audit(images)
    first = {int(one.where.split()[-1]) for one in found.harmful[:16] if one.where is not None}
    assert len(found.harmful) == 160 and len(first & {*wrong}) >= 7
    harms = [one.harm for one in found.harmful]
    if name == "simplecil":
        assert {*harms} == {None}
    else:
        assert np.mean(harms[:8]) > 0 > np.mean(harms[8:])


def test_the_command_mends_what_it_is_of(
    new_model: Callable[..., Any], tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    images, labels = squares("abc", 8, 2, noise=20)
    files = []
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        where = "b" if i == 3 else label
        files.append(tmp_path / "pictures of mine" / where / f"{i:02d}.png")
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(files[-1])
    path = str(tmp_path / "m.safecl")
    model = new_model(thumbnails=True)
    model.learn(tmp_path / "pictures of mine")
    model.save(path)
    words = ("audit", path, str(tmp_path / "pictures of mine"), "-n", "2")
    code, said, _ = command(*words, "--json", "--page", str(tmp_path / "page.html"))
    first = json.loads(said)["harmful"][0]
    assert code == 0 and (first["label"], first["answer"]) == ("b", "a")
    assert first["where"].endswith("03.png") and first["harm"] > 0.1
    page = (tmp_path / "page.html").read_text()
    assert "correct" in page and page.count("data:image/jpeg") >= 2
    _, said, _ = command(*words)
    picture, mends = said.splitlines()[:2]
    assert "03.png is labelled b and looks like a" in picture
    assert mends.strip() == first["mends"]
    code, _, _ = command(*shlex.split(mends)[1:])
    assert code == 0
    after = ContinualClassifier.load(path, device="cpu").audit(files)
    assert after.harmful[0].sure > first["sure"]
    nameless = ContinualClassifier.load(path, device="cpu").audit()
    assert {one.where for one in nameless.harmful} == {None}
    assert nameless.harmful[0].mends("m.safecl").startswith("safecl correct m.safecl PICTURE --")


def test_a_picture_under_two_labels_is_told(new_model: Callable[..., Any]) -> None:
    images, labels = squares("abc", 6, 3)
    model = new_model("ranpac")
    model.learn(images, labels)
    model.learn(images[:1], ["b"], again=True)
    nearly = images[-1].copy()
    nearly[0, 0] ^= 1
    model.learn(np.stack([nearly]), ["a"])
    found = model.audit([*images, nearly])
    assert {(*one.where, *one.labels) for one in found.twins} == {
        ("picture 0", "picture 0", "a", "b"),
        ("picture 17", "picture 18", "c", "a"),
    }
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    twice = torch.cat([x, x[2:4] + 1e-4])
    assert all_but_equal(twice, torch.tensor([0, 1, 0, 1, 0, 1, 1, 1])) == [(2, 6)]


def test_a_class_hides_behind_another_that_has_more_of_its_answers() -> None:
    calibration = {
        "classes": [[10, 9, 9], [10, 3, 3], [4, 1, 1]],
        "confused": [[1, 0, 6], [2, 1, 2], [0, 1, 1]],
    }
    (one,) = hidden(calibration, ["a dog", "cat", "owl"])
    assert (one.label, one.behind, one.count, one.judged) == ("cat", "a dog", 6, 10)
    assert one.mends("m.safecl") == "safecl join m.safecl 'a dog' cat"


def test_a_model_that_keeps_nothing_cannot_be_audited(
    new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    model = new_model("ease")
    model.learn(*lesson("abc", 3))
    with raises("audit.nothing-kept"):
        model.audit()
    kept = new_model("ranpac")
    kept.learn(*lesson("abc", 8))
    kept.save(tmp_path / "frozen.safecl", frozen=True)
    with raises("audit.nothing-kept"):
        ContinualClassifier.load(tmp_path / "frozen.safecl", device="cpu").audit()


def test_of_right_labels_of_honest_probabilities_none_look_wrong_mostly_and_planted_ones_do() -> (
    None
):
    """200 sets of 150 labels, drawn by the probabilities themselves; then eight of them are
    others.
    """
    draw = torch.Generator().manual_seed(1)
    false = list[int]()
    beside = list[int]()
    found = list[float]()
    for _ in range(200):
        p = torch.softmax(6 * torch.randn(150, 8, generator=draw), dim=1)
        targets = torch.multinomial(p, 1, generator=draw)[:, 0]
        false.append(len(suspects(p, targets)))
        wrong = targets.clone()
        wrong[:8] = (targets[:8] + 1) % 8
        named = {*suspects(p, wrong)}
        found.append(len(named & {*range(8)}) / 8)
        beside.append(len(named - {*range(8)}))
    assert np.mean(np.array(false) > 0) < 0.25 and np.mean(false) < 0.5
    assert np.mean(found) > 0.6 and np.mean(beside) < 1.5


def test_a_label_is_doubted_where_another_class_is_likely_and_chance_is_not() -> None:
    p = torch.full((40, 3), 0.02)
    p[:, 0] = 0.96
    targets = torch.zeros(40, dtype=torch.int64)
    targets[7], p[7] = 1, torch.tensor([0.995, 0.004, 0.001])
    assert suspects(p, targets) == [7]
    p[7] = torch.tensor([0.6, 0.004, 0.396])  # no other class is likely
    assert suspects(p, targets) == []
    p[7] = torch.tensor([0.97, 0.02, 0.01])  # of forty, one is so unlikely by chance
    assert suspects(p, targets) == []
    assert suspects(p[:0], targets[:0]) == []
