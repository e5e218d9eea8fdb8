"""What needs no torch does not load it, and is therefore answered at once."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from safecl.cli.main import main
for words in (["info"], ["info", "--keys"], ["info", "--keys", "safe"], ["data", "list"], ["methods"], ["--help"],
              ["run", "--help"], [], ["run", "safe", "traim.epochs=1"], ["run", "safe", "train.epohcs=1"],
              ["run", "safe", "stream=foto"], ["data", "check", "foto"], ["show", "nowhere"], ["runs", "."],
              ["inspect", "nowhere"], ["predict", "x", "--model", "nowhere"],
              ["learn", "nowhere", "--model", "m.safecl"], ["reproduce", "list"], ["reproduce", "all", "--dry"],
              ["reproduce", "tables"], ["reproduce", "all", "train.epohcs=1"]):
    sys.argv = ["safecl", *words]
    try:
        main()
    except SystemExit as end:
        wrong = words[:1] and words[0] in ("run", "show", "runs", "inspect", "predict", "learn")
        wrong = wrong or words[-1:] == ["tables"] or words[:1] == ["reproduce"] and "=" in words[-1]
        assert end.code == (2 if wrong and words[-1] != "--help" or "foto" in words else 0), (words, end.code)
    assert "torch" not in sys.modules, words
"""


def test_a_wrong_word_and_what_is_here_are_answered_without_torch(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("\n") == 11 and "did you mean 'train'?" in ran.stderr  # a sentence a mistake
