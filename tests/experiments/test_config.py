"""Settings: presets that hold, words on top of them, and one sentence with the nearest right word when one is wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from safecl.errors import SafeclError
from safecl.experiments.config import ALIASES, RunSettings, keys, load, presets, validate
from safecl.methods.catalog import SETTINGS


def sentence(source: str, *words: str) -> str:
    """What a user is told; always one line that ends like a sentence."""
    with pytest.raises(SafeclError) as caught:
        load(source, list(words))
    text = str(caught.value)
    assert "\n" not in text and text.endswith((".", "?", "…"))
    return text


# -- presets --------------------------------------------------------------------------------------------------------


def test_every_preset_is_valid() -> None:
    assert {"safe", "paper", "published", "ranpac", "finetune"} <= set(presets())
    for name in [*presets(), *ALIASES]:
        assert load(name, []).method.name in SETTINGS


def test_default_is_safe_with_our_defaults() -> None:
    assert load("default", []) == load("safe", []) == RunSettings()


@pytest.mark.parametrize("name", presets())
def test_settings_survive_being_written_and_read(name: str, tmp_path: Path) -> None:
    settings = load(name, ["seed=3", "stream=folder:/some/place"])
    file = tmp_path / "resolved.yaml"
    file.write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    assert load(str(file), []) == settings


def test_settings_cannot_be_changed_behind_ones_back() -> None:
    with pytest.raises(Exception, match="frozen"):
        load("safe", []).train.epochs = 3  # type: ignore[misc]


# -- words ----------------------------------------------------------------------------------------------------------


def test_words_go_on_top_and_leave_the_rest_alone() -> None:
    plain = load("paper", [])
    changed = load(
        "paper", ["train.epochs=7", "seed=5", "method.gamma=2.5", "ridge.betas=[1e-3, 1]", "method.teacher=ptm"]
    )
    assert (changed.train.epochs, changed.seed, changed.ridge.betas) == (7, 5, (1e-3, 1.0))
    expected = plain.model_dump()
    expected["train"]["epochs"], expected["seed"], expected["ridge"]["betas"] = 7, 5, (1e-3, 1.0)
    expected["method"].update(gamma=2.5, teacher="ptm")
    assert changed.model_dump() == expected


@pytest.mark.parametrize(
    ("word", "group", "key", "value"),
    [
        ("pet=adapter", "pet", "kind", "adapter"),
        ("stream=glyphs", "stream", "name", "glyphs"),
        ("stream=folder:/data/my pictures", "stream", "name", "folder:/data/my pictures"),
        ("stream=hf:user/name", "stream", "name", "hf:user/name"),
        ("backbone=vit_base_patch16_224.augreg_in21k", "backbone", "name", "vit_base_patch16_224.augreg_in21k"),
        ("backbone=/weights/mine.npz", "backbone", "weights", "/weights/mine.npz"),
        ("method=ranpac", "method", "name", "ranpac"),
    ],
)
def test_a_bare_group_takes_its_short_form(word: str, group: str, key: str, value: str) -> None:
    assert getattr(getattr(load("safe", [word]), group), key) == value


@pytest.mark.parametrize(("word", "value"), [("device=cpu", "cpu"), ("precision=bf16", "bf16"), ("seed=4", 4)])
def test_a_setting_outside_any_group_is_just_that(word: str, value: Any) -> None:
    assert getattr(load("safe", [word]), word.split("=")[0]) == value


def test_the_order_of_words_does_not_matter() -> None:
    words = ["stream=glyphs", "stream.classes=9", "pet=adapter", "pet.bottleneck=8", "method=safe", "method.gamma=3"]
    settings = load("published", words)
    assert settings == load("published", words[::-1])
    assert (settings.stream.classes, settings.pet.bottleneck) == (9, 8)
    assert settings.method.model_dump()["gamma"] == 3


def test_another_pet_keeps_the_numbers_and_another_method_does_not() -> None:
    assert load("safe", ["pet.tokens=9", "pet=vpt_deep"]).pet.tokens == 9
    assert load("paper", ["method=safe"]).method == load("safe", []).method


def test_null_is_no_value_and_the_word_none_a_word() -> None:
    settings = load("safe", ["method.transfer_share=null", "method.teacher=none", "pet=none", "train.later_clip=null"])
    assert settings.method.model_dump()["transfer_share"] is None
    assert settings.method.model_dump()["teacher"] == settings.pet.kind == "none"


@given(st.integers(0, 2**32), st.floats(1e-6, 10), st.integers(1, 500))
def test_numbers_are_read_as_they_are_written(seed: int, rate: float, epochs: int) -> None:
    settings = load("safe", [f"seed={seed}", f"train.lr={rate!r}", f"train.epochs={epochs}"])
    assert (settings.seed, settings.train.lr, settings.train.epochs) == (seed, rate, epochs)


def test_every_key_is_known_by_its_dotted_name() -> None:
    known = keys()
    assert {"seed", "train.lr", "method.gamma", "ridge.betas", "pet.kind", "backbone.weights"} <= set(known)
    assert "method.gamma" not in keys("ranpac") and "method.scale" in keys("ranpac")


# -- what can be wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("train.epoch=3", "'train.epochs'"),
        ("trian.epochs=3", "'train'"),
        ("sead=3", "'seed'"),
        ("method.gama=3", "'method.gamma'"),
        ("pet.bottelneck=3", "'pet.bottleneck'"),
        ("train.epochs.x=3", "'train.epochs'"),
    ],
)
def test_a_misspelt_key_names_the_nearest(word: str, nearest: str) -> None:
    assert f"did you mean {nearest}?" in sentence("safe", word)


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("pet=sff", "'ssf'"),
        ("pet.kind=adaptor", "'adapter'"),
        ("method.teacher=slwo", "'slow'"),
        ("method.temperature=lerned", "'learned'"),
        ("method=rampac", "'ranpac'"),
        ("method.name=rampac", "'ranpac'"),
        ("precision=fp23", "'fp32'"),
        ("stream.protocol=clas", "'class'"),
    ],
)
def test_a_misspelt_value_names_the_nearest(word: str, nearest: str) -> None:
    assert f"did you mean {nearest}?" in sentence("safe", word)


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("train.epochs=many", "train.epochs"),
        ("train.epochs=0", "train.epochs"),
        ("train.epochs=1.5", "train.epochs"),
        ("train.lr=-1", "train.lr"),
        ("train.lr=.inf", "train.lr"),
        ("method.gamma=.nan", "method.gamma"),
        ("method.temperature=-3", "method.temperature"),
        ("ridge.betas=[1, -1]", "ridge.betas"),
        ("ridge.betas=[]", "ridge.betas"),
        ("ridge.size=big", "ridge.size"),
        ("seed=-1", "seed"),
        ("seed=", "seed"),
        ("seed.x=1", "seed"),
        ("stream.scale=[1]", "stream.scale"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_key(word: str, key: str) -> None:
    assert sentence("safe", word).startswith(f"{key}=")


@pytest.mark.parametrize("word", ["train=5", "pet=5", "pet=null", "stream=[a, b]", "ridge=hello"])
def test_a_group_that_is_given_a_value_says_what_it_holds(word: str) -> None:
    group = word.split("=")[0]
    assert f"like {group}." in sentence("safe", word)


@pytest.mark.parametrize("word", ["method=[a]", "method=5", "method.name=[a]", "method={}"])
def test_a_method_that_is_no_name_is_refused(word: str) -> None:
    if word == "method={}":
        assert load("ranpac", [word]).method.name == "safe"
    else:
        assert "finetune, ranpac, safe" in sentence("safe", word)


def test_a_setting_of_another_method_is_not_suggested() -> None:
    text = sentence("ranpac", "method.teacher=slow")
    assert "'method.teacher'" in text and "did you mean 'method.teacher'" not in text


@pytest.mark.parametrize("word", ["seed", "=3", "--seed", "train.epochs:3", ""])
def test_what_is_not_key_and_value_is_shown_the_form(word: str) -> None:
    assert "key=value" in sentence("safe", word)


@pytest.mark.parametrize("word", ["seed=[", "seed={a", "pet='ssf", "train.lr=@x"])
def test_a_value_that_cannot_be_read_is_a_sentence(word: str) -> None:
    assert repr(word) in sentence("safe", word)


def test_an_unknown_preset_names_the_nearest() -> None:
    assert "did you mean 'safe'?" in sentence("sfae")
    assert "did you mean 'published'?" in sentence("publised")
    assert "paper" in sentence("xyzzy")


@pytest.mark.parametrize(
    "text",
    [b"method: safe\n: :\n -", b"- a\n- b", b"just words", b"\xff\xfe\x00", b"1: 2", b"method: {gama: 1}", b"train:"],
)
def test_a_file_that_makes_no_sense_is_refused_by_name(text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(text)
    told = sentence(str(file))
    assert "mine.yaml" in told or "'method.gamma'" in told
    assert not text.startswith(b"method: safe") or "in line 2" in told


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    assert "does not exist" in sentence(str(tmp_path / "none.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    assert "does not exist" in sentence(str(tmp_path / "folder.yaml"))


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert load(str(tmp_path / "empty.yaml"), []) == RunSettings()


def test_a_method_without_a_name_is_safe() -> None:
    assert validate({"method": {"gamma": 2.0}}).method.name == "safe"
