"""The table of backbones says what the installed timm says."""

import pytest
import timm
import torch

from safecl.backbone import hub
from safecl.backbone.curated import Curated, at_hand, curated, row_of
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import EMBEDDED, SIZES, BackboneSettings

FROM_TIMM = [row for row in curated() if row.name != EMBEDDED]


def test_every_row_has_a_name_of_its_own_and_every_short_name_a_row() -> None:
    names = [row.name for row in curated()]
    assert len(set(names)) == len(names)
    assert [row_of(word) for word in SIZES] == [row_of(name) for name, _ in SIZES.values()]
    assert {row.word for row in curated()} == {"", *SIZES}


@pytest.mark.parametrize("row", FROM_TIMM, ids=lambda row: row.name)
def test_a_row_says_what_timm_says(row: Curated) -> None:
    facts = timm.get_pretrained_cfg(row.name)
    assert facts is not None and facts.license == row.licence
    assert row.side == (
        BackboneSettings(name=row.word or row.name).image_size or facts.input_size[-1]
    )


def test_the_weights_of_every_row_are_where_they_are_looked_for() -> None:
    for row in FROM_TIMM:
        place = hub.address(row.name)
        assert place is not None
        assert place[:2] == (f"timm/{row.name}", None) and place.files[0] == "model.safetensors"


def test_the_newest_of_each_family_is_there() -> None:
    names = " ".join(row.name for row in curated())
    for family in ("reg4_dinov2", "siglip", "eva02", "pe_core", "convnextv2", "swinv2", "tiny_vit"):
        assert family in names
    assert "efficientnet" in names and "mobilenetv4" in names


@pytest.mark.usefixtures("offline")
def test_only_the_embedded_weights_are_always_at_hand() -> None:
    assert [row.name for row in curated() if at_hand(row.name)] == [EMBEDDED]


def test_the_embedded_row_is_that_of_the_embedded_network() -> None:
    row = row_of("micro")
    backbone = load_backbone("micro")
    assert row is not None and row.side == backbone.size
    assert row.parameters == sum(each.numel() for each in backbone.network.parameters())


def parameters(name: str, side: int) -> int:
    fixed = {} if row_of(name).word in ("", "tiny") else {"img_size": side}
    with torch.device("meta"):
        network = timm.create_model(name, num_classes=0, **fixed)
    return sum(each.numel() for each in network.parameters())


@pytest.mark.parametrize("word", ["tiny", "small"])
def test_the_size_of_a_row_is_that_of_its_network(word: str) -> None:
    row = row_of(word)
    assert parameters(row.name, row.side) == row.parameters


@pytest.mark.slow
@pytest.mark.parametrize("row", FROM_TIMM, ids=lambda row: row.name)
def test_the_size_of_every_row_is_that_of_its_network(row: Curated) -> None:
    assert parameters(row.name, row.side) == row.parameters
