"""The package in a program: one call runs a method, and what it meets says what it is."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import safecl
from safecl.backbone.backbone import Backbone
from safecl.experiments.config import load
from safecl.learner import Learner
from safecl.methods.catalog import make_method, method_settings
from safecl.pet.settings import pet_settings
from safecl.streams.pictures.images import Transform
from safecl.streams.stream import Stream
from tests.conftest import raises

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def arrays() -> tuple[np.ndarray, list[str]]:
    """Ten dark and ten bright pictures of 20 pixels."""
    random = np.random.default_rng(0)
    images = random.integers(0, 60, (20, 20, 20, 3)) + np.repeat([0, 190], 10)[:, None, None, None]
    return images.astype(np.uint8), ["dark"] * 10 + ["bright"] * 10


def test_a_run_in_five_lines(arrays: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stream = safecl.from_arrays(*arrays, step=1, name="lights")
    next(iter(stream))  # a look at a session does no harm
    result = safecl.run(
        "ranpac", "pet=none", stream=stream, ridge={"size": 20}, device="cpu", show="quiet"
    )
    assert result.final == result.summary["final"] and 0.5 <= result.average["ranpac"] <= 1
    assert (
        result.folder.parent == Path("runs")
        and "lights" in result.folder.name
        and result.page.is_file()
    )
    told = repr(result).splitlines()
    assert (
        told[0].startswith(f"RanPAC: {100 * result.final['ranpac']:.1f} ± ")
        and "of 4 test pictures of 2 classes" in told[0]
    )
    assert f"folder: {result.folder}" in told and f"page: {result.page}" in told
    again = safecl.run(
        "ranpac", "pet=none", stream=stream, ridge={"size": 20}, device="cpu", show="quiet"
    )
    # it was only read
    assert again.folder == result.folder and again.summary["seconds"] == result.summary["seconds"]


def test_a_stream_of_a_program_is_read_at_the_size_of_the_backbone(
    arrays: Any, tmp_path: Path
) -> None:
    stream = safecl.from_arrays(*arrays, step=1)
    assert stream.transform.size == 224
    words = [
        "backbone=vit_tiny_patch16_224",
        "backbone.weights=random",
        "backbone.image_size=32",
        "device=cpu",
    ]
    result = safecl.run("simplecil", *words, stream=stream, folder=tmp_path, show="quiet")
    assert result.summary["sessions"] == 2 and stream.transform.size == 224
    with raises("name.unknown", given="python"):  # no file can name the pictures of a program
        load(str(tmp_path / "resolved.yaml"))


def test_a_run_learns_the_pictures_that_are_there_and_not_those_that_the_cache_had(
    write_folder: Callable[..., Path], tmp_path: Path
) -> None:
    top = write_folder(tmp_path / "data", "ab", 6)
    for path in top.glob("*/*.png"):  # of one size and time, as after tar or rsync -t
        Image.open(path).save(path.with_suffix(".bmp"))
        path.unlink()
        os.utime(path.with_suffix(".bmp"), ns=(10**18, 10**18))
    words = [
        "backbone=vit_tiny_patch16_224",
        "backbone.weights=random",
        "backbone.image_size=32",
        "device=cpu",
    ]
    words += ["stream.step=1", f"stream={{kind: folder, path: {top}}}"]

    def learned(name: str, *more: str) -> dict[str, torch.Tensor]:
        folder = safecl.run("simplecil", *words, *more, folder=tmp_path / name, show="quiet").folder
        return load_file(max((folder / "state").glob("*.safetensors")))

    before = learned("before")
    for i in range(6):  # the classes are swapped
        a = top / f"a/{i:03d}.bmp"
        b = top / f"b/{i + 6:03d}.bmp"
        aside = top / "aside"
        for source, target in ((a, aside), (b, a), (aside, b)):
            source.rename(target)
    cached = learned("cached")
    plain = learned("plain", "stream.cache=off")
    assert {name for name in plain if not torch.equal(plain[name], before[name])}
    assert cached.keys() == plain.keys()
    assert all(torch.equal(cached[name], plain[name]) for name in plain)


def test_a_stream_opened_for_inputs_of_another_size_is_refused(arrays: Any, tmp_path: Path) -> None:
    words = ["backbone=test_vit", "backbone.weights=random", "backbone.image_size=32", "device=cpu"]
    given = safecl.from_arrays(*arrays, transform=Transform(size=64))
    for stream in (
        safecl.open_stream("glyphs", size=64, classes=2, sessions=1, train=1, test=1),
        given,
    ):
        with raises("stream.size.other", own=64, size=32):
            safecl.run("simplecil", *words, stream=stream, folder=tmp_path / "run", show="quiet")
    assert not (tmp_path / "run").exists()
    same = safecl.open_stream("glyphs", size=32, classes=2, sessions=1, train=2, test=1)
    assert (
        safecl.run("simplecil", *words, stream=same, folder=tmp_path / "run", show="quiet").summary[
            "sessions"
        ]
        == 1
    )


def test_a_sum_over_the_batch_is_the_same_in_pieces(arrays: Any, tmp_path: Path) -> None:
    """Of the released code: L_cos is a sum over the pictures of a batch."""
    words = [
        "backbone=test_vit",
        "backbone.weights=random",
        "backbone.image_size=32",
        "device=cpu",
        "ridge.size=20",
    ]
    words += ["train.epochs=1", "train.later_epochs=3", "train.batch_size=8", "train.lr=1"]
    found = []
    for pieces in (1, 4):
        stream = safecl.from_arrays(*arrays, step=1, test_fraction=0.2)
        folder = tmp_path / str(pieces)
        safecl.run(
            "published",
            *words,
            f"train.accumulate={pieces}",
            stream=stream,
            folder=folder,
            show="quiet",
        )
        lines = (folder / "losses.jsonl").read_text().splitlines()
        found.append([json.loads(line)["terms"] for line in lines])
    whole, parts = found
    assert [*whole[-1]] == ["cls", "cos"] and whole[-1]["cos"] > 1e-3
    for one, other in zip(whole, parts, strict=True):
        assert other == pytest.approx(one, rel=1e-2, abs=1e-5)


@pytest.mark.parametrize("words", [["stream.step=2"], ["stream=glyphs"]])
def test_a_setting_of_a_stream_that_is_opened_already_is_refused(
    arrays: Any, words: list[str], tmp_path: Path
) -> None:
    with raises("run.stream.open", key=words[0]):
        safecl.run(
            "simplecil",
            *words,
            stream=safecl.from_arrays(*arrays),
            folder=tmp_path / "run",
            show="quiet",
        )
    assert not (tmp_path / "run").exists()


def test_settings_by_name_are_the_words_of_the_command_line() -> None:
    words = ["pet=adapter", "pet.bottleneck=4", "train.epochs=3", "seed=2", "ridge.betas=[1,10]"]
    values = {
        "pet": {"kind": "adapter", "bottleneck": 4},
        "train.epochs": 3,
        "seed": 2,
        "ridge": {"betas": (1, 10)},
    }
    assert load("safe", words) == load("safe", [], values)
    assert load("safe", ["seed=1"], {"seed": 3}).seed == 3
    with raises("name.unknown.near", near="pet"):
        load("safe", [], {"pett": "ssf"})


def test_everything_one_meets_says_what_it_is(
    make_stream: Callable[..., Stream], make_backbone: Callable[..., Backbone]
) -> None:
    stream = make_stream([["a", "b"], ["c"]])
    backbone = make_backbone()
    method = make_method(method_settings()["simplecil"](), backbone)
    session = stream.open(1)
    shown = [
        repr(thing) for thing in (stream, session, session.train, stream.test(2), backbone, method)
    ]
    assert shown == [
        "<Stream 'tiny': class-incremental, 2 sessions, 3 classes, 9 training and 6 test pictures>",
        "<Session 1 (session 1): 2 classes, 6 pictures, open>",
        "<Pictures: 6 with 2 different labels>",
        "<Pictures: 2 with 1 different labels>",
        "<Backbone tiny: inputs of 16, 24 features, float32 on cpu>",
        "<SimpleCIL: 0 sessions and 0 classes learned, on tiny>",
    ]
    stream.open(2)
    assert repr(session).endswith("over>") and len(repr(stream.joint()).splitlines()) == 1
    assert repr(Learner(backbone, pet_settings("ssf"))).startswith("<Learner: ssf of ")
