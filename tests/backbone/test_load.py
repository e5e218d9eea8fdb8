"""The backbone: the right feature, the right pixels, weights from any kind of file, one sentence
when one is wrong.
"""

import json
import logging
import os
import pickle
import re
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone import hub
from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone, warn_of_other_tag
from safecl.backbone.settings import PAPER, BackboneSettings
from safecl.errors import SafeclError
from tests.conftest import raises

NAME = "vit_tiny_patch16_224"
SHAPE: dict[str, Any] = {"img_size": 32, "depth": 2, "embed_dim": 24, "num_heads": 3}


@pytest.fixture
def vit(scramble: Callable[..., None]) -> VisionTransformer:
    """What the files below hold."""
    network = timm.create_model(NAME, pretrained=False, num_classes=0, **SHAPE).eval()
    scramble(network)
    return network


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let timm's ViT-Tiny be as small as the files, where no metadata can say so."""
    real = timm.create_model
    monkeypatch.setattr(
        timm, "create_model", lambda name, **options: real(name, **{**SHAPE, **options})
    )


def write_safetensors(file: Path, vit: nn.Module, **facts: str) -> Path:
    known = {
        "timm_model": NAME,
        "create_kwargs": json.dumps(SHAPE),
        "mean": "(0.1, 0.2, 0.3)",
        "std": "(0.4, 0.5, 0.6)",
    }
    save_file(vit.state_dict(), file, {**known, **facts})
    return file


def write_npz(file: Path, vit: VisionTransformer) -> Path:
    """The weights under the names, and in the layout, of Google's own files."""
    w = {key: value.numpy() for key, value in vit.state_dict().items()}
    heads = SHAPE["num_heads"]
    out = {
        "embedding/kernel": w["patch_embed.proj.weight"].transpose(2, 3, 1, 0),
        "embedding/bias": w["patch_embed.proj.bias"],
        "cls": w["cls_token"],
        "Transformer/posembed_input/pos_embedding": w["pos_embed"],
        "Transformer/encoder_norm/scale": w["norm.weight"],
        "Transformer/encoder_norm/bias": w["norm.bias"],
    }
    for i in range(SHAPE["depth"]):
        ours = f"blocks.{i}."
        theirs = f"Transformer/encoderblock_{i}/"
        for place, norm in ((0, "norm1"), (2, "norm2")):
            out[f"{theirs}LayerNorm_{place}/scale"] = w[f"{ours}{norm}.weight"]
            out[f"{theirs}LayerNorm_{place}/bias"] = w[f"{ours}{norm}.bias"]
        weights = np.split(w[f"{ours}attn.qkv.weight"], 3)
        biases = np.split(w[f"{ours}attn.qkv.bias"], 3)
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            mha = f"{theirs}MultiHeadDotProductAttention_1/{part}"
            out[f"{mha}/kernel"] = weight.T.reshape(len(weight), heads, -1)
            out[f"{mha}/bias"] = bias.reshape(heads, -1)
        proj = w[f"{ours}attn.proj.weight"]
        mha = f"{theirs}MultiHeadDotProductAttention_1/out"
        out[f"{mha}/kernel"] = proj.reshape(len(proj), heads, -1).transpose(1, 2, 0)
        out[f"{mha}/bias"] = w[f"{ours}attn.proj.bias"]
        for dense, layer in ((0, "fc1"), (1, "fc2")):
            out[f"{theirs}MlpBlock_3/Dense_{dense}/kernel"] = w[f"{ours}mlp.{layer}.weight"].T
            out[f"{theirs}MlpBlock_3/Dense_{dense}/bias"] = w[f"{ours}mlp.{layer}.bias"]
    np.savez(file, **out)
    return file


def sentence(**settings: Any) -> str:
    """What a user is told; always one line that ends like a sentence."""
    with pytest.raises(SafeclError) as caught:
        load_backbone(BackboneSettings(**settings))
    text = str(caught.value)
    assert "\n" not in text and text.endswith((".", "?")) and len(text) < 500
    return text


# -- features --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"reg_tokens": 4, "init_values": 1e-5}], ids=["plain", "registers"]
)
def test_the_feature_is_the_cls_token_after_the_final_norm(
    options: dict[str, Any], make_vit: Callable[..., VisionTransformer], images: Tensor
) -> None:
    vit = make_vit(global_pool="token", **options)
    backbone = Backbone(vit, "tiny", 16, (0.0,) * 3, (1.0,) * 3)
    features = backbone.features(images)
    assert features.shape == (5, backbone.width) == (5, 24) and features.dtype == torch.float32
    # timm's own answer for a network without a head
    assert torch.allclose(features, vit(images), atol=1e-4)
    before: list[Tensor] = []
    vit.norm.register_forward_hook(lambda module, inputs, output: before.append(inputs[0]))
    vit(images)
    normed = torch.nn.functional.layer_norm(
        before[0], (24,), vit.norm.weight, vit.norm.bias, vit.norm.eps
    )
    assert torch.allclose(features, normed[:, 0], atol=1e-4)


def test_pixels_are_normalised_before_anything_else(
    make_vit: Callable[..., VisionTransformer], images: Tensor
) -> None:
    vit = make_vit()
    mean = (0.1, 0.2, 0.3)
    std = (0.4, 0.5, 0.6)
    normalised = (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    expected = Backbone(vit, "tiny", 16, (0.0,) * 3, (1.0,) * 3).features(normalised)
    assert torch.allclose(
        Backbone(vit, "tiny", 16, mean, std).features(images), expected, atol=1e-4
    )


def test_the_backbone_is_frozen_and_in_evaluation_mode(
    make_vit: Callable[..., VisionTransformer],
) -> None:
    backbone = Backbone(make_vit().train(), "tiny", 16, (0.0,) * 3, (1.0,) * 3)
    assert not any(parameter.requires_grad for parameter in backbone.network.parameters())
    assert not any(module.training for module in backbone.network.modules())


def test_low_precision_stays_inside_the_network(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone()
    exact = backbone.features(images)
    backbone.to(torch.device("cpu"), torch.bfloat16)
    rough = backbone.features(images)
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, exact) and torch.allclose(rough, exact, atol=0.3)


# -- weight files ----------------------------------------------------------------------------------


def test_a_safetensors_file_says_itself_what_it_is(tmp_path: Path, vit: VisionTransformer) -> None:
    backbone = load_backbone(
        BackboneSettings(weights=str(write_safetensors(tmp_path / "a.safetensors", vit)))
    )
    assert (backbone.name, backbone.size, backbone.width) == (NAME, 32, 24)
    assert (backbone.mean, backbone.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert all(
        torch.equal(value, vit.state_dict()[key])
        for key, value in backbone.network.state_dict().items()
    )


@pytest.mark.parametrize("kind", ["safetensors", "pth", "pth in a dict", "npz"])
@pytest.mark.usefixtures("small")
def test_every_kind_of_file_gives_the_same_network(
    kind: str, tmp_path: Path, vit: VisionTransformer, images: Tensor
) -> None:
    file = tmp_path / f"weights.{kind.split()[0]}"
    if kind == "safetensors":
        save_file(vit.half().state_dict(), file)  # without metadata, and in half precision
    elif kind == "npz":
        write_npz(file, vit)
    else:
        # a classifier comes along
        head = {
            "head.weight": torch.ones(7, 24),
            "head.bias": torch.ones(7),
        }
        state = {**vit.state_dict(), **head}
        torch.save({"model": state} if kind == "pth in a dict" else state, file)
    backbone = load_backbone(BackboneSettings(name=NAME, weights=str(file)))
    own = backbone.network.state_dict()
    assert own.keys() == vit.state_dict().keys()
    assert all(torch.equal(own[key], value.float()) for key, value in vit.state_dict().items())


# -- fingerprint -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_the_same_weights_have_the_same_digest_in_any_file_and_precision(
    tmp_path: Path, vit: VisionTransformer
) -> None:
    files = [write_safetensors(tmp_path / "a.safetensors", vit), write_npz(tmp_path / "b.npz", vit)]
    torch.save({"model": vit.state_dict()}, tmp_path / "c.pth")
    backbones = [
        load_backbone(BackboneSettings(name=NAME, weights=str(file)))
        for file in (*files, tmp_path / "c.pth")
    ]
    backbones[0].to(torch.device("cpu"), torch.bfloat16)  # before it was ever asked for
    (digest,) = {backbone.digest for backbone in backbones}
    assert backbones[1].to(torch.device("cpu"), torch.bfloat16).digest == digest
    assert len(digest) == 32 and int(digest, 16)


@pytest.mark.parametrize("change", ["one weight", "two names swapped", "another shape"])
def test_other_weights_have_another_digest(
    change: str, make_vit: Callable[..., VisionTransformer]
) -> None:
    def digest(vit: VisionTransformer) -> str:
        return Backbone(vit, "tiny", 16, (0.5,) * 3, (0.5,) * 3).digest

    one = make_vit()
    other = make_vit()
    assert digest(make_vit()) == digest(one)
    with torch.no_grad():
        if change == "one weight":
            other.blocks[1].mlp.fc2.bias[3] += 1e-6
        elif change == "two names swapped":
            other.blocks[0], other.blocks[1] = one.blocks[1], one.blocks[0]
        else:
            other.pos_embed.data = other.pos_embed.data.transpose(1, 2)
    assert digest(other) != digest(make_vit())


def test_the_embedded_weights_have_a_digest() -> None:
    one, other = (load_backbone(BackboneSettings()) for _ in range(2))
    assert one.digest == other.digest
    resized = load_backbone(BackboneSettings(image_size=96))
    # by the shape of its position embedding, which was resampled
    assert resized.digest != one.digest


@pytest.mark.parametrize(("size", "resampled"), [(64, False), (128, True)])
def test_the_last_bits_of_a_resampled_position_embedding_are_no_other_weights(
    size: int, resampled: bool
) -> None:
    one, other = (load_backbone(BackboneSettings(image_size=size)) for _ in range(2))
    other.network.pos_embed.data += 1e-7
    assert (other.digest == one.digest) is resampled


def test_a_word_is_a_name_or_a_file(tmp_path: Path, vit: VisionTransformer) -> None:
    assert load_backbone("safecl_micro").digest == load_backbone(BackboneSettings()).digest
    file = str(write_safetensors(tmp_path / "a.safetensors", vit))
    assert load_backbone(file).digest == load_backbone(BackboneSettings(weights=file)).digest


def test_the_size_of_the_input_can_be_given_beside_a_name_or_settings() -> None:
    for given in ("micro", BackboneSettings(image_size=64)):
        assert (
            load_backbone(given, image_size=96).digest
            == load_backbone(BackboneSettings(image_size=96)).digest
        )
    for wrong, code, fields in (
        (0, "setting.value.wrong", {"reason": re.compile("must be above 0$")}),
        (100, "backbone.size.patches", {"size": 100, "fitting": 96}),
        ("big", "setting.value.wrong", {"given": "big", "reason": "a whole number is needed"}),
    ):
        with raises(code, **fields):
            load_backbone("micro", image_size=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "images",
    [
        torch.rand(2, 3, 16, 32),
        torch.rand(2, 3, 64, 64),
        torch.rand(2, 1, 16, 16),
        torch.rand(3, 16, 16),
        torch.zeros(2, 3, 16, 16, dtype=torch.uint8),
    ],
)
def test_pictures_of_another_size_or_kind_are_refused_in_a_sentence(
    images: Tensor, make_backbone: Callable[..., Backbone]
) -> None:
    given = re.compile(r"^\(.*\) of \w+$")
    with raises("backbone.pictures.shape", name="tiny", size=16, given=given):
        make_backbone().features(images)


# -- sizes and normalisation -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
@pytest.mark.usefixtures("small")
def test_position_embeddings_are_resampled_to_the_image_size(
    kind: str, tmp_path: Path, vit: VisionTransformer
) -> None:
    file = tmp_path / f"weights.{kind}"
    write_npz(file, vit) if kind == "npz" else write_safetensors(file, vit)
    backbone = load_backbone(BackboneSettings(name=NAME, weights=str(file), image_size=64))
    assert backbone.size == 64
    assert backbone.network.pos_embed.shape == (1, 1 + 16, 24)
    assert torch.equal(
        backbone.network.pos_embed[:, 0], vit.pos_embed[:, 0]
    )  # the CLS token has no place in the grid
    if kind == "safetensors":  # npz files are resampled bilinearly, as their makers do
        expected = resample_abs_pos_embed(vit.pos_embed, [4, 4], num_prefix_tokens=1)
        assert torch.allclose(backbone.network.pos_embed, expected, atol=1e-6)
    assert backbone.features(torch.rand(2, 3, 64, 64)).shape == (2, 24)


@pytest.mark.usefixtures("small")
def test_random_weights_need_no_file() -> None:
    backbone = load_backbone(BackboneSettings(name=NAME, weights="random", image_size=32))
    assert backbone.name == NAME and backbone.size == 32


@pytest.mark.usefixtures("small")
def test_random_weights_are_the_same_again_and_touch_no_other_randomness() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one, other = (
        load_backbone(BackboneSettings(name=NAME, weights="random", image_size=32))
        for _ in range(2)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    for a, b in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("normalisation", "mean", "std"),
    [
        ("none", (0.0,) * 3, (1.0,) * 3),
        ("half", (0.5,) * 3, (0.5,) * 3),
        ("imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("auto", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
    ],
)
def test_normalisation_is_a_choice(
    normalisation: str,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    tmp_path: Path,
    vit: VisionTransformer,
) -> None:
    file = write_safetensors(tmp_path / "a.safetensors", vit)
    backbone = load_backbone(BackboneSettings(weights=str(file), normalisation=normalisation))  # type: ignore[arg-type]
    assert (backbone.mean, backbone.std) == (mean, std)


@pytest.mark.usefixtures("small")
def test_automatic_normalisation_is_that_of_the_weights() -> None:
    augreg = load_backbone(
        BackboneSettings(name="vit_tiny_patch16_224.augreg_in21k", weights="random", image_size=32)
    )
    deit = load_backbone(
        BackboneSettings(name="deit_tiny_patch16_224", weights="random", image_size=32)
    )
    assert augreg.mean == (0.5, 0.5, 0.5) and deit.mean == (0.485, 0.456, 0.406)


# -- what can be wrong -----------------------------------------------------------------------------


def test_a_missing_file_or_one_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "does not exist" in sentence(weights=str(tmp_path / "none.pth"))
    assert "does not exist" in sentence(weights=str(tmp_path))
    assert ".safetensors" in sentence(weights=str(tmp_path / "notes.txt"))


@pytest.mark.parametrize("suffix", ["safetensors", "pth", "npz"])
@pytest.mark.parametrize("damage", ["cut", "empty", "junk"])
@pytest.mark.usefixtures("small")
def test_a_damaged_file_is_refused(
    suffix: str, damage: str, tmp_path: Path, vit: VisionTransformer
) -> None:
    file = tmp_path / f"weights.{suffix}"
    if suffix == "npz":
        write_npz(file, vit)
    elif suffix == "pth":
        torch.save(vit.state_dict(), file)
    else:
        write_safetensors(file, vit)
    whole = file.read_bytes()
    file.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "junk": b"junk" * 500}[damage])
    assert str(file) in sentence(name=NAME, weights=str(file))


class Malice:
    """Would make a file if anybody unpickled it."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("suffix", ["pth", "pt", "bin"])
@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.usefixtures("small")
def test_a_pickle_that_holds_more_than_weights_is_not_opened(
    suffix: str, wrapped: bool, tmp_path: Path
) -> None:
    file = tmp_path / f"evil.{suffix}"
    target = tmp_path / "made"
    if wrapped:
        torch.save({"cls_token": torch.zeros(1), "extra": Malice(target)}, file)
    else:
        file.write_bytes(pickle.dumps(Malice(target), protocol=2))
    text = sentence(name=NAME, weights=str(file), image_size=32)
    assert "more than weights" in text and "weights_only" not in text
    assert not target.exists()


@pytest.mark.usefixtures("small")
def test_an_npz_with_pickled_objects_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "evil.npz"
    target = tmp_path / "made"
    np.savez(file, **{"embedding/kernel": np.array([Malice(target)], dtype=object)})
    sentence(name=NAME, weights=str(file), image_size=32)
    assert not target.exists()


@pytest.mark.parametrize("suffix", ["safetensors", "pth", "npz"])
def test_weights_of_another_network_are_refused(
    suffix: str, tmp_path: Path, vit: VisionTransformer
) -> None:
    file = tmp_path / f"weights.{suffix}"
    if suffix == "npz":
        write_npz(file, vit)
    elif suffix == "pth":
        torch.save(vit.state_dict(), file)
    else:
        save_file(vit.state_dict(), file)
    assert "another network" in sentence(name=NAME, weights=str(file), image_size=32)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_a_file_far_larger_than_its_network_is_not_read(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"huge{suffix}"
    head = json.dumps(
        {"a": {"dtype": "U8", "shape": [20 << 30], "data_offsets": [0, 20 << 30]}}
    ).encode()
    file.write_bytes(len(head).to_bytes(8, "little") + head)
    os.truncate(file, 8 + len(head) + (20 << 30))  # no byte of it is on the disk
    for name in ("load_file", "torch.load"):
        monkeypatch.setattr(f"safecl.backbone.load.{name}", lambda *_: pytest.fail("it was read"))
    monkeypatch.setattr(VisionTransformer, "load_pretrained", lambda *_: pytest.fail("it was read"))
    with raises("backbone.weights.too-large", file=re.compile("huge")):
        load_backbone(BackboneSettings(name="test_vit", weights=str(file)))


def test_a_weight_file_that_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with raises("backbone.weights.missing"):
            load_backbone(
                BackboneSettings(name="test_vit", weights=str(tmp_path / f"{name}.safetensors"))
            )


@pytest.mark.usefixtures("small")
def test_a_file_that_lacks_a_weight_says_which(tmp_path: Path, vit: VisionTransformer) -> None:
    state = {key: value for key, value in vit.state_dict().items() if key != "blocks.1.norm1.bias"}
    torch.save(state, tmp_path / "weights.pth")
    assert "'blocks.1.norm1.bias'" in sentence(name=NAME, weights=str(tmp_path / "weights.pth"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([torch.zeros(1)], "holds a list"),
        ({"model": [torch.zeros(1)]}, "holds a list"),
        (torch.zeros(3), "holds a Tensor"),
        ({"a": 1}, "lacks 'cls_token'"),
        ({"state_dict": {"a": torch.zeros(1)}}, "lacks 'cls_token'"),
    ],
    ids=["list", "list in a dict", "tensor", "numbers", "other weights"],
)
@pytest.mark.usefixtures("small")
def test_a_pickle_of_something_else_is_refused(content: Any, said: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "weights.pth")
    text = sentence(name=NAME, weights=str(tmp_path / "weights.pth"))
    assert "weights.pth" in text and said in text and "attribute" not in text


@pytest.mark.usefixtures("small")
def test_what_stands_beside_the_weights_in_a_pickle_is_ignored(
    tmp_path: Path, vit: VisionTransformer
) -> None:
    torch.save({**vit.state_dict(), "epoch": 3}, tmp_path / "weights.pth")
    load_backbone(BackboneSettings(name=NAME, weights=str(tmp_path / "weights.pth")))


@pytest.mark.parametrize(
    "facts",
    [
        {"create_kwargs": "{nope"},
        {"create_kwargs": "3"},
        {"mean": "grey"},
        {"timm_model": "vit_tinny_patch16_224"},
        {"create_kwargs": "[" * 100_000},
        {"mean": "0.5"},
        {"mean": "nan,0,0"},
        {"std": "0,1,1"},
    ],
)
def test_metadata_that_makes_no_sense_is_refused(
    facts: dict[str, str], tmp_path: Path, vit: VisionTransformer
) -> None:
    sentence(weights=str(write_safetensors(tmp_path / "a.safetensors", vit, **facts)))


HOSTILE = [  # options of a weight file, and what the sentence says
    *(
        ({key: "/tmp/x.pth"}, "cannot be read")
        for key in ("checkpoint_path", "cache_dir", "pretrained_cfg", "name")
    ),
    ({"pretrained": True}, "cannot be read"),
    ({"meta": True}, "cannot be read"),
    ({"device": "meta"}, "cannot be"),
    ({"in_chans": 1}, "cannot be read"),
    ({"embed_layer": "x"}, "cannot be read"),
    ({"img_size": [32, 16]}, "cannot"),
    ({"depth": 10**9}, "cannot be read"),
    ({"embed_dim": 1 << 20}, "cannot be"),
    ({"mlp_ratio": 1e300}, "cannot"),
    ({"mlp_ratio": float("nan")}, "cannot be read"),
    ({f"a{i}": 1 for i in range(999)}, "cannot be read"),
    ({"depth": 200, "embed_dim": 8190}, "numbers"),
    ({"img_size": 8192, "patch_size": 1}, "numbers"),
    ({"patch_size": 0}, "does not take"),
    ({"num_heads": 7}, "does not take"),
    ({"depth": -1}, "does not take"),
    ({"embed_dim": -3}, "does not take"),
    ({"norm_layer": "x"}, "does not take"),
    ({"act_layer": "x"}, "does not take"),
]


@pytest.mark.parametrize(
    ("options", "said"), HOSTILE, ids=[str(options)[:40] for options, _ in HOSTILE]
)
def test_options_in_a_foreign_weight_file_are_plain_and_small(
    options: dict[str, Any], said: str, tmp_path: Path, vit: VisionTransformer
) -> None:
    given = json.dumps({**SHAPE, **options})
    text = sentence(
        weights=str(write_safetensors(tmp_path / "a.safetensors", vit, create_kwargs=given))
    )
    assert said in text


def test_a_network_for_huge_pictures_is_refused_before_it_is_made() -> None:
    assert "numbers" in sentence(
        name="vit_base_patch16_224", weights="random", image_size=1_600_000
    )


def test_options_the_network_does_not_take_are_refused(
    tmp_path: Path, vit: VisionTransformer
) -> None:
    file = write_safetensors(tmp_path / "a.safetensors", vit, create_kwargs='{"wheels": 4}')
    assert "wheels" in sentence(weights=str(file))


def test_an_unknown_name_or_tag_suggests_the_nearest() -> None:
    assert "'vit_base_patch16_224'" in sentence(name="vit_base_patch61_224", weights="random")
    assert "'vit_base_patch16_224.augreg_in21k'" in sentence(
        name="vit_base_patch16_224.augreg_in21", weights="random"
    )


@pytest.mark.usefixtures("small")
def test_an_image_size_that_does_not_fit_the_patches_suggests_one_that_does() -> None:
    assert "try 48" in sentence(name=NAME, weights="random", image_size=47)
    assert "try 16" in sentence(name=NAME, weights="random", image_size=5)


@pytest.mark.usefixtures("offline")
def test_offline_the_one_sentence_is_all_that_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    """The client of the hub would retry for most of a minute, and print a line each time."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level, list(logger.filters), list(logger.handlers)
    assert "backbone.weights=FILE" in sentence(name="vit_tiny_patch16_224.augreg_in21k")
    assert capfd.readouterr() == ("", "")
    assert (logger.level, list(logger.filters), list(logger.handlers)) == before


def test_a_hub_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    released = threading.Event()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        huggingface_hub, "get_hf_file_metadata", lambda *_, **options: released.wait(100)
    )
    monkeypatch.setattr(hub, "WAIT", 0.05)
    assert "no answer" in sentence(name="vit_tiny_patch16_224.augreg_in21k")
    released.set()


@pytest.mark.usefixtures("offline", "small")
def test_cached_weights_are_loaded_without_a_connection(
    tmp_path: Path, vit: VisionTransformer
) -> None:
    repository = tmp_path / "cache" / "models--timm--vit_tiny_patch16_224.augreg_in21k"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(vit.state_dict(), repository / "snapshots" / ("0" * 40) / "model.safetensors")
    backbone = load_backbone(BackboneSettings(name="vit_tiny_patch16_224.augreg_in21k"))
    assert all(
        torch.equal(value, vit.state_dict()[key])
        for key, value in backbone.network.state_dict().items()
    )


def test_a_download_that_breaks_off_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = timm.create_model

    def breaks(name: str, pretrained: bool = False, **options: Any) -> Any:
        if pretrained:
            raise OSError("We couldn't connect to the hub\n\nto load the files")
        return real(name, pretrained=pretrained, **options)

    monkeypatch.setattr(timm, "create_model", breaks)
    monkeypatch.setattr(hub, "fetch", lambda name: None)
    assert "backbone.weights=FILE" in sentence(name="vit_tiny_patch16_224.augreg_in21k")


def test_a_size_that_a_network_does_not_take_is_refused_before_anything_is_downloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = timm.create_model

    def download(name: str, pretrained: bool = False, **options: Any) -> Any:
        assert not pretrained, "a download was begun"
        return real(name, pretrained=pretrained, **options)

    monkeypatch.setattr(timm, "create_model", download)
    monkeypatch.setattr(hub, "fetch", lambda name: None)
    with raises("backbone.size.patches", size=100):
        load_backbone("test_vit.r160_in1k", image_size=100)
    with raises("backbone.size.refused", size=50, own=224):
        load_backbone("levit_128s.fb_dist_in1k", image_size=50)


@pytest.mark.parametrize("suffix", ["safetensors", "pth", "npz"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.usefixtures("small")
def test_weights_that_are_no_numbers_are_refused(
    suffix: str, wrong: float, tmp_path: Path, vit: VisionTransformer
) -> None:
    with torch.no_grad():
        vit.blocks[1].mlp.fc1.weight[2, 3] = wrong
    file = tmp_path / f"weights.{suffix}"
    if suffix == "npz":
        write_npz(file, vit)
    elif suffix == "pth":
        torch.save(vit.state_dict(), file)
    else:
        write_safetensors(file, vit)
    text = sentence(name=NAME, weights=str(file))
    assert str(file) in text and "NaN" in text and "'blocks.1.mlp.fc1.weight'" in text


# -- tags ------------------------------------------------------------------------------------------


def test_the_papers_two_sets_of_weights_exist() -> None:
    assert set(PAPER.values()) <= set(timm.list_models("vit_base_patch16_224.*", pretrained=True))


def test_an_untagged_name_that_means_other_weights_is_pointed_out() -> None:
    with pytest.warns(UserWarning, match=r"augreg2.*'vit_base_patch16_224\.augreg_in21k_ft_in1k'"):
        warn_of_other_tag("vit_base_patch16_224")


@pytest.mark.parametrize(
    "name", [*PAPER.values(), NAME, "vit_small_patch14_dinov2", "safecl_micro", "none such"]
)
def test_other_names_pass_without_a_word(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_other_tag(name)


@pytest.mark.usefixtures("small")
def test_own_weights_under_an_untagged_name_are_nobodys_business() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_backbone(BackboneSettings(name=NAME, weights="random", image_size=32))
