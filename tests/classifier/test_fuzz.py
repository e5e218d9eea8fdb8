"""Mutated model files give the answer of the unmutated one, or one sentence; see fuzz.py."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    "count", [12, pytest.param(5000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
)
def test_a_mutated_file_gives_the_same_answer_or_a_sentence(
    count: int, new_model: Any, lesson: Any, tmp_path: Path
) -> None:
    model = new_model()
    model.learn(*lesson("abcd"))
    model.learn(*lesson("ef"))
    model.save(tmp_path / "good.safecl")
    command = [
        sys.executable,
        str(Path(__file__).with_name("fuzz.py")),
        str(tmp_path / "good.safecl"),
        str(count),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["bad"] == [] and sum(found["found"].values()) == count
    for kind in ("bytes", "members", "header", "tensors"):
        assert found["found"][f"{kind}: refused"] > 0
    assert any(
        found["found"].get(f"{kind}: the same answer")
        for kind in ("bytes", "members", "header", "tensors")
    )
