"""What needs no torch does not load it, and is therefore answered at once."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

PROGRAM = """
import sys
from safecl.cli.main import main
for words in (["info"], ["info", "--keys"], ["info", "--keys", "safe"], ["data", "list"],
              ["methods"], ["--help"], ["run", "--help"], [],
              ["run", "safe", "traim.epochs=1"], ["run", "safe", "train.epohcs=1"],
              ["run", "safe", "stream=foto"], ["data", "check", "foto"], ["show", "nowhere"],
              ["runs", "."],
              ["inspect", "nowhere"], ["predict", "x", "--model", "nowhere"],
              ["learn", "nowhere", "--model", "m.safecl"], ["serve", "nowhere"],
              ["reproduce", "list"],
              ["reproduce", "tables"], ["reproduce", "all", "train.epohcs=1"]):
    sys.argv = ["safecl", *words]
    try:
        main()
    except SystemExit as end:
        wrong = words[:1] and words[0] in (
            "run", "show", "runs", "inspect", "predict", "learn", "serve"
        )
        wrong = wrong or words[-1:] == ["tables"] or words[:1] == ["reproduce"] and "=" in words[-1]
        fails = wrong and words[-1] != "--help" or "foto" in words
        assert end.code == (2 if fails else 0), (words, end.code)
    assert "torch" not in sys.modules, words
"""


def test_a_wrong_word_and_what_is_here_are_answered_without_torch(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    # a sentence a mistake
    assert ran.stderr.count("\n") == 12 and "did you mean 'train'?" in ran.stderr


REFUSED = """
import sys
from safecl.cli.main import main
for words in (["learn", "pets", "--model", "m.safecl"],
              ["learn", "pets/cat", "--model", "m.safecl"],
              ["learn", "empty", "--model", "new.safecl"],
              ["learn", "pets", "--model", "frozen.safecl"],
              ["rollback", "m.safecl"], ["rollback", "frozen.safecl"],
              ["queue", "m.safecl", "empty"]):
    sys.argv = ["safecl", *words]
    try:
        main()
    except SystemExit as end:
        learned = words[1:] == ["pets", "--model", "m.safecl"]
        assert end.code == (0 if learned else 2), (words, end.code)
    assert "torch" not in sys.modules, words
sys.argv = ["safecl", "predict", "pets/cat", "--model", "m.safecl", "--device", "cpu"]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
heavy = {"sklearn", "scipy", "pandas", "matplotlib", "accelerate", "jinja2"} & sys.modules.keys()
assert not heavy and "torch" in sys.modules, heavy
"""


def test_what_is_refused_after_a_look_at_the_files_needs_no_torch_and_an_answer_little_more(
    tmp_path: Path, new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i, image in enumerate(lesson(name[0], 4)[0]):
            Image.fromarray(np.asarray(image)).save(tmp_path / "pets" / name / f"{i}.png")
    (tmp_path / "empty" / "class").mkdir(parents=True)
    model = new_model("simplecil")
    model.learn(tmp_path / "pets")
    model.save(tmp_path / "m.safecl")
    model.save(tmp_path / "frozen.safecl", frozen=True)
    ran = subprocess.run(
        [sys.executable, "-c", REFUSED], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    nothing = "There is nothing new in pets: 8 pictures were learned before."
    said = [nothing, *(line.removeprefix("safecl: ") for line in ran.stderr.splitlines())]
    assert ran.stdout.splitlines()[0] == nothing
    assert "pets/cat/0.png is in no class folder; expected pets/cat/CLASS/PICTURE" in said[1]
    assert (
        "There is no picture in a class folder of empty" in said[2]
        and "This model is frozen" in said[3]
    )
    assert "it has learned one session only" in said[4] and "This model is frozen" in said[5]
    assert "There is no picture in empty" in said[6]
    assert ran.stdout.count("pets/cat/") == 4
