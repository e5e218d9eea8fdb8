"""Arrays, torch datasets and Hugging Face datasets: one line each."""

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from safecl.streams.sources.arrays import from_arrays, from_hugging_face, from_torch, targets
from tests.conftest import raises


def images(n: int = 20, side: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def test_arrays_become_a_stream_in_one_line() -> None:
    stream = from_arrays(images(), np.arange(20) % 4, step=2, order_seed=None)
    assert stream.sessions == [("classes 1-2", (0, 1)), ("classes 3-4", (2, 3))]
    assert len(stream.open(1).train) == 8 and len(stream.test(1)) == 2


@pytest.mark.parametrize(
    "turn",
    [
        lambda x: x.transpose(0, 3, 1, 2),
        lambda x: torch.from_numpy(x),
        lambda x: x / 255,
        lambda x: x.astype(np.float32).transpose(0, 3, 1, 2) / 255,
    ],
)
def test_layouts_and_floats_mean_the_same_pictures(turn) -> None:
    x = images()
    stream = from_arrays(turn(x), ["a", "b"] * 10, test=(x, ["a", "b"] * 10), order_seed=None)
    session = stream.open(1)
    assert list(session.train.labels) == ["a"] * 10 + ["b"] * 10
    for position, original in enumerate([*range(0, 20, 2), *range(1, 20, 2)]):
        assert (np.asarray(session.train.decode(position)) == x[original]).all()


def test_grey_arrays_become_rgb() -> None:
    assert from_arrays(images()[..., 0], [0, 1] * 10).open(1).train.decode(0).mode == "RGB"


@pytest.mark.parametrize(
    ("x", "y", "refused"),
    [
        (images(), [0] * 19, partial(raises, "pictures.labels.count", pictures=20, labels=19)),
        (np.zeros((4, 4)), [0] * 4, partial(raises, "pictures.shape")),
        (
            np.full((4, 8, 8, 3), 7.5),
            [0, 1] * 2,
            partial(raises, "pictures.values", types=re.compile("between 0 and 1")),
        ),
        (
            images(4),
            [0.5, 1, 2, 3],
            partial(raises, "pictures.label.type", remedy=re.compile("words or whole numbers")),
        ),
        (
            images(4),
            ["cat", "Cat", "cat", "Cat"],
            partial(raises, "name.alike", why=re.compile("only in spelling")),
        ),
    ],
)
def test_arrays_that_do_not_fit_are_one_sentence(
    x: Any, y: Any, refused: Callable[[], Any]
) -> None:
    with refused():
        from_arrays(x, y)


def test_a_test_class_nobody_learned_is_refused() -> None:
    with raises("stream.class.untrained", label="2"):
        from_arrays(images(4), [0, 0, 1, 1], test=(images(1), [2]))


class Toy(torch.utils.data.Dataset):
    """Counts how often a picture is made."""

    def __init__(self, n: int = 12, names: list[str] | None = None, known: bool = True) -> None:
        self.n = n
        self.made = 0
        if names:
            self.classes = names
        if known:
            self.targets = [i % 3 for i in range(n)]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        self.made += 1
        return Image.new("L", (10, 12), i), i % 3


def test_a_torch_dataset_is_read_lazily_and_keeps_its_class_names() -> None:
    toy = Toy(names=["owl", "ant", "bat"])
    stream = from_torch(toy, order_seed=None, step=3)
    assert stream.labels == ["owl", "ant", "bat"] and toy.made == 0
    session = stream.open(1)
    for i, label in enumerate(session.train.labels):
        grey = session.train.decode(i).getpixel((0, 0))[0]
        assert ["owl", "ant", "bat"][grey % 3] == label


def test_labels_of_a_torch_dataset_are_those_that_it_gives() -> None:
    toy = Toy(names=["owl", "ant", "bat"])
    toy.target_transform = lambda label: label // 2
    assert from_torch(toy, test_fraction=0).labels == [0, 1]
    assert targets(torch.utils.data.Subset(toy, [2, 1, 5])) == [1, 0, 1]


def test_a_share_of_test_pictures_is_refused_beside_test_pictures() -> None:
    with raises("stream.test-fraction.idle", fraction=0.5):
        from_arrays(images(4), [0, 0, 1, 1], test=(images(2), [0, 1]), test_fraction=0.5)


def test_a_torch_dataset_without_targets_and_a_subset_are_read() -> None:
    assert from_torch(Toy(known=False)).labels
    half = torch.utils.data.Subset(Toy(), range(6))
    assert sum(len(s.train) for s in from_torch(half, test=Toy())) == 6


def test_tensors_of_a_torch_dataset_are_pictures() -> None:
    x = torch.rand(6, 3, 8, 9)
    stream = from_torch(torch.utils.data.TensorDataset(x, torch.tensor([0, 1] * 3)))
    assert stream.open(1).train.decode(0).size == (9, 8)


class ClassLabel:
    names = ("kea", "auk")


class Rows:
    """The part of a Hugging Face split that is used."""

    def __init__(self) -> None:
        self.features = {"image": object(), "label": ClassLabel()}

    def __getitem__(self, key: Any) -> Any:
        return (
            [0, 1] * 5
            if key == "label"
            else {"image": Image.new("RGB", (6, 6), (key, 0, 0)), "label": key % 2}
        )


def test_a_hugging_face_dataset_keeps_its_class_names() -> None:
    stream = from_hugging_face({"train": Rows(), "test": Rows()}, order_seed=None, name="birds")
    assert stream.labels == ["kea", "auk"] and len(stream.test(1)) == 10
    assert stream.open(1).train.decode(0).size == (6, 6)


def test_splits_of_a_hugging_face_dataset_that_are_not_read_are_said() -> None:
    splits = {name: Rows() for name in ("train", "validation", "test", "extra")}
    with pytest.warns(
        UserWarning, match="^2 splits are omitted from hugging-face: validation, extra.$"
    ):
        assert len(from_hugging_face(splits, order_seed=None).test(1)) == 10


def test_a_hugging_face_dataset_without_what_is_needed_is_one_sentence() -> None:
    with raises("hub.no-train"):
        from_hugging_face({"test": Rows()})
    with raises("hub.column.missing", given="photo"):
        from_hugging_face(Rows(), image="photo")


def test_without_the_datasets_package_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with raises("hub.datasets.missing"):
        from_hugging_face("somebody/birds")
