"""What packages bring is found, as docs/extending.md says; what is wrong with one is a sentence."""

import csv
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
MEANS, SHIFT, LEAVES = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.S | re.M)
PROJECT = tomllib.loads(re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.S | re.M)[0])["project"]
SMALL = ["backbone=test_vit", "backbone.weights=random", "backbone.image_size=16", "device=cpu"]
GLYPHS = ["stream.classes=6", "stream.sessions=3", "stream.train=3", "stream.test=5"]


def wheel(
    folder: Path, name: str, text: str, entries: dict[str, dict[str, str]], version: str = "1.0"
) -> Path:
    """A package of one file with entry points by their groups, built as a wheel."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    points = "\n".join(
        f"[{group}]\n" + "\n".join(f"{key} = {value}" for key, value in some.items())
        for group, some in entries.items()
    )
    files = {
        f"{module}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    place = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for path, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, content)
    return place


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., Callable[..., subprocess.CompletedProcess[str]]]:
    """``installed(wheel, …)``: a function that runs ``safecl`` where these packages are."""
    place = tmp_path / "site"

    def install(*wheels: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
        if wheels:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
            command = [*pip, "--no-compile", "--target", str(place), *map(str, wheels)]
            subprocess.run(command, check=True, capture_output=True, timeout=120)

        def safecl(*words: str) -> subprocess.CompletedProcess[str]:
            paths = [str(place)] if wheels else []
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join([*paths, str(ROOT / "src")]),
                "COLUMNS": "200",
                "OMP_NUM_THREADS": "1",
            }
            return subprocess.run(
                [sys.executable, "-m", "safecl", *words],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
            )

        return safecl

    return install


def test_a_package_of_one_file_brings_a_method_a_metric_and_a_preset(
    tmp_path: Path, installed: Any
) -> None:
    groups = PROJECT["entry-points"]
    safecl = installed(wheel(tmp_path, PROJECT["name"], MEANS, groups, PROJECT["version"]))

    listed = safecl("methods")
    assert re.search(r"^tempered +no training +class means *$", listed.stdout, flags=re.M)
    assert "From safecl-tempered 1.0." in listed.stdout and not listed.stderr
    told = safecl("info", "--keys", "tempered-twice").stdout
    assert re.search(r"method\.factor +2\.0 +on the logits", told)

    for name, words in (
        ("once", ["tempered"]),
        ("twice", ["tempered-twice"]),
        ("ours", ["simplecil"]),
    ):
        ran = safecl("run", *words, *SMALL, *GLYPHS, "--folder", f"runs/{name}", "--quiet")
        assert ran.returncode == 0, ran.stderr

    def lines(name: str) -> list[dict[str, Any]]:
        text = (tmp_path / "runs" / name / "metrics.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    # A factor on all logits changes no answer, and the metric is of our methods too.
    once, twice, ours = (
        [line["accuracy"] for line in lines(name)] for name in ("once", "twice", "ours")
    )
    rows = [accuracy["tempered"] for accuracy in once]
    assert rows == [accuracy["tempered"] for accuracy in twice]
    assert rows == [accuracy["simplecil"] for accuracy in ours]
    by_hand = [pytest.approx(max(row) - min(row)) for row in rows]
    for name, output in (("once", "tempered"), ("ours", "simplecil")):
        assert [line["metrics"]["spread"][output] for line in lines(name)] == by_hand
    facts = json.loads((tmp_path / "runs" / "once" / "facts.json").read_text(encoding="utf-8"))
    assert facts["packages"] == ["safecl-tempered 1.0"]

    said = safecl("report", "runs", "--files", "figures")
    assert said.returncode == 0, said.stderr
    (table,) = (tmp_path / "figures").glob("*at-the-end.csv")
    with table.open(encoding="utf-8") as file:
        written = [float(row["Spread"]) for row in csv.DictReader(file)]
    assert written == [by_hand[2]] * 3
    # What lies in a folder is shown without the package, too.
    assert "Spread" in installed()("show", "runs/once").stdout
    gone = installed()("run", "runs/once/resolved.yaml", "--folder", "runs/once")
    assert gone.returncode == 2
    assert gone.stderr == (
        "safecl: runs/once/resolved.yaml is of a run with safecl-tempered 1.0, which is not"
        " installed here; install it.\n"
    )


def test_a_model_of_a_method_whose_package_is_gone_is_one_sentence(
    tmp_path: Path, installed: Any
) -> None:
    groups = {"safecl.methods": PROJECT["entry-points"]["safecl.methods"]}
    safecl = installed(wheel(tmp_path, PROJECT["name"], MEANS, groups))
    for label, grey in (("dark", 40), ("light", 200)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(3):
            path = tmp_path / "photos" / label / f"{i}.png"
            Image.new("RGB", (20, 20), (grey + i, grey, grey)).save(path)
    learned = safecl("learn", "photos", "--model", "m.safecl", "--method", "tempered", "--quiet")
    assert learned.returncode == 0, learned.stderr
    answers = safecl("predict", "photos/dark/0.png", "--model", "m.safecl")
    assert "dark" in answers.stdout
    gone = installed()("inspect", "m.safecl")
    assert (gone.returncode, gone.stderr.count("\n")) == (2, 1)
    assert "There is no method 'tempered'" in gone.stderr
    assert "with a package that is not installed here" in gone.stderr


def test_a_package_brings_a_pet_and_a_data_set(tmp_path: Path, installed: Any) -> None:
    safecl = installed(
        wheel(tmp_path, "shift", SHIFT, {"safecl.pets": {"shift": "shift:ShiftSettings"}}),
        wheel(tmp_path, "leaves", LEAVES, {"safecl.datasets": {"leaves": "leaves:LEAVES"}}),
    )
    random = np.random.default_rng(0)
    for part, count in (("train", 4), ("test", 2)):
        for label in ("ash", "birch", "elm", "oak"):
            place = tmp_path / "data" / "leaves" / part / label
            place.mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(0, 256, (18, 18, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.png")

    about = safecl("info").stdout
    assert re.search(r"^PET .*shift", about, flags=re.M)
    assert re.search(r"^streams .*?leaves", about, flags=re.M | re.S)
    assert re.search(r"leaves +4 +16 +8 +2 of 2 +by hand", safecl("data", "list").stdout)
    checked = safecl("data", "check", "leaves")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    keys = safecl("info", "--keys", "finetune").stdout
    assert re.search(r"pet\.spread +0\.0 +of the shifts at first", keys)

    settings = ["stream=leaves", "pet=shift", "pet.spread=0.01", "pet.blocks=2", "train.epochs=1"]
    ran = safecl("run", "finetune", *SMALL, *settings, "--folder", "runs/leaves", "--quiet")
    assert ran.returncode == 0, ran.stderr
    facts = json.loads((tmp_path / "runs" / "leaves" / "facts.json").read_text(encoding="utf-8"))
    assert (facts["pet"], facts["stream"]["name"]) == ("shift", "leaves")
    assert facts["packages"] == ["leaves 1.0", "shift 1.0"]
    sessions = [session["classes"] for session in facts["stream"]["sessions"]]
    assert sorted(map(len, sessions)) == [2, 2]
    from safetensors import safe_open

    newest = max((tmp_path / "runs" / "leaves" / "state").glob("session_*.safetensors"))
    with safe_open(newest, "np") as state:
        vectors = [state.get_tensor(key) for key in list(state.keys()) if key.endswith("vector")]
    assert len(vectors) == 2
    assert all(np.abs(vector).max() > 0 for vector in vectors)
    wrong = safecl("run", "finetune", "pet=shift", "pet.spraed=1")
    assert wrong.stderr.startswith("safecl: There is no setting 'pet.spraed'; did you mean")


def test_what_is_wrong_with_a_package_is_a_sentence_and_the_rest_works(
    tmp_path: Path, installed: Any
) -> None:
    broken = wheel(
        tmp_path,
        "broken",
        "import nothing_of_this_name\n",
        {"safecl.methods": {"lost": "broken:Lost"}, "safecl.metrics": {"missing": "broken:m"}},
    )
    clash = wheel(
        tmp_path,
        "clash",
        "def failing(measured):\n    return 1 / 0\n\n\nNUMBER = 3\n",
        {
            "safecl.methods": {"safe": "clash:failing", "number": "clash:NUMBER"},
            "safecl.metrics": {"failing": "clash:failing"},
        },
    )
    safecl = installed(broken, clash)

    def said(*words: str) -> list[str]:
        return safecl(*words).stderr.splitlines()

    clashing = (
        "Note: clash 1.0 brings a method 'safe', which safecl has itself; safecl's is used, and the"
        " other needs another name."
    )
    unloadable = (
        "The method 'lost' of broken 1.0 cannot be loaded (ModuleNotFoundError: No module named"
        " 'nothing_of_this_name'); update that package, or uninstall it."
    )
    misfit = (
        "The method 'number' of clash 1.0 (clash:NUMBER) is not a class that extends safecl.Method;"
        " see docs/extending.md."
    )
    assert said("run", "lost") == [clashing, f"safecl: {unloadable}"]
    assert said("run", "number") == [clashing, f"safecl: {misfit}"]
    assert said("methods") == [clashing, f"Note: {unloadable}", f"Note: {misfit}"]
    ran = safecl("run", "simplecil", *SMALL, *GLYPHS, "--folder", "run", "--quiet")
    assert ran.returncode == 0, ran.stderr
    assert "The metric 'missing' of broken 1.0 cannot be loaded" in ran.stderr
    assert "The metric 'failing' of clash 1.0 failed (ZeroDivisionError: division by zero)" in (
        ran.stderr
    )
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["metrics"] for line in lines] == [{"failing": {"simplecil": None}}] * 3


def test_of_two_packages_with_one_name_none_is_used(tmp_path: Path, installed: Any) -> None:
    one, two = (
        wheel(tmp_path, name, "A = 1\n", {"safecl.pets": {"twin": f"{name}:A"}})
        for name in ("one", "two")
    )
    assert installed(one, two)("run", "finetune", "pet=twin").stderr.splitlines() == [
        "Note: one 1.0 and two 1.0 each bring a PET 'twin', so none is used; uninstall all but"
        " one.",
        "safecl: There is no pet 'twin'; choose one of: adapter, full, lora, none, prefix, ssf,"
        " vpt_deep, vpt_shallow.",
    ]


LIGHT = """
import sys
from safecl.cli.main import main
for words in (["info"], ["--help"], ["info", "--keys", "safe"], ["run", "nowhere"]):
    sys.argv = ["safecl", *words]
    try:
        main()
    except SystemExit:
        pass
    assert "torch" not in sys.modules and "shift" not in sys.modules, words
"""


def test_a_package_is_not_loaded_before_it_is_named(tmp_path: Path, installed: Any) -> None:
    groups = ("methods", "datasets", "metrics", "presets")
    entries = {f"safecl.{group}": {f"my_{group}": "shift:Any"} for group in groups}
    installed(wheel(tmp_path, "shift", SHIFT, entries))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT / 'src'}"}
    ran = subprocess.run(
        [sys.executable, "-c", LIGHT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert all(f"my_{group}" in ran.stdout for group in groups)
