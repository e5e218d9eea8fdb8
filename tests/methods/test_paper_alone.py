"""Algorithm 1 stands alone: the preset ``paper`` needs nothing of what goes beyond it."""

import subprocess
import sys

PROGRAM = """
import sys

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("safecl.methods.beyond", "safecl.methods.variants")):
            raise ImportError(f"{name} is out of reach")

sys.meta_path.insert(0, Wall())
import safecl

words = ["backbone=micro", "device=cpu", "precision=fp32", "ridge.size=50", "train.epochs=1"]
words += ["stream.classes=4", "stream.sessions=2", "stream.train=3", "stream.test=2"]
safecl.run("paper", *words, folder=sys.argv[1], show="quiet")
print("learned", not any("methods.beyond" in name for name in sys.modules))
"""


def test_the_paper_runs_where_nothing_beyond_it_can_be_imported(tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"{tmp_path}/run"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["learned", "True"]
