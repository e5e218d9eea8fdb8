"""Settings: presets that hold, words on top of them, and one sentence with the nearest right word
when one is wrong.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from safecl.configure.sentences import keys
from safecl.configure.words import nested
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings, load, presets, validate
from safecl.methods.catalog import method_settings
from safecl.pet.settings import PETS
from safecl.settings import flatten, idle, inside
from safecl.streams.datasets import DATASETS as FACTS
from safecl.streams.settings import DATASETS, SHUFFLED
from tests.conftest import raises, tells


def refused(source: str, *words: str) -> SafeclError:
    """What a user is told; always one line that ends like a sentence."""
    with pytest.raises(SafeclError) as caught:
        load(source, list(words))
    text = str(caught.value)
    assert "\n" not in text and text.endswith((".", "?", "…"))
    return caught.value


# -- presets ---------------------------------------------------------------------------------------


def test_every_preset_is_valid() -> None:
    assert {"safe", "paper", "published", "ranpac", "finetune"} <= set(presets())
    for name in presets():
        assert load(name, []).method.name in method_settings()


def test_default_is_safe_with_our_defaults() -> None:
    assert load("safe", []) == RunSettings(preset="safe")


@pytest.mark.parametrize("name", presets())
def test_settings_survive_being_written_and_read(name: str, tmp_path: Path) -> None:
    settings = load(name, ["seed=3", "stream=folder:/some/place"])
    file = tmp_path / "resolved.yaml"
    file.write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    assert load(str(file), []) == settings


def test_settings_cannot_be_changed_behind_ones_back() -> None:
    with pytest.raises(Exception, match="frozen"):
        load("safe", []).train.epochs = 3  # type: ignore[misc]


# -- words -----------------------------------------------------------------------------------------


def test_words_go_on_top_and_leave_the_rest_alone() -> None:
    plain = load("paper", [])
    changed = load(
        "paper",
        [
            "train.epochs=7",
            "seed=5",
            "method.answer.gamma=2.5",
            "ridge.betas=[1e-3, 1]",
            "method.guide.teacher=ptm",
        ],
    )
    assert (changed.train.epochs, changed.seed, changed.method.ridge.betas) == (7, 5, (1e-3, 1.0))
    expected = plain.model_dump()
    expected["train"]["epochs"], expected["seed"], expected["method"]["ridge"]["betas"] = (
        7,
        5,
        (1e-3, 1.0),
    )
    expected["method"]["answer"]["gamma"], expected["method"]["guide"]["teacher"] = 2.5, "ptm"
    assert changed.model_dump() == expected


@pytest.mark.parametrize(
    ("word", "group", "key", "value"),
    [
        ("stream=glyphs", "stream", "kind", "glyphs"),
        ("stream=folder:/data/my pictures", "stream", "path", "/data/my pictures"),
        ("stream=hf:user/name", "stream", "name", "user/name"),
        ("stream=CIFAR-100", "stream", "name", "cifar100"),
        (
            "backbone=vit_base_patch16_224.augreg_in21k",
            "backbone",
            "name",
            "vit_base_patch16_224.augreg_in21k",
        ),
        ("backbone=/weights/mine.npz", "backbone", "weights", "/weights/mine.npz"),
        ("method=ranpac", "method", "name", "ranpac"),
    ],
)
def test_a_bare_group_takes_its_short_form(word: str, group: str, key: str, value: str) -> None:
    assert getattr(getattr(load("safe", [word]), group), key) == value


@pytest.mark.parametrize(
    ("word", "value"), [("device=cpu", "cpu"), ("precision=bf16", "bf16"), ("seed=4", 4)]
)
def test_a_setting_outside_any_group_is_just_that(word: str, value: Any) -> None:
    assert getattr(load("safe", [word]), word.split("=")[0]) == value


def test_the_groups_of_a_method_need_no_method_in_front() -> None:
    short, long = (
        load("safe", [f"{front}pet=adapter", f"{front}pet.bottleneck=8", f"{front}ridge.size=7"])
        for front in ("", "method.")
    )
    assert short == long and short.pet == "adapter"
    assert (short.method.pet.bottleneck, short.method.ridge.size) == (8, 7)  # type: ignore[attr-defined]


def test_the_order_of_words_does_not_matter() -> None:
    words = ["stream=glyphs", "stream.classes=9", "pet=adapter", "pet.bottleneck=8", "method=safe"]
    words += ["method.answer.gamma=3"]
    settings = load("published", words)
    assert settings == load("published", words[::-1])
    assert (settings.stream.classes, settings.method.pet.bottleneck) == (9, 8)
    assert settings.method.model_dump()["answer"]["gamma"] == 3


def test_another_method_keeps_the_groups_that_it_has_too_and_nothing_else() -> None:
    demo, ranpac, finetune = (
        load("demo", words) for words in ([], ["method=ranpac"], ["method=finetune"])
    )
    assert demo.method.ridge == ranpac.method.ridge and ranpac.method.ridge.size == 1000  # type: ignore[attr-defined]
    assert demo.method.pet == ranpac.method.pet == finetune.method.pet  # type: ignore[attr-defined]
    assert demo.train == ranpac.train == finetune.train
    assert (demo.preset, ranpac.preset) == ("demo", "")  # it is another method's
    other = load("paper", ["method=ranpac"]).method.model_dump()
    assert other["scale"] == load("ranpac", []).method.model_dump()["scale"]


def test_a_preset_has_variants_for_some_streams_and_pets_and_words_go_on_top() -> None:
    plain = load("paper", [])
    cifar = load("paper", ["stream=cifar100"])
    assert (plain.pet, plain.backbone.name) == ("ssf", "vit_base_patch16_224.augreg_in21k_ft_in1k")
    assert (cifar.pet, cifar.backbone.name) == ("adapter", "vit_base_patch16_224.augreg_in21k")
    omni = load("paper", ["stream=omnibenchmark"])
    assert (omni.pet, omni.method.pet.rate) == ("vpt_deep", 1.0)  # type: ignore[attr-defined]  # one follows from the other
    assert load("paper", ["stream=cifar100", "pet=ssf"]).pet == "ssf"
    assert load("paper", ["pet=vpt_deep", "pet.rate=0.5"]).method.pet.rate == 0.5  # type: ignore[attr-defined]
    released = [
        load("published", words).method.model_dump()["answer"]["gamma"]
        for words in ([], ["stream=cifar100"])
    ]
    assert released == [100, 1]


def test_presets_that_promise_fidelity_name_their_backbone_and_compute_in_float32() -> None:
    for name in ("paper", "published", "ranpac-published"):
        settings = load(name, [])
        assert settings.precision == "fp32" and settings.backbone.name.startswith(
            "vit_base_patch16_224.augreg_in21k"
        )
        assert settings.backbone.normalisation == "none"
        ridge = settings.method.model_dump()["ridge"]
        assert (ridge["evidence"], ridge["size"]) == ("session", 10_000)
    assert load("ranpac-published", []).method.model_dump()["scale"] == 1.0
    ours = load("ranpac", [])
    safe = load("safe", [])
    assert ours.model_dump(exclude={"method", "preset"}) == safe.model_dump(
        exclude={"method", "preset"}
    )
    for field in ("pet", "ridge", "scale"):
        assert ours.method.model_dump()[field] == safe.method.model_dump()[field]


def test_null_is_no_value_and_the_word_none_a_word() -> None:
    settings = load("safe", ["method.guide.teacher=none", "pet=none", "train.later_clip=null"])
    assert settings.train.later_clip is None
    assert settings.method.model_dump()["guide"]["teacher"] == settings.pet == "none"


@given(st.integers(0, 2**32), st.floats(1e-6, 10), st.integers(1, 500))
def test_numbers_are_read_as_they_are_written(seed: int, rate: float, epochs: int) -> None:
    settings = load("safe", [f"seed={seed}", f"train.lr={rate!r}", f"train.epochs={epochs}"])
    assert (settings.seed, settings.train.lr, settings.train.epochs) == (seed, rate, epochs)


def test_every_key_is_known_by_its_dotted_name() -> None:
    known = keys(RunSettings)
    assert {
        "seed",
        "train.lr",
        "method.answer.gamma",
        "ridge.betas",
        "pet.kind",
        "backbone.weights",
    } <= set(known)
    assert "method.answer.gamma" not in keys(RunSettings, "ranpac") and "method.scale" in keys(
        RunSettings, "ranpac"
    )


# -- what can be wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("train.epoch=3", "'train.epochs'"),
        ("trian.epochs=3", "'train'"),
        ("sead=3", "'seed'"),
        ("method.gama=3", "'method.answer.gamma'"),
        ("method.lambda_cos=5", "'method.guide.lambda_cos'"),
        ("method.statistics=stale", "'method.answer.statistics'"),
        ("pet.bottelneck=3", "'pet.bottleneck'"),
        ("ridge.sice=3", "'ridge.size'"),
        ("stream.clases=3", "'stream.classes'"),
        ("train.epochs.x=3", "'train.epochs'"),
        ("seed.x=1", "'seed'"),
    ],
)
def test_a_misspelt_key_names_the_nearest(word: str, nearest: str) -> None:
    pet = ["pet=adapter"] if word.startswith("pet.") else []
    error = refused("safe", word, *pet)
    if word.startswith("stream."):
        tells(error, "stream.key.unknown", hint=f"did you mean {nearest}?")
    else:
        tells(error, "name.unknown.near", near=nearest.strip("'"))


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("pet=sff", "'ssf'"),
        ("pet.kind=adaptor", "'adapter'"),
        ("method.guide.teacher=slwo", "'slow'"),
        ("method.answer.temperature=lerned", "'learned'"),
        ("method=rampac", "'ranpac'"),
        ("method.name=rampac", "'ranpac'"),
        ("precision=fp23", "'fp32'"),
        ("stream.protocol=clas", "'class'"),
    ],
)
def test_a_misspelt_value_names_the_nearest(word: str, nearest: str) -> None:
    tells(refused("safe", word), "name.unknown.near", near=nearest.strip("'"))


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("train.epochs=many", "train.epochs"),
        ("train.epochs=0", "train.epochs"),
        ("train.epochs=1.5", "train.epochs"),
        ("train.lr=-1", "train.lr"),
        ("train.lr=.inf", "train.lr"),
        ("method.answer.gamma=.nan", "method.answer.gamma"),
        ("method.answer.temperature=-3", "method.answer.temperature"),
        ("ridge.betas=[1, -1]", "ridge.betas"),
        ("ridge.betas=[]", "ridge.betas"),
        ("ridge.size=big", "ridge.size"),
        ("seed=-1", "seed"),
        ("seed=", "seed"),
        ("stream=", "stream"),
        ("stream.train=none", "stream.train"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_key(word: str, key: str) -> None:
    code = "setting.word.no-value" if word.endswith("=") else "setting.value.wrong"
    tells(refused("safe", word), code, key=key)


def test_a_list_without_brackets_is_shown_with_them() -> None:
    error = refused("safe", "stream.kind=folder", "stream.path=x", "stream.domains=a,b")
    reason = re.compile(re.escape("for example stream.domains=[a,b]"))
    tells(error, "setting.value.wrong", key="stream.domains", reason=reason)


@pytest.mark.parametrize("word", ["train=5", "pet=5", "pet=null", "stream=[a, b]", "ridge=hello"])
def test_a_group_that_is_given_a_value_says_what_it_holds(word: str) -> None:
    group = word.split("=")[0]
    error = refused("safe", word)
    tells(error, "setting.group", key=group, inner=re.compile(f"^{re.escape(group)}."))


@pytest.mark.parametrize("word", ["method=[a]", "method=5", "method.name=[a]", "method={}"])
def test_a_method_that_is_no_name_is_refused(word: str) -> None:
    if word == "method={}":
        assert load("ranpac", [word]).method.name == "ranpac"
    else:
        error = refused("safe", word)
        if error.code == "name.unknown":
            assert {"finetune", "ranpac", "safe"} <= {*re.findall(r"[\w-]+", error.fields["known"])}
        else:
            tells(error, "name.unknown.near")


@pytest.mark.parametrize(
    ("source", "word", "code", "fields"),
    [
        (
            "simplecil",
            "pet=adapter",
            "setting.group.not-of-method",
            {"title": "SimpleCIL", "group": "pet", "key": "pet"},
        ),
        (
            "finetune",
            "ridge.size=100",
            "setting.group.not-of-method",
            {"title": "Fine-tuning", "group": "ridge", "key": "ridge.size"},
        ),
        (
            "simplecil",
            "train.epochs=3",
            "setting.no-training",
            {"title": "SimpleCIL", "key": "train.epochs"},
        ),
        (
            "safe",
            "pet.tokens=3",
            "setting.not-of-chosen",
            {"key": "pet.tokens", "owner": re.compile("^the pet that is chosen")},
        ),
        (
            "safe",
            "stream.unreadable=skip",
            "stream.key.unknown",
            {"name": "unreadable", "kind": "glyphs"},
        ),
        (
            "ranpac",
            "method.guide.teacher=slow",
            "setting.not-of-chosen",
            {"key": "method.guide", "owner": re.compile("^RanPAC")},
        ),
        (
            "safe",
            "method.answer.gamma=3",
            "setting.idle",
            {
                "other": "method.answer.aggregation",
                "value": "errors",
                "setting": re.compile("^method"),
            },
        ),
        (
            "ranpac-no-projection",
            "ridge.size=300",
            "setting.idle",
            {
                "other": "method.ridge.project",
                "value": "false",
                "setting": re.compile("^method\\."),
            },
        ),
        (
            "paper",
            "method.guide={teacher: none, lambda_cos: 3}",
            "setting.idle",
            {"other": "method.guide.teacher", "value": "none"},
        ),
        (
            "safe",
            "train.milestones=[3]",
            "setting.idle",
            {"other": "train.schedule", "value": "cosine", "setting": "train.schedule=steps"},
        ),
        (
            "safe",
            "train.decay=0.5",
            "setting.idle",
            {"other": "train.schedule", "value": "cosine", "setting": "train.schedule=steps"},
        ),
        (
            "safe train.schedule=steps",
            "train.decay=0.5",
            "setting.idle",
            {"value": "[]", "setting": "1 or more of train.milestones"},
        ),
        (
            "safe train.schedule=steps",
            "train.milestones=[20,30]",
            "setting.milestones.never",
            {"milestones": "[20, 30]", "epochs": "20"},
        ),
        (
            "safe train.optimiser=adam",
            "train.momentum=0.5",
            "setting.idle",
            {
                "other": "train.optimiser",
                "value": "adam",
                "setting": re.compile("^train\\.optimiser="),
            },
        ),
        (
            "layup",
            "train.momentum=0.5",
            "setting.idle",
            {"other": "train.optimiser", "value": "adamw", "setting": "train.optimiser=sgd"},
        ),
        (
            "safe train.schedule=constant",
            "train.every=epoch",
            "setting.idle",
            {
                "other": "train.schedule",
                "value": "constant",
                "setting": re.compile("^train\\.sche"),
            },
        ),
        (
            "safe train.schedule=constant",
            "train.later_horizon=9",
            "setting.idle",
            {"other": "train.schedule", "value": "constant"},
        ),
        (
            "safe train.schedule=quarter_cosine",
            "train.later_horizon=9",
            "setting.idle",
            {"other": "train.schedule", "value": "quarter_cosine"},
        ),
        (
            "ranpac",
            "train.later_epochs=3",
            "setting.no-later-training",
            {"title": "RanPAC", "key": "train.later_epochs"},
        ),
        (
            "joint",
            "train.later_clip=3",
            "setting.no-later-training",
            {"title": "Joint training", "key": "train.later_clip"},
        ),
        (
            "joint-linear",
            "train.clip=3",
            "setting.no-training",
            {"title": "Joint training", "why": " without a PET", "key": "train.clip"},
        ),
        (
            "ease pet=none",
            "method.scale=3",
            "setting.idle",
            {
                "other": "method.pet.kind",
                "value": "none",
                "setting": re.compile("^method\\.pet\\.kind="),
            },
        ),
        (
            "simplecil stream=cub",
            "stream.flip=0",
            "setting.no-training",
            {"title": "SimpleCIL", "key": "stream.flip"},
        ),
        (
            "ranpac-no-pet stream=cub",
            "stream.ratio=[1,2]",
            "setting.no-training",
            {"title": "RanPAC", "why": " without a PET", "key": re.compile("^stream\\.ratio")},
        ),
        (
            "safe stream=vtab",
            "stream.order_seed=3",
            "setting.idle.bare",
            {"other": "stream.name", "value": "vtab", "key": "stream.order_seed"},
        ),
        (
            "safe stream=folder:x stream.order=[a]",
            "stream.order_seed=3",
            "setting.idle",
            {"other": "stream.order", "value": "[a]"},
        ),
        (
            "safe stream=folder:x stream.protocol=domain",
            "stream.order_seed=3",
            "setting.idle",
            {"other": "stream.protocol", "value": "domain"},
        ),
        (
            "safe stream=folder:x stream.test_fraction=0",
            "stream.split_seed=3",
            "setting.idle",
            {"setting": "stream.test_fraction above 0"},
        ),
        (
            "safe method.guide.lambda_cos=0",
            "method.guide.cos_reduction=sum",
            "setting.idle",
            {"setting": "method.guide.lambda_cos above 0"},
        ),
        (
            "published",
            "method.guide.cross_pooling=concat",
            "setting.idle",
            {"other": "method.guide.lambda_cross", "value": "0.0"},
        ),
        (
            "safe ridge.betas=[1]",
            "ridge.evidence=session",
            "setting.idle",
            {
                "other": "method.ridge.betas",
                "value": "[1.0]",
                "setting": re.compile("^2\\ or\\ more\\ of\\ method\\."),
            },
        ),
        (
            "finetune method.head=linear",
            "method.scale=3",
            "setting.idle",
            {"other": "method.head", "value": "linear", "setting": re.compile("^method\\.")},
        ),
        (
            "dualprompt method.g_blocks=[]",
            "method.g_length=3",
            "setting.idle",
            {"setting": "1 or more of method.g_blocks"},
        ),
        (
            "rsiat method.pairs=0",
            "method.pairs_far=3",
            "setting.idle",
            {"other": "method.pairs", "value": "0.0", "setting": "method.pairs above 0"},
        ),
        (
            "rsiat method.residual=0",
            "method.map_lr=3",
            "setting.idle",
            {"setting": "method.residual above 0"},
        ),
        (
            "slca pet=none",
            "method.slow_rate=3",
            "setting.idle",
            {"other": "method.pet.kind", "value": "none"},
        ),
    ],
)
def test_a_setting_that_means_nothing_here_is_an_error(
    source: str, word: str, code: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    """As a word, from a program, and in a file of one's own."""
    preset, *beside = source.split()
    tells(refused(preset, *beside, word), code, **fields)
    key, _, value = word.partition("=")
    with raises(code, **fields):
        load(preset, beside, {key: yaml.safe_load(value)})
    if preset in method_settings():
        given = {
            "method.name": preset,
            **{key: yaml.safe_load(v) for key, _, v in (w.partition("=") for w in beside)},
        }
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump(nested({**given, key: yaml.safe_load(value)})))
        tells(refused(str(file)), code, **fields)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "safe",
            [
                "train.later_epochs=3",
                "train.later_clip=2",
                "train.later_horizon=9",
                "stream.sessions=1",
            ],
        ),
        ("safe", ["train.schedule=steps", "train.milestones=[3]", "train.decay=0.5"]),
        ("slca", ["train.schedule=cosine", "train.milestones=[]"]),
        ("slca", ["train.epochs=2"]),  # the preset's milestone is never reached
        ("safe", ["train.schedule=steps", "train.milestones=[25]", "train.later_epochs=30"]),
        # the preset's own milestones are not the user's
        (
            "slca",
            ["train.optimiser=adam", "train.schedule=constant"],
        ),
        ("published", ["method.guide.teacher=none"]),
        ("ranpac", ["pet=none"]),
        ("joint-linear", ["train.save_seconds=9", "train.graphs=false"]),
        ("ranpac-no-pet", ["stream=cub", "stream.flip=0"]),  # mirror images may be learned
        ("safe", ["stream=vtab", "stream.order_seed=1993"]),
        ("safe", ["stream=folder:x", "stream.order_seed=3"]),
    ],
)
def test_a_setting_that_may_act_is_taken(source: str, words: list[str]) -> None:
    load(source, words)


def test_what_a_file_says_is_not_held_against_a_word_that_chooses_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train: {schedule: steps, milestones: [3], epochs: 5}\n")
    assert load(str(file), ["train.schedule=cosine"]).train.schedule == "cosine"
    assert load(str(file), ["method=simplecil"]).method.name == "simplecil"
    with raises("setting.idle", key="train.momentum"):
        load(str(file), ["train.optimiser=adam", "train.momentum=0.5"])


# What presets hold that means nothing by itself: values of papers, for what one chooses besides.
UNUSED = {
    "ease": {"train.later_clip"},  # with OmniBenchmark, where it is APER
    "joint-linear": {"train.epochs", "train.batch_size", "train.schedule", "train.guard"},
    # acts with the lambda_cross of the other released configuration
    "published": {"method.guide.cross_pooling"},
    "slca": {"train.every"},
}


@pytest.mark.parametrize("name", presets())
def test_a_preset_can_be_had_with_every_stream_and_pet_and_holds_nothing_idle(name: str) -> None:
    for stream in ("glyphs", *DATASETS):
        own = load(name, [f"stream={stream}"])
        values = flatten(own.model_dump())
        found = [
            one.key for one in idle(own, values) if inside(own, one.key) != default_of(own, one.key)
        ]
        assert {*found} <= UNUSED.get(name, set()), stream
        for pet in PETS if own.pet != "none" or "pet" in type(own.method).model_fields else ():
            assert load(name, [f"stream={stream}", f"pet={pet}"]).pet == pet


def test_the_datasets_whose_classes_have_an_order_are_known_without_their_facts() -> None:
    assert [name for name in DATASETS if FACTS[name].shuffled] == SHUFFLED


def default_of(settings: RunSettings, key: str) -> Any:
    group, _, name = key.rpartition(".")
    return type(inside(settings, group)).model_fields[name].default


def test_a_setting_of_another_method_is_not_suggested() -> None:
    error = refused("ranpac", "method.guide.teacher=slow")
    tells(error, "setting.not-of-chosen", key="method.guide")


@pytest.mark.parametrize("word", ["seed", "=3", "--seed", "train.epochs:3", ""])
def test_what_is_not_key_and_value_is_shown_the_form(word: str) -> None:
    tells(refused("safe", word), "setting.word.form", word=word)


@pytest.mark.parametrize("word", ["seed=[", "seed={a", "pet='ssf", "train.lr=@x"])
def test_a_value_that_cannot_be_read_is_a_sentence(word: str) -> None:
    tells(refused("safe", word), "setting.word.unreadable", word=word)


def test_an_unknown_preset_names_the_nearest() -> None:
    tells(refused("sfae"), "name.unknown.near", near="safe")
    tells(refused("publised"), "name.unknown.near", near="published")
    tells(refused("xyzzy"), "name.unknown", known=re.compile("paper"))


@pytest.mark.parametrize(
    "text",
    [
        b"method: safe\n: :\n -",
        b"- a\n- b",
        b"just words",
        b"\xff\xfe\x00",
        b"1: 2",
        b"method: {gama: 1}",
        b"train:",
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_name(text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(text)
    told = str(refused(str(file)))
    assert "mine.yaml" in told or "'method.answer.gamma'" in told
    assert not text.startswith(b"method: safe") or "in line 2" in told


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    tells(refused(str(tmp_path / "none.yaml")), "config.missing")
    (tmp_path / "folder.yaml").mkdir()
    tells(refused(str(tmp_path / "folder.yaml")), "config.missing")


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert load(str(tmp_path / "empty.yaml"), []) == RunSettings(preset="empty")


def test_a_method_without_a_name_is_safe() -> None:
    assert validate({"method": {"answer": {"gamma": 2.0}}}).method.name == "safe"


def test_a_word_inside_a_group_is_of_the_kind_that_a_value_chooses() -> None:
    assert load("safe", ["method.scale=3"], {"method": "ranpac"}).method.scale == 3  # type: ignore[attr-defined]
    assert load("safe", ["stream=glyphs"], {"stream": "folder:x"}).stream.kind == "folder"
    settings = load("safe", ["pet=ssf"], {"pet": "adapter", "pet.bottleneck": 8})
    assert settings.method.pet.bottleneck == 8  # type: ignore[attr-defined]
    for words in (["pet=adapter", "pet.bottleneck=8"], ["pet.bottleneck=8"]):
        with raises("setting.not-of-chosen", key="pet.bottleneck", owner="the pet that is chosen"):
            load("safe", words, {"pet": "ssf"})


def test_a_files_settings_without_a_method_are_of_the_method_that_is_chosen(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("method: {scale: 3}\n")
    assert load(str(file), ["method=ranpac"]).method.scale == 3  # type: ignore[attr-defined]
    file.write_text("method: {guide: {lambda_cos: 3}}\n")
    with raises("setting.not-of-chosen", key=re.compile(r"^method\.guide")):
        load(str(file), ["method=ranpac"])
