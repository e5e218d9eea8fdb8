"""``safecl backbones``, and ``learn --backbone auto``."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safecl.backbone import timing
from safecl.backbone.curated import curated
from safecl.backbone.settings import EMBEDDED, SIZES
from safecl.lines import plain

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache of mine"))
    monkeypatch.setenv("COLUMNS", "200")


def test_every_row_is_listed_with_its_licence(command: Command) -> None:
    code, out, _ = command("backbones")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert code == 0
    for row in curated():
        line = lines[row.word or row.name]
        assert row.licence in line and f"{row.parameters / 1e6:.1f} M" in line
        assert row.good_at in line
    assert " yes " in lines["micro"] and " no " in lines["small"]


def test_what_was_measured_is_listed(command: Command) -> None:
    timing.remember(EMBEDDED, timing.Timing(7.25, 64, "cpu"))
    _, out, _ = command("backbones")
    assert ["7.2" in line for line in out.splitlines() if line.startswith("micro")] == [True]


def test_the_list_needs_no_torch() -> None:
    program = (
        "import sys; sys.argv = ['safecl', 'backbones']\n"
        "from safecl.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'timm'} & sys.modules.keys()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_one_is_described_and_its_time_is_measured_once(command: Command) -> None:
    code, out, _ = command("backbones", "micro")
    facts = dict(line.split(maxsplit=1) for line in out.splitlines() if line[:1].strip())
    assert code == 0
    assert facts["backbone"].startswith(EMBEDDED) and "64 × 64 px" in facts["input"]
    assert facts["licence"].strip() == "research use" and "forbids commercial use" in out
    assert facts["weights"].strip() == "inside the package"
    assert {"ssf", "adapter", "lora"} <= set(facts["tuned"].replace(",", "").split())
    took = timing.known(EMBEDDED, 64)
    assert took is not None and f"{took.seconds:.1f} s per 100 pictures" in facts["time"]
    assert command("backbones", "micro")[1] == out


def test_all_that_timm_has_is_listed_by_a_part_of_the_name(command: Command) -> None:
    code, out, _ = command("backbones", "--all", "convnextv2_atto")
    assert code == 0 and "convnextv2_atto.fcmae " in out and "cc-by-nc-4.0" in out
    assert "convnextv2_base" not in out
    assert command("backbones", "--all", "none such")[0] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fetch"], "Name the backbone to fetch"),
        (["fetch", "micro"], "inside the package already"),
        (["fetch", "smal"], "did you mean 'small'"),
        (["fetch", "tiny"], f"The weights of {SIZES['tiny'][0]} could not be fetched"),
        (["fetch", "gcvit_tiny.in1k"], "has no weights of gcvit_tiny.in1k"),
        (["micro", "small"], "One thing at a time"),
        (["micro", "--measure"], "One thing at a time"),
        (["--all", "--measure"], "One thing at a time"),
        (["no such network"], "no backbone"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(words: list[str], said: str, command: Command) -> None:
    code, out, told = command("backbones", *words)
    assert (code, out) == (2, "") and said in told and told.count("\n") == 1


def test_learn_chooses_prints_the_evidence_and_inspect_keeps_it(
    command: Command, two_blocks: Path, tmp_path: Path, write_folder: Any
) -> None:
    folder = write_folder(tmp_path / "first", "abcd")
    model = str(tmp_path / "m.safecl")
    words = ["--backbone", f"auto:micro,{two_blocks}", "--prefer", "speed"]
    words += ["--method", "simplecil", "--device", "cpu", "--model", model]
    code, out, told = command("learn", str(folder), *words)
    assert code == 0, told
    assert out.count("s per 100 pictures") == 2 and "Chosen of 2 backbones" in out
    again = write_folder(tmp_path / "second", "ef")
    assert command("learn", str(again), *words)[0] == 0
    _, out, _ = command("inspect", model)
    assert "by speed on 20 pictures" in out and two_blocks.name in out and "safecl_micro" in out
    assert "of the backbone's weights" in out
    page = tmp_path / "m.html"
    assert command("inspect", model, "--page", str(page))[0] == 0
    written = plain(page.read_text(encoding="utf-8"))
    assert "the first chosen by speed on 20 pictures" in written and "licence" in written


def test_a_run_names_its_backbone(command: Command) -> None:
    code, out, told = command("run", "safe", "backbone=auto")
    assert (code, out) == (2, "") and "safecl backbones lists them" in told
