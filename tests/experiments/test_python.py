"""The package in a program: one call runs a method, and what it meets says what it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import safecl
from safecl.backbone.backbone import Backbone
from safecl.errors import SafeclError
from safecl.experiments.config import load
from safecl.learner import Learner
from safecl.methods.catalog import make_method, method_settings
from safecl.pet.settings import pet_settings
from safecl.streams.pictures.images import Transform
from safecl.streams.stream import Stream

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
    result = safecl.run("ranpac", "pet=none", stream=stream, ridge={"size": 20}, device="cpu", show="quiet")
    assert result.final == result.summary["final"] and 0.5 <= result.average["ranpac"] <= 1
    assert result.folder.parent == Path("runs") and "lights" in result.folder.name and result.page.is_file()
    told = repr(result).splitlines()
    assert (
        told[0].startswith(f"RanPAC: {100 * result.final['ranpac']:.1f} ± ")
        and "of 4 test pictures of 2 classes" in told[0]
    )
    assert f"folder: {result.folder}" in told and f"page: {result.page}" in told
    again = safecl.run("ranpac", "pet=none", stream=stream, ridge={"size": 20}, device="cpu", show="quiet")
    assert again.folder == result.folder and again.summary["seconds"] == result.summary["seconds"]  # it was only read


def test_a_stream_of_a_program_is_read_at_the_size_of_the_backbone(arrays: Any, tmp_path: Path) -> None:
    stream = safecl.from_arrays(*arrays, step=1)
    assert stream.transform.size == 224
    words = ["backbone=vit_tiny_patch16_224", "backbone.weights=random", "backbone.image_size=32", "device=cpu"]
    result = safecl.run("simplecil", *words, stream=stream, folder=tmp_path, show="quiet")
    assert result.summary["sessions"] == 2 and stream.transform.size == 224
    with pytest.raises(SafeclError, match="python"):  # no file can name the pictures of a program
        load(str(tmp_path / "resolved.yaml"))


def test_a_stream_opened_for_inputs_of_another_size_is_refused(arrays: Any, tmp_path: Path) -> None:
    words = ["backbone=test_vit", "backbone.weights=random", "backbone.image_size=32", "device=cpu"]
    given = safecl.from_arrays(*arrays, transform=Transform(size=64))
    for stream in (safecl.open_stream("glyphs", size=64, classes=2, sessions=1, train=1, test=1), given):
        with pytest.raises(SafeclError, match="is for inputs of 64 × 64 pixels, and the backbone takes 32 × 32"):
            safecl.run("simplecil", *words, stream=stream, folder=tmp_path / "run", show="quiet")
    assert not (tmp_path / "run").exists()
    same = safecl.open_stream("glyphs", size=32, classes=2, sessions=1, train=2, test=1)
    assert safecl.run("simplecil", *words, stream=same, folder=tmp_path / "run", show="quiet").summary["sessions"] == 1


@pytest.mark.parametrize("words", [["stream.step=2"], ["stream=glyphs"]])
def test_a_setting_of_a_stream_that_is_opened_already_is_refused(arrays: Any, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SafeclError, match=f"{words[0]} has no effect beside a stream"):
        safecl.run("simplecil", *words, stream=safecl.from_arrays(*arrays), folder=tmp_path / "run", show="quiet")
    assert not (tmp_path / "run").exists()


def test_settings_by_name_are_the_words_of_the_command_line() -> None:
    words = ["pet=adapter", "pet.bottleneck=4", "train.epochs=3", "seed=2", "ridge.betas=[1,10]"]
    values = {"pet": {"kind": "adapter", "bottleneck": 4}, "train.epochs": 3, "seed": 2, "ridge": {"betas": (1, 10)}}
    assert load("safe", words) == load("safe", [], values)
    assert load("safe", ["seed=1"], {"seed": 3}).seed == 3
    with pytest.raises(SafeclError, match="did you mean 'pet'"):
        load("safe", [], {"pett": "ssf"})


def test_everything_one_meets_says_what_it_is(
    make_stream: Callable[..., Stream], make_backbone: Callable[..., Backbone]
) -> None:
    stream, backbone = make_stream([["a", "b"], ["c"]]), make_backbone()
    method = make_method(method_settings()["simplecil"](), backbone)
    session = stream.open(1)
    shown = [repr(thing) for thing in (stream, session, session.train, stream.test(2), backbone, method)]
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
