"""Devices and precisions: what is not there is a sentence, and one process may use first the one
and then the other.
"""

import re

import pytest
import torch
from accelerate.state import PartialState

from safecl.engine.device import choose_precision, make_accelerator
from tests.conftest import raises


def test_a_device_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with raises("device.missing"):
        make_accelerator("cuda")
    assert make_accelerator("cpu").device.type == "cpu"


def test_the_cpu_can_be_used_after_an_accelerator() -> None:
    """accelerate keeps the first device of a process and would answer with a bare ValueError."""
    make_accelerator("cpu")
    PartialState._shared_state.update(device=torch.device("cuda"), _cpu=False)
    assert make_accelerator("cpu").device.type == "cpu"


def test_a_tracker_that_is_not_known_or_not_installed_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with raises("name.unknown.near", near="wandb"):
        make_accelerator("cpu", ["wanb"])
    monkeypatch.setattr("accelerate.utils.is_mlflow_available", lambda: False)
    with raises("tracker.not-installed", name=re.compile("^mlflow")):
        make_accelerator("cpu", ["mlflow"])


def test_low_precision_is_for_hardware_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    cuda = torch.device("cuda")
    assert choose_precision("auto", cpu) == choose_precision("fp32", cuda) == torch.float32
    assert choose_precision("bf16", cpu) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert choose_precision("auto", cuda) == torch.bfloat16
