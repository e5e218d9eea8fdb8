"""From settings to a run: its folder, its device, its precision."""

from pathlib import Path

import pytest
import torch

from safecl.errors import SafeclError
from safecl.experiments.config import load
from safecl.experiments.launch import check_folder, choose_precision, default_folder, make_accelerator, start_anew


def test_every_configuration_has_a_folder_of_its_own() -> None:
    words = [[], ["seed=1"], ["pet=adapter"], ["stream=folder:/a/b c"], ["train.epochs=3"], ["method=ranpac"]]
    folders = [default_folder(load("safe", each)) for each in words]
    assert len(set(folders)) == len(folders)
    assert folders == [default_folder(load("safe", each)) for each in words]
    for folder in folders:
        assert folder.parent == Path("runs") and not set(folder.name) & set(" /:")


def test_a_folder_belongs_to_one_configuration(tmp_path: Path) -> None:
    settings = load("safe", ["seed=1"])
    check_folder(settings, tmp_path / "run")
    check_folder(settings, tmp_path / "run")
    assert load(str(tmp_path / "run" / "resolved.yaml"), []) == settings
    with pytest.raises(SafeclError, match="other settings"):
        check_folder(load("safe", ["seed=2"]), tmp_path / "run")


def test_a_folder_that_is_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SafeclError, match="cannot be used"):
        check_folder(load("safe", []), tmp_path / "file")


def test_a_device_that_is_not_known_or_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SafeclError, match="choose auto, cpu, cuda or mps"):
        make_accelerator("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SafeclError, match="not available"):
        make_accelerator("cuda")
    assert make_accelerator("cpu").device.type == "cpu"


def test_low_precision_is_for_hardware_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert choose_precision("auto", cpu) == choose_precision("fp32", cuda) == torch.float32
    assert choose_precision("bf16", cpu) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert choose_precision("auto", cuda) == torch.bfloat16


def test_starting_anew_empties_a_run_and_nothing_else(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "photos"
    settings = load("safe", [])
    check_folder(settings, run)
    (run / "state").mkdir()
    (run / "state" / "session_0001.safetensors").write_bytes(b"")
    (run / "thesis.tex").write_text("years of work")
    start_anew(run)
    assert [path.name for path in run.iterdir()] == ["thesis.tex"]
    start_anew(tmp_path / "none")  # nothing there: nothing to do
    other.mkdir()
    (other / "cat.jpg").write_bytes(b"")
    check_folder(settings, other / "runs" / "safe")  # a run far below makes it no run
    with pytest.raises(SafeclError, match="no run"):
        start_anew(other)
    assert (other / "cat.jpg").exists() and (other / "runs" / "safe" / "resolved.yaml").exists()
