"""Every command and every piece of Python in the documents is run, or named here with the reason
why not.

A command runs by itself on a copy of a small workspace: tiny pictures under the names of the
documents, models that have learned some of them, two short runs. What is left out is held to what
can be known without it: settings are read, sweeps planned, options looked for in the script that
has them.
"""

import ast
import copy
import re
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from safecl.experiments.config import load, presets
from safecl.experiments.reproduce.targets import read_target
from safecl.experiments.stress.stress import make_plan as plan_stress
from safecl.experiments.sweep.plan import make_plan

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL = ("", "sh", "bash")
PROGRAMS = ("safecl", "python", "cd")  # that a block without a language may begin a line with

# Why a command is not run, by how it begins.
NOT_RUN = {
    "pip install": "fetches packages",
    "npm install": "fetches packages",
    "cp docs/browser/* node_modules/": "needs what npm has fetched",
    "python -m http.server": "does not end",
    "make ": "sets up an environment, tests or lasts minutes; tests/test_packaging.py is about it",
    "safecl serve ": "does not end; tests/serve/ is about it",
    "safecl push ": "asks a hub; tests/classifier/answers/test_hub.py is about it",
    "safecl pull ": "asks a hub; tests/classifier/answers/test_hub.py is about it",
    "safecl watch ": "does not end; tests/serve/test_watch.py is about it",
    "safecl demo": "lasts minutes; tests/cli/test_demo.py is about it",
    "U=http": "asks a service; the requests below it are made in Python",
    "curl ": "asks a service; the requests below it are made in Python",
    "{ printf": "asks a service; the requests below it are made in Python",
    "accelerate launch": "needs several GPUs",
    "torchrun": "needs several GPUs",
    "head=$(scontrol": "needs a cluster",
    "srun torchrun": "needs a cluster",
    '[ -e "$SLURM_SUBMIT_DIR': "needs a cluster",
    "safecl run paper stream=cifar100": "needs the pictures and weights of the paper",
    "safecl run slda": "its method is that of the page; tests/methods/test_add_a_method.py runs it",
    "safecl compare runs/slda-*": (
        "its method is that of the page; tests/methods/test_add_a_method.py runs it"
    ),
    "safecl run tempered": "its method is that of the page; tests/test_extending.py runs it",
    "safecl info --keys tempered": "its method is that of the page; tests/test_extending.py asks",
    "safecl reproduce all": "lasts half an hour",
    "safecl reproduce table-": "needs the pictures and weights of the paper, or given ones",
    "safecl sweep": "lasts minutes; its runs are planned",
    "safecl stress": "lasts minutes; its runs are planned",
    "safecl leaderboard": "needs runs of its own; tests/experiments/test_leaderboard.py has them",
    "python benchmarks/": "measures",
    "safecl learn FOLDER --model M": "is how a number was measured",
    "safecl eval TEST --model M": "is how a number was measured",
}
COUNTED = 90  # commands that are not run
# Python that another test runs, by the document and the first words of the block.
RUN_ELSEWHERE = {
    ("add-a-method.md", '"""'): "tests/methods/test_add_a_method.py",
    ("add-a-method.md", "def follow"): "nothing: a piece of a method",
    ("api.md", ""): "tests/test_documents.py",
    ("extending.md", '"""'): "tests/test_extending.py",
    ("export.md", "import sys"): "tests/runtime/test_model.py",
    ("neighbours.md", "from safecl.serve import mlflow"): "tests/serve/test_mlflow.py",
}
# Names that a reader puts something of their own for.
PLACEHOLDERS = {
    **dict.fromkeys(("RUN…", "runs/RUN", "runs/A", "runs/…"), "runs/a"),
    "runs/B": "runs/b",
    "PATH": "photos",
}
# Exporting as ONNX takes long: one is done every day.
SLOW = (
    "safecl export flowers.safecl -o flowers.onnx",
    "safecl export flowers.safecl -o site/model.onnx --precision fp16",
)
SMALL = [
    "backbone=test_vit",
    "backbone.weights=random",
    "backbone.image_size=16",
    "train.epochs=1",
    "device=cpu",
    "ridge.size=20",
]
FEW = ["stream.classes=4", "stream.sessions=2", "stream.train=3", "stream.test=1"]  # of glyphs

FOLDERS = {
    **{
        f"{name}/{label}": 4
        for name in ("july", "august", "monday", "tuesday", "test")
        for label in ("rose", "tulip")
    },
    "august/aster": 4,
    "tuesday/aster": 4,
    "quickstart/first/A": 3,
    "quickstart/first/B": 3,
    "quickstart/second/C": 3,
}
PHOTOS = {  # what lies in the folder photos, which each document has for itself
    "model.md": {
        **{f"photos/monday/{name}": 4 for name in ("cat", "dog", "kitten", "hamster")},
        **{f"photos/{name}": 2 for name in ("tuesday/parrot", "test/cat", "test/dog")},
        "tabbies": 0,
    },
    "export.md": {"photos/test/rose": 3, "photos/test/tulip": 3},
    "": {"photos/cat": 6, "photos/dog": 6},
}
BIRDS = 30  # classes of the example that has 20 in its first session


class Block(NamedTuple):
    """A fenced block of a document."""

    document: str
    line: int
    language: str
    text: str


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    return [Block(path.name, text[: one.start()].count("\n") + 1, one[2], one[3]) for one in found]


def commands(block: Block) -> list[str]:
    """The commands of a block, each on one line, without comments; of a dialogue what follows a
    $.
    """
    lines = block.text.replace("\\\n", " ").replace("|\n", "| ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    elif not block.language:
        lines = [line for line in lines if line.split(" ")[0] in PROGRAMS]
    bare = [" ".join(re.sub(r"(^|\s)#.*", "", line).split()) for line in lines]
    return [line for line in bare if line]


EVERY = [
    (block, line)
    for path in DOCUMENTS
    for block in blocks(path)
    if block.language in SHELL
    for line in commands(block)
]
PYTHON = [
    block for path in DOCUMENTS for block in blocks(path) if block.language in ("python", "py")
]


def why_not(line: str) -> str | None:
    """Why a command is not run; None if it is."""
    return next(
        (begins for begins in sorted(NOT_RUN, key=len, reverse=True) if line.startswith(begins)),
        None,
    )


def run_elsewhere(block: Block) -> tuple[str, str] | None:
    """The entry of ``RUN_ELSEWHERE`` that a block of Python has, if any."""
    begins = block.text.strip()
    return next(
        (one for one in RUN_ELSEWHERE if one[0] == block.document and begins.startswith(one[1])),
        None,
    )


def marked(block: Block, line: str) -> Any:
    marks = [pytest.mark.slow] if line in SLOW else []
    return pytest.param(block.document, line, id=f"{block.document}: {line}", marks=marks)


RUN = [marked(block, line) for block, line in EVERY if not why_not(line)]


def test_every_command_is_run_or_named_with_a_reason() -> None:
    begun = {found for _, line in EVERY if (found := why_not(line))}
    assert sorted(NOT_RUN.keys() - begun) == []  # a reason that nothing needs any more
    assert {line.split()[0] for _, line in EVERY if not why_not(line)} <= {"safecl", "mkdir", "cd"}
    assert len(EVERY) - len(RUN) == COUNTED  # one more that is not run is a decision
    places = {one for block in PYTHON if (one := run_elsewhere(block))}
    assert sorted(RUN_ELSEWHERE.keys() - places) == []
    reasons = " ".join([*NOT_RUN.values(), *RUN_ELSEWHERE.values()])
    assert [
        file for file in re.findall(r"tests/[\w/.]+", reasons) if not (ROOT / file).exists()
    ] == []


def test_a_block_that_is_new_is_run() -> None:
    block = Block(
        "x.md", 1, "sh", "safecl frobnicate x.safecl   # why\n# a comment\nmake \\\n  test\n"
    )
    assert commands(block) == ["safecl frobnicate x.safecl", "make test"]
    assert [why_not(line) for line in commands(block)] == [None, "make "]
    assert commands(block._replace(language="", text="$ safecl info\nsafecl 0.1\n")) == [
        "safecl info"
    ]


def draw(folder: Path, counts: dict[str, int], kind: str = "png", seed: int = 0) -> None:
    """Folders with so many tiny pictures; a class looks the same wherever it is."""
    for number, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            picture(Path(name).name, [seed, number, i]).save(folder / name / f"{i}.{kind}")


def picture(label: str, seed: list[int]) -> Image.Image:
    pattern = np.random.default_rng(list(label.encode())).uniform(40, 215, (4, 4, 3))
    noise = np.random.default_rng(seed).normal(0, 12, (20, 20, 3))
    return Image.fromarray(
        (np.kron(pattern, np.ones((5, 5, 1))) + noise).clip(0, 255).astype(np.uint8)
    )


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, new_model: Callable[..., Any]) -> Path:
    """What the commands of all documents find, but for the folder photos."""
    top = tmp_path_factory.mktemp("ground")
    draw(top, FOLDERS)
    for name in ("rose", "tulip", "stranger", "bird_of_paradise"):
        (top / "new").mkdir(exist_ok=True)
        picture(name, [9]).save(top / "new" / f"{name}.jpg")
    for name in ("017.jpg", "a.jpg", "b.jpg"):
        picture("cat", [8, ord(name[0])]).save(top / name)
    (top / "quickstart" / "new").mkdir()
    picture("A", [7]).save(top / "quickstart" / "new" / "A.png")
    draw(
        top / "learned",
        dict.fromkeys(("rose", "tulip", "cat", "dog", "kitten", "hamster", "A", "B"), 4),
        seed=5,
    )

    def teach(path: str, *sessions: str, start: str | None = None) -> None:
        from safecl.classifier.classifier import ContinualClassifier

        model = (
            new_model() if start is None else ContinualClassifier.load(top / start, device="cpu")
        )
        for labels in sessions:
            files = [
                file
                for label in labels.split()
                for file in sorted((top / "learned" / label).iterdir())
            ]
            model.learn(files, [file.parent.name for file in files])
        model.save(top / path)

    teach("flowers.safecl", "rose tulip", "cat")
    teach("pets.safecl", "cat dog kitten", "hamster")
    teach("quickstart/signs.safecl", "A B")
    teach("base.safecl", "cat dog")
    teach("north.safecl", "kitten", start="base.safecl")
    teach("south.safecl", "hamster", start="base.safecl")
    return top


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs."""
    import safecl

    top = tmp_path_factory.mktemp("runs")
    for name, preset in (("a", "safe"), ("b", "ranpac")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("safecl.report.panels.Panel.svg", "<svg></svg>")
            safecl.run(preset, *SMALL, *FEW, folder=top / name, show="quiet")
    return top


@pytest.fixture
def workspace(
    ground: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """``workspace("model.md")``: the current folder from now on, as the commands of that document
    need it.
    """

    def make(document: str) -> Path:
        place = tmp_path / "place"
        shutil.copytree(ground, place)
        shutil.copytree(runs, place / "runs")
        draw(place, PHOTOS.get(document, PHOTOS[""]), seed=3)
        if document == "model.md":
            for i in (0, 1):
                shutil.copy(place / "learned" / "cat" / f"{i}.png", place / "tabbies")
        (place / "shards").mkdir()
        if document == "browser.md":
            (place / "site").mkdir()
        monkeypatch.chdir(place)
        monkeypatch.setenv("HOME", str(place))
        return place

    return make


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("document", "line"), RUN)
def test_a_command_of_the_documents_works(
    document: str,
    line: str,
    workspace: Callable[[str], Path],
    command: Callable[..., tuple[int, str, str]],
) -> None:
    place = workspace(document)
    if not line.startswith("safecl "):
        if line.startswith("mkdir"):
            (place / "site").rmdir()
        assert subprocess.run(["bash", "-ec", line], cwd=place, timeout=60).returncode == 0
        return
    for name, ours in PLACEHOLDERS.items():
        line = line.replace(name, ours)
    words = shlex.split(line)[1:]
    if words[:1] == ["run"]:
        words += [*SMALL, *(FEW if "stream=glyphs" in words else [])]
    if words == ["quickstart"]:
        shutil.rmtree(place / "quickstart")
    if ".onnx" in line:
        for needed in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(needed)
    code, _, told = command(*words)
    assert code == 0, told


@pytest.mark.parametrize("line", sorted({line for _, line in EVERY if why_not(line)}))
def test_what_is_not_run_is_at_least_read(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(line, posix=False)
    if "safecl run " in line and not re.search("slda|tempered", line):
        preset, *rest = line.partition("safecl run ")[2].split()
        assert load(preset, [word for word in rest if "=" in word and not word.startswith("--")])
    elif words[:2] == ["safecl", "sweep"]:
        monkeypatch.chdir(tmp_path)
        (grid,) = (
            block.text for block in blocks(ROOT / "docs/research.md") if block.language == "yaml"
        )
        Path("mine.yaml").write_text(grid)
        values = [word for word in words[3:] if "=" in word and not word.startswith("--")]
        assert (
            len(
                make_plan(
                    words[2], values, "validation.final" if "--objective" in words else None
                ).cells
            )
            > 3
        )
    elif words[:2] == ["safecl", "stress"]:
        given = [word for word in words[2:] if "=" in word]
        names = [word for word in words[2:] if word in presets()]
        only = words[words.index("--only") + 1].split(",") if "--only" in words else []
        scale = "full" if "full" in words else "small"
        assert len(plan_stress(names, given, tmp_path, scale, only).settings) >= 3
    elif words[:2] == ["safecl", "reproduce"] and words[2] != "all":
        assert all(read_target(name) for name in words[2].split(","))
    elif line.startswith("python benchmarks/"):
        scripts = (ROOT / words[1], ROOT / "benchmarks" / "cells.py")  # whose options some share
        source = "".join(script.read_text(encoding="utf-8") for script in scripts)
        assert [word for word in words if word.startswith("--") and f'"{word}"' not in source] == []


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "document", sorted({block.document for block in PYTHON if not run_elsewhere(block)})
)
def test_the_python_of_a_document_runs(
    document: str,
    workspace: Callable[[str], Path],
    new_model: Callable[..., Any],
    request: pytest.FixtureRequest,
) -> None:
    """One block after the other, on small pictures; a model of one's own is one that learns in a
    moment.
    """
    place = workspace(document)
    if document == "export.md":
        shutil.copy(request.getfixturevalue("exported")[1], place / "flowers.onnx")
    draw(place / "pictures" / "birds", {f"bird {i}": 5 for i in range(BIRDS)})
    rows = [f"birds/bird {i}/{n}.png,bird {i}" for i in range(BIRDS) for n in range(5)]
    (place / "pictures" / "birds.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    labels = [label for label in ("cat", "dog", "kitten", "hamster") for _ in range(4)]
    images = np.stack([np.asarray(picture(label, [6, i])) for i, label in enumerate(labels)])
    paths = sorted((place / "photos").rglob("*.png"))
    names: dict[str, Any] = {
        "np": np,
        "images": images,
        "labels": labels,
        "test_images": images[::4],
        "test_labels": labels[::4],
        "paths": [str(path) for path in paths],
        "table": {"path": np.array([str(path) for path in paths])},
        "pictures": [str(path) for path in paths if path.parts[-3:-1] == ("monday", "cat")][:2],
    }
    text = "\n".join(
        block.text for block in PYTHON if block.document == document and not run_elsewhere(block)
    )
    ast.parse(text)
    if document == "serving.md":
        with serving(place / "pets.safecl") as url:
            exec(compile(text.replace("http://127.0.0.1:8000", url), document, "exec"), names)
        assert "Added 1 picture to dog" in names["job"]["said"]
        return
    if document == "model.md":
        text = text.replace("ContinualClassifier()", "new_model()", 1)
        (place / "pets.safecl").unlink()
        apart = (
            'other = copy.copy(model); other.learn("photos/tuesday"); model.learn(images, labels); '
        )
        text = text.replace("both = model.merged(other)", f"{apart}both = model.merged(other)")
        names |= {"new_model": new_model, "copy": copy}
    if document == "running.md":
        words = ", ".join(map(repr, SMALL))
        text = text.replace('safecl.run("safe", ', f'safecl.run("safe", {words}, ')
        text = text.replace('"epochs": 5', '"epochs": 1')
    exec(compile(text, document, "exec"), names)


@contextmanager
def serving(path: Path) -> Iterator[str]:
    """A service of one model, as ``safecl serve`` starts it."""
    for needed in ("fastapi", "uvicorn", "httpx"):
        pytest.importorskip(needed)
    from safecl.serve.answering import Desk
    from safecl.serve.app import make_app, make_server
    from safecl.serve.jobs import Jobs
    from safecl.serve.limits import Access

    paths = {"pets": path}
    threads = torch.get_num_threads()
    desk = Desk(paths, "cpu")
    server = make_server(make_app(desk, Jobs(paths, "cpu", desk.reload), Access()))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(daemon=True, target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)
            torch.set_num_threads(threads)
