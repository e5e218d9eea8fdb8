"""Small things that many tests need: a ViT of a few thousand weights, pictures of a few hundred
pixels.
"""

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from markupsafe import Markup
from PIL import Image
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from safecl.backbone.backbone import Backbone
from safecl.errors import SafeclError
from safecl.streams.pictures.images import ArrayPictures, Label, Transform
from safecl.streams.settings import Protocol
from safecl.streams.stream import Part, Stream

SIZE = 16  # pixels a side

torch.set_num_threads(1)  # nothing here is large enough for two
os.environ["OMP_NUM_THREADS"] = "1"  # nor in the processes that tests start
# Nor is anything compiled more than once, by them or by workers: some environments ask for no
# bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
gc.freeze()  # what is imported stays: no need to look through it again
gc.set_threshold(100_000, 20, 20)
os.fsync = lambda descriptor: None  # nothing written here has to outlive a power cut


@contextmanager
def raises(code: str, /, **fields: Any) -> Iterator[pytest.ExceptionInfo[SafeclError]]:
    """The error of this code, with these of its fields, must come; see ``tells``."""
    with pytest.raises(SafeclError) as caught:
        yield caught
    tells(caught.value, code, **fields)


def tells(error: BaseException | None, code: str, /, **fields: Any) -> None:
    """The error has this code and these of its fields, as its sentence would name them; a pattern
    is found in what it names.
    """
    assert isinstance(error, SafeclError), error
    assert error.code == code, str(error)
    for key, wanted in fields.items():
        found = str(error.fields[key])
        if isinstance(wanted, re.Pattern):
            assert wanted.search(found), (key, found)
        else:
            assert found == str(wanted), key


def scramble(module: nn.Module, seed: int = 0, deviation: float = 0.2) -> None:
    """Move every parameter off its initial value, so that a bias or a scale left out shows in the
    output.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += deviation * torch.randn(parameter.shape, generator=generator).to(
                parameter.device
            )


def make_vit(
    seed: int = 0, kind: Callable[..., VisionTransformer] = VisionTransformer, **options: Any
) -> Any:
    """A ViT of two blocks and width 24 whose every weight is random."""
    shape = {
        "img_size": SIZE,
        "patch_size": 8,
        "embed_dim": 24,
        "depth": 2,
        "num_heads": 3,
        "num_classes": 0,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vit = kind(**{**shape, **options}).eval()
    scramble(vit, seed)
    return vit


def make_backbone(seed: int = 0, **options: Any) -> Backbone:
    """A frozen tiny backbone that takes pixels to [-1, 1]."""
    return Backbone(make_vit(seed, **options), "tiny", SIZE, (0.5,) * 3, (0.5,) * 3)


def make_pictures(labels: Sequence[Label], seed: int = 0, shade: float = 0.0) -> ArrayPictures:
    """One noisy picture a label; a label always has the same pattern, whatever it is and wherever
    it stands.
    """
    noise = np.random.default_rng(seed)
    arrays = np.empty((len(labels), SIZE, SIZE, 3), dtype=np.uint8)
    for i, label in enumerate(labels):
        pattern = np.random.default_rng(list(repr(label).encode())).uniform(40, 215, (4, 4, 3))
        picture = np.kron(pattern, np.ones((SIZE // 4, SIZE // 4, 1))) + noise.normal(
            shade, 12, (SIZE, SIZE, 3)
        )
        arrays[i] = picture.clip(0, 255).astype(np.uint8)
    return ArrayPictures(arrays, list(labels))


def make_stream(
    sessions: Sequence[Sequence[Label]],
    train: int = 3,
    test: int = 2,
    protocol: Protocol = "class",
    seed: int = 0,
    held_out: float = 0.0,
) -> Stream:
    """A stream with the labels of each session, ``train`` and ``test`` pictures a label; sessions
    may share labels.
    """
    parts = []
    for number, classes in enumerate(sessions):
        pictures = [
            make_pictures(
                [label for label in classes for _ in range(each)],
                [seed, number, each],
                10.0 * number,
            )
            for each in (train, test)
        ]
        parts.append(Part(f"session {number + 1}", tuple(classes), *pictures))
    return Stream("tiny", parts, protocol, Transform(SIZE, margin=1.0), held_out)


@pytest.fixture(name="make_vit", scope="session")
def _make_vit() -> Callable[..., VisionTransformer]:
    return make_vit


@pytest.fixture(name="make_backbone", scope="session")
def _make_backbone() -> Callable[..., Backbone]:
    return make_backbone


@pytest.fixture(name="make_stream", scope="session")
def _make_stream() -> Callable[..., Stream]:
    return make_stream


@pytest.fixture(name="scramble", scope="session")
def _scramble() -> Callable[..., None]:
    return scramble


class ForkServer:
    """A process that forks another on demand, so that all of them import torch once.

    A line in says what to do. A line out: the process that does it; another, when it has ended: its
    exit code.
    """

    def __init__(self, *command: str, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(self, line: str, kill_after: float | None = None) -> tuple[int, float]:
        """Do it, with a SIGKILL after some seconds; gives the exit code and the seconds it took."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        child = int(self.process.stdout.readline())
        started = time.monotonic()
        # The server cannot reap the child, nor its number be given away, before the code is read
        # below.
        timer = (
            threading.Timer(kill_after or 0, os.kill, (child, signal.SIGKILL))
            if kill_after is not None
            else None
        )
        if timer is not None:
            timer.start()
        code = int(self.process.stdout.readline())
        took = time.monotonic() - started
        if timer is not None:
            timer.cancel()
            timer.join()
        return code, took

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


@pytest.fixture(scope="session")
def fork_server() -> type[ForkServer]:
    return ForkServer


@pytest.fixture(scope="session")
def asset() -> Callable[[str], Path]:
    """``asset("pictures/x.zip")``: real weights or pictures, which are not part of the project;
    skips without them.
    """
    folder = Path(
        os.environ.get("SAFECL_ASSETS", Path(__file__).parents[1] / ".." / "shared" / "assets")
    )

    def find(name: str) -> Path:
        if not (folder / name).is_file():
            pytest.skip(f"{name} is not in the assets; SAFECL_ASSETS names their folder")
        return folder / name

    return find


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub at a port where nothing listens, and an empty cache."""
    import huggingface_hub

    for name, value in {
        "ENDPOINT": "http://127.0.0.1:9",
        "HUGGINGFACE_CO_URL_TEMPLATE": "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)


@pytest.fixture
def images() -> torch.Tensor:
    """Five pictures in [0, 1]."""
    return torch.rand(5, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(7))


Paint = Callable[..., Path]


@pytest.fixture
def paint() -> Paint:
    """``paint(path, seed=None, size=(24, 18))``: a picture of smooth noise; without a seed, a new
    one each time.
    """
    count = iter(range(10**6))

    def write(path: Path, seed: int | None = None, size: tuple[int, int] = (24, 18)) -> Path:
        random = np.random.default_rng([7, next(count)] if seed is None else [3, seed])
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (3, 4, 3), dtype=np.uint8)).resize(size).save(path)
        return path

    return write


@pytest.fixture
def class_folder(tmp_path: Path, paint: Paint) -> Callable[..., Path]:
    """``class_folder({"cat": 3, "train/dog": 2})``: folders with that many pictures."""

    def write(counts: dict[str, int], top: str = "data") -> Path:
        for name, count in counts.items():
            (tmp_path / top / name).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                paint(tmp_path / top / name / f"{i:03d}.png")
        return tmp_path / top

    return write


Command = Callable[..., tuple[int, str, str]]
Ended = Callable[..., tuple[SystemExit, str, str]]
Refusal = Callable[..., SafeclError]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ended:
    """``ended("predict", …)``: how a command ends, standard output and standard error, without a
    process of its own.
    """
    from safecl.cli import main as cli

    def run(*words: str) -> tuple[SystemExit, str, str]:
        monkeypatch.setattr(sys, "argv", ["safecl", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return stop.value, said.out, said.err

    return run


@pytest.fixture
def command(ended: Ended) -> Command:
    """``command("predict", …)``: (exit code, standard output, standard error)."""

    def run(*words: str) -> tuple[int, str, str]:
        stop, out, error = ended(*words)
        return int(stop.code or 0), out, error

    return run


@pytest.fixture
def refusal(ended: Ended) -> Refusal:
    """``refusal("predict", …)``: the error of the library that a command ends with; its sentence is
    the last that is printed.
    """

    def run(*words: str) -> SafeclError:
        stop, _, printed = ended(*words)
        error = stop.__cause__
        assert isinstance(error, SafeclError), printed
        assert stop.code == error.exit_code and printed.endswith(f"safecl: {error}\n"), printed
        return error

    return run


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of runs without their figures, whose drawing takes most of a page's time."""
    monkeypatch.setattr("safecl.report.panels.Panel.svg", Markup("<svg></svg>"))


BEYOND = ("pilots", "limit", "average", "release", "untuned")  # groups of SAFE that have a switch
TINY_MODEL = {
    "method.ridge": {"size": 60, "betas": (0.01,), "layers": 2, "patches": True, "mirror": True},
    "method.size": 60,
    "method.align_epochs": 1,
    "method.align_samples": 4,
    **{f"method.{name}.use": False for name in BEYOND},
    "train.lr": 0.02,
}


@pytest.fixture(scope="session")
def new_model(two_blocks: Path) -> Callable[..., Any]:
    """``new_model(method, **options)``: a ContinualClassifier on a tiny random backbone, which
    learns in a moment.
    """
    from safecl.classifier.classifier import ContinualClassifier
    from safecl.methods.catalog import method_settings

    def make(method: str = "safe", **options: Any) -> ContinualClassifier:
        kind = method_settings()[method]
        trains = kind.trains and not (kind.tunes and options.get("pet") == "none")
        has = {f"method.{name}" for name in kind.model_fields} | {
            f"method.{name}.use" for name in BEYOND if name in kind.model_fields
        }
        has |= {"train.lr"} if trains else set()
        settings = {key: value for key, value in TINY_MODEL.items() if key in has}
        asked = dict(options.pop("settings", {}))
        beyond = asked.pop("beyond", None)  # all that SAFE has beyond its paper, or pilots so long
        if beyond is not None:
            settings |= {f"method.{name}.use": bool(beyond) for name in BEYOND}
            settings |= {"method.pilots.epochs": beyond} if beyond else {}
        settings = {"backbone.weights": str(two_blocks), **settings, **asked}
        if not trains:
            settings = {
                key: value for key, value in settings.items() if not key.startswith("train.")
            }
            options = {"epochs": None, **options}
        given = {"epochs": 1, "image_size": 16, "device": "cpu", **options}
        return ContinualClassifier("test_vit", method, settings=settings, **given)

    return make


@pytest.fixture
def untuned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Where SAFE has pilots, they ask for the untuned backbone and nothing else: the rest is as in
    the paper.

    A test may have it as a parameter (``indirect=["untuned"]``), with and without.
    """
    from safecl.methods.beyond import average, new_pictures, pilots, release
    from safecl.methods.safe import SAFE

    if wanted := getattr(request, "param", True):
        found = pilots.Tuned(transfer=False, share=1.0, gain=0.0)
        monkeypatch.setattr(pilots, "tune_with_pilots", lambda *_: found)
        monkeypatch.setattr(average.Average, "tune", SAFE.tune)
        for kind in (new_pictures.NewPictures, release.Release):
            monkeypatch.setattr(kind, "guidance", SAFE.guidance)
    return wanted


@pytest.fixture(scope="session")
def lesson() -> Callable[..., tuple[np.ndarray, list[Label]]]:
    """``lesson("ab", 5)``: arrays of five pictures of each class, and their labels; always the same
    ones.
    """

    def make(
        classes: Sequence[Label], each: int = 5, seed: int = 0
    ) -> tuple[np.ndarray, list[Label]]:
        pictures = make_pictures([label for label in classes for _ in range(each)], seed)
        return pictures.arrays, list(pictures.labels)

    return make


@pytest.fixture(scope="session")
def write_folder() -> Callable[..., Path]:
    """``write_folder(path, "ab", 5)``: a folder of class folders with five PNG pictures each."""

    def write(path: Path, classes: Sequence[str], each: int = 5, seed: int = 0) -> Path:
        pictures = make_pictures([label for label in classes for _ in range(each)], seed)
        for i, label in enumerate(pictures.labels):
            (path / str(label)).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pictures.arrays[i]).save(path / str(label) / f"{i:03d}.png")
        return path

    return write


@pytest.fixture(scope="session")
def two_blocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A weight file of a ViT of two blocks: much of what is learned here is building and copying
    networks.

    On a CPU, where no model moves its backbone elsewhere, all models of it share one that is
    loaded.
    """
    import timm
    from safetensors.torch import save_file

    from safecl.backbone.load import load_backbone
    from safecl.engine.device import choose_device

    file = tmp_path_factory.mktemp("weights") / "two.safetensors"
    options = {"depth": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        vit = timm.create_model("test_vit", num_classes=0, **options)
    scramble(vit, deviation=0.05)
    save_file(
        vit.state_dict(), file, {"timm_model": "test_vit", "create_kwargs": json.dumps(options)}
    )
    shared = cache(load_backbone)

    @wraps(load_backbone)
    def load(settings: Any, **options: Any) -> Backbone:
        known = getattr(settings, "weights", None) == str(file) and not options
        return shared(settings) if known else load_backbone(settings, **options)

    with pytest.MonkeyPatch.context() as patch:
        for place in (
            ("backbone.load", "classifier.answers.snapshot")
            if choose_device("auto").type == "cpu"
            else ()
        ):
            patch.setattr(f"safecl.{place}.load_backbone", load)
        yield file


@pytest.fixture(scope="session")
def exported(
    tmp_path_factory: pytest.TempPathFactory,
    new_model: Callable[..., Any],
    lesson: Callable[..., Any],
) -> tuple[Path, Path]:
    """A model of SAFE that has learned two sessions, and what was exported of it as ONNX, once for
    all workers.
    """
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9):
        pytest.skip("exporting needs torch 2.9")
    from safecl.classifier.answers.export import export_onnx
    from safecl.classifier.model import Model

    top = tmp_path_factory.getbasetemp()
    folder = (top.parent if "PYTEST_XDIST_WORKER" in os.environ else top) / "exported"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        if not (folder / "m.onnx").exists():
            model = new_model()
            model.learn(*lesson("abcd", 6))
            model.learn(*lesson("ef", 6))
            model.save(folder / "m.safecl")
            export_onnx(Model.open(folder / "m.safecl"), folder / "m.onnx")
    return folder / "m.safecl", folder / "m.onnx"
