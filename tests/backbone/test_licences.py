"""Whose licence it is, where it is stated, and what is said of it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from safecl.backbone.licences import NOT_STATED, licence_of, terms
from safecl.backbone.settings import BackboneSettings


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("micro", "research use"),
        ("small", "apache-2.0"),
        ("convnextv2_tiny.fcmae_ft_in22k_in1k", "cc-by-nc-4.0"),
        ("res2net50d.in1k", NOT_STATED),
        ("none of timm's", NOT_STATED),
    ],
)
def test_timm_says_it_then_the_table(name: str, licence: str) -> None:
    assert licence_of(BackboneSettings(name=name)) == licence


@pytest.mark.parametrize("key", ["licence", "license"])
def test_a_weight_file_has_its_own(key: str, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_file({"a": torch.zeros(1)}, file, {key: "cc-by-nc-4.0"})
    assert licence_of(BackboneSettings(weights=str(file))) == "cc-by-nc-4.0"


def test_a_file_that_states_none_does_not_have_that_of_the_embedded_weights(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_file({"a": torch.zeros(1)}, file)
    for weights in (str(file), "random", str(tmp_path / "gone.pth")):
        assert licence_of(BackboneSettings(weights=weights)) == NOT_STATED


@pytest.mark.parametrize("licence", ["apache-2.0", "mit", NOT_STATED])
def test_a_free_licence_is_not_worth_a_word(licence: str) -> None:
    assert terms("net", licence) is None


@pytest.mark.parametrize(
    ("licence", "said"),
    [
        ("cc-by-nc-4.0", "forbids commercial use"),
        ("research use", "forbids commercial use"),
        ("fair-noncommercial-research-license", "forbids commercial use"),
        ("dinov3-license", "terms of its own"),
    ],
)
def test_any_other_is_named_with_what_it_asks(licence: str, said: str) -> None:
    sentence = terms("net", licence)
    assert sentence is not None and licence in sentence and said in sentence
