"""Labels are put right: compared, tensor by tensor, with a model that never had the wrong ones."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from safecl.classifier.answers.calibrate import recalibrate
from safecl.classifier.answers.card import model_card
from safecl.classifier.answers.tables import advice
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.modelfile.history import counts
from safecl.engine.fit import Trainer
from safecl.errors import SafeclError
from safecl.learner import Learner
from tests.conftest import raises

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]
PLAIN = {"layers": 1, "patches": False, "mirror": False}
BETAS = {
    "method.ridge": {
        "size": 60,
        "betas": (0.03, 0.1, 0.3),
        "layers": 2,
        "patches": False,
        "mirror": True,
    }
}
TUNING = (
    "slow.",
    "fast.",
    "learner.",
    "adapted.",
    "w_fast.",
    "following.map.",
    "share.",
    "new_pictures.",
    "judged.",
    "learners.",
)


@pytest.fixture(autouse=True)
def tuned_without_labels(monkeypatch: pytest.MonkeyPatch, untuned: None) -> None:
    """Every phase moves the networks in its module, whatever the labels are: so the tuning of two
    models is the same where labels differ, and what differs else has its cause in the labels.
    """

    def fit(self: Trainer, name: str, module: torch.nn.Module, *_: Any, **__: Any) -> None:
        random = torch.Generator().manual_seed(self.session + len(name))
        for learner in module.modules():
            for parameter in learner.pet.parameters() if isinstance(learner, Learner) else ():
                parameter.data += 0.1 * torch.randn(parameter.shape, generator=random)

    monkeypatch.setattr(Trainer, "__call__", fit)


def state_of(model: ContinualClassifier, tuned: ContinualClassifier) -> dict[str, torch.Tensor]:
    """All that its method has, rows and columns of classes in the order of ``classes_``.

    With the map between the learners, and the classes' offsets from it, of ``tuned``: as a tuning,
    they have their own pictures, and stay.
    """
    fitted = model._fitted
    size = len(model.classes_)
    places = [fitted.classes.index(label) for label in model.classes_]
    method, other = (
        each._fitted.method(model._backbone(), learning=True) for each in (model, tuned)
    )
    if getattr(method, "following", None) is not None:
        method.following.map.load_state_dict(other.following.map.state_dict())
        theirs = [tuned._fitted.classes.index(label) for label in fitted.classes]
        method.following.kept.offsets = other.following.kept.offsets[theirs]
        method.refresh()
    found = method.state_dict()
    for name, value in found.items():
        if value.ndim and name.endswith(
            (".sums", ".counts", ".means", ".remainders", ".offsets", "weight", "prototypes")
        ):
            dim = 1 if "statistics" in name or name.startswith(("ridge", "joint")) else 0
            found[name] = (
                value.index_select(dim, torch.tensor(places)) if value.shape[dim] == size else value
            )
    return found


def check_same(
    found: ContinualClassifier,
    wanted: ContinualClassifier,
    rows: bool = True,
    evidence: bool = True,
    sessions: bool = True,
) -> None:
    """Equal to 1e-5 of the largest value in all that is no tuning; weights, which are solved for,
    to 1e-3.

    ``rows``: what is kept of single pictures stands in the same order; ``evidence``: also that for
    β; ``sessions``: the same steps brought the pictures.
    """
    ours = state_of(found, found)
    theirs = state_of(wanted, found)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if (
            name.startswith((*TUNING, "_extra_state"))
            or name.endswith("remainders")
            or (name.endswith(".errors") and not evidence)
        ):
            continue
        solved = name.startswith(("ridge", "joint")) and name.endswith("weight")
        solved = solved or name.startswith("nearest.")  # by the root of a covariance
        # That of the fast head follows from points drawn by the root of a covariance, which
        # magnifies rounding.
        near = (
            5e-3
            if name == "ridge_fast.weight"
            else 1e-3
            if solved
            else 1e-4
            if name.endswith("scatter")
            else 1e-5
        )
        assert ours[name].shape == value.shape, name
        apart = (ours[name].double() - value.double()).abs().max() if value.numel() else 0
        assert apart <= near * max(float(value.abs().max()), 1e-3) if value.numel() else True, (
            name,
            float(apart),
        )
    a = found._fitted
    b = wanted._fitted
    assert counts(a.header) == counts(b.header)
    said = [
        [
            [entry[key] for key in ("classes", "new")]
            for entry in m.header["history"]
            if entry["classes"]
        ]
        for m in (a, b)
    ]
    assert said[0] == said[1] or not sessions
    for key, ours_, theirs_ in (
        ("kept", a.state.kept, b.state.kept),
        ("seen", a.state.seen, b.state.seen),
    ):
        assert ours_.keys() == theirs_.keys()
        for name in ours_ if rows else ():
            if name in ("targets", "classes"):
                assert [a.classes[c] for c in ours_[name]] == [
                    b.classes[c] for c in theirs_[name]
                ], key
            else:
                assert torch.allclose(ours_[name].double(), theirs_[name].double(), atol=1e-3), (
                    key,
                    name,
                )
    old, new = (
        [one for added in s.records.values() for one in added if not one.taken]
        for s in (a.state, b.state)
    )
    for one, other in zip(old, new, strict=True) if rows else ():
        assert torch.allclose(one.values, other.values, atol=1e-5)
        assert [a.classes[c] for c in one.targets] == [b.classes[c] for c in other.targets]
    if b.header["calibration"]:
        assert a.header["calibration"]["pictures"] == b.header["calibration"]["pictures"]
        if "following.map.matrix" not in a.state.tensors or len(counts(a.header)) < 4:
            # A session judges its own pictures by the fast learner's features, a correction by
            # those of the map.
            method = b.method(wanted._backbone(), learning=True)
            method.refresh()
            again = recalibrate(method, b.state.kept, b.state.seen)
            assert again is not None
            scores = [
                sorted(s for some in c["scores"] for s in some)
                for c in (a.header["calibration"], again)
            ]
            # in another order, other pictures are left out together
            assert np.allclose(*scores, atol=1e-2 if rows else 5e-2)


METHODS: dict[str, dict[str, Any]] = {
    "safe": {},
    "safe stale": {"method.answer.statistics": "stale"},
    "safe concat": {
        "method.answer.statistics": "stale",
        "method.answer.aggregation": "concat",
        "method.ridge": {"size": 60, "betas": (0.01,)},  # which reads the last CLS token alone
    },
    "safe ptm": {"method.guide.teacher": "ptm"},
    "safe untuned": {"beyond": 1},
    "ranpac": {},
    "ranpac flat": {"method.ridge": {"project": False, "betas": (0.03, 0.1, 0.3), **PLAIN}},
    "simplecil": {},
    "aper": {},
    **{
        f"safe {kind}": {"method.pet": {"kind": kind}}
        for kind in ("adapter", "lora", "vpt_deep", "prefix")
    },
}
OFTEN = [
    "safe-statistics",
    "safe untuned-statistics",
    "ranpac-features",
    "simplecil-statistics",
    "aper-statistics",
]
CASES = [
    pytest.param(
        kind,
        memory,
        id=f"{kind}-{memory}",
        marks=() if f"{kind}-{memory}" in OFTEN else pytest.mark.slow,
    )
    for kind in METHODS
    for memory in ("statistics", "features")
]


APART = {"method.ridge": {**BETAS["method.ridge"], "patches": True, "blocks": "apart"}}


@pytest.mark.parametrize(
    ("kind", "memory"), [*CASES, pytest.param("safe apart", "features", id="safe apart-features")]
)
def test_correcting_labels_equals_never_having_made_the_mistakes(
    kind: str, memory: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    """After one session and after three, before and after a file, with pictures that move and that
    leave.
    """
    name = kind.partition(" ")[0]
    own = APART if kind == "safe apart" else METHODS[kind]
    settings = ({} if name in ("simplecil", "aper") else BETAS) | own
    if name == "safe":  # how much of a tuning is kept depends on the number of pictures
        settings = {"beyond": 0, **settings}
    models = [new_model(name, memory=memory, settings=settings) for _ in range(2)]
    images, labels = lesson("abc", 6)
    wrong = ["b", *labels[1:12], "a", *labels[13:]]
    models[0].learn(images, wrong)
    models[1].learn(images, labels)
    models[0].correct(images[:1], "a")
    models[0].correct(images[12:13], label="c")
    check_same(*models)
    for model in models:
        model.learn(*lesson("de", seed=1))
    more, right = lesson("fa", seed=2)
    models[0].learn(more, ["d", "a", *right[2:]])
    models[1].learn(more[[*range(1, 5), *range(6, 10)]], right[1:5] + right[6:])
    models[0].save(tmp_path / "m.safecl")
    models[0] = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    models[0].correct(more[1:2], "f")
    models[0].correct(more[[0, 5]], remove=True)
    check_same(*models)


@pytest.mark.parametrize(("memory", "keep"), [("statistics", 0), ("features", 0), ("features", 2)])
def test_pictures_of_sessions_that_are_part_of_the_gram_matrix_are_corrected(
    memory: str,
    keep: int,
    new_model: New,
    lesson: Lesson,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the features of the session are gone, the evidence for β is as it was."""
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", 0)
    models = [new_model("ranpac", memory=memory, keep=keep, settings=BETAS) for _ in range(2)]
    images, labels = lesson("abc", 6)
    models[0].learn(images, ["b", *labels[1:]])
    models[1].learn(images[:-1], labels[:-1])
    for model in models:
        model.learn(*lesson("de", seed=1))
        model.learn(*lesson("f", seed=2))
    models[0].save(tmp_path / "m.safecl")
    models[0] = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    assert models[0]._fitted.state.base
    models[0].correct(images[:1], "a")
    models[0].correct(images[-1:], remove=True)
    check_same(*models, evidence=memory == "features")
    assert keep or not any(
        one.taken for added in models[0]._fitted.state.records.values() for one in added
    )


def states(model: ContinualClassifier) -> dict[str, torch.Tensor]:
    fitted = model._fitted
    state = fitted.state
    found = fitted.method(model._backbone(), learning=True).state_dict()
    found |= {f"kept {k}": v for k, v in state.kept.items()} | {
        f"seen {k}": v for k, v in state.seen.items()
    }
    for session, added in state.records.items():
        found |= {
            f"{session} {i} {k}": v for i, one in enumerate(added) for k, v in one.table.items()
        }
    return found


def header(model: ContinualClassifier) -> dict[str, Any]:
    said = {key: model._fitted.header[key] for key in ("classes", "history", "calibration")}
    found: dict[str, Any] = json.loads(json.dumps(said))
    return found


ROLLED = [
    ("safe", "statistics", 512),
    ("ranpac", "features", 0),
    ("simplecil", "statistics", 512),
    ("safe untuned", "statistics", 512),
    pytest.param("safe", "statistics", 0, marks=pytest.mark.slow),
    pytest.param("ranpac", "features", 512, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "memory", "replayed"), ROLLED)
def test_a_correction_is_rolled_back_to_the_bit_and_the_sessions_before_it_too(
    name: str,
    memory: str,
    replayed: int,
    new_model: New,
    lesson: Lesson,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", replayed)
    settings = ({} if name == "simplecil" else BETAS) | METHODS[name]
    model = new_model(name.partition(" ")[0], memory=memory, keep=6, settings=settings)
    (images, labels), (more, theirs) = lesson("abc"), lesson("dea", seed=1)
    steps = [
        lambda: model.learn(images, labels),
        lambda: model.learn(more, theirs),
        lambda: model.correct(more[:2], "c"),
        lambda: model.correct(images[[0, 7]], remove=True),
        lambda: model.correct(more[5:10], "new"),  # all of e
        lambda: model.join("a", "c"),
        lambda: model.learn(*lesson("g", 3, seed=2)),
    ]
    past = []
    for number, do in enumerate(steps):
        do()
        past.append((states(model), header(model)))
        if number % 2:
            model.save(tmp_path / f"{number}.safecl")
            model = ContinualClassifier.load(tmp_path / f"{number}.safecl", device="cpu")
    assert [e["what"] for e in model.history_] == ["learn"] * 2 + ["correct"] * 3 + [
        "join",
        "learn",
    ]
    assert model.classes_.tolist() == ["a", "b", "d", "g", "new"]
    for wanted, said in past[-2::-1]:
        model.rollback()
        assert header(model) == said
        found = states(model)
        assert found.keys() == wanted.keys()
        assert not [key for key, value in wanted.items() if not torch.equal(found[key], value)]


def test_sessions_that_a_correction_has_changed_are_folded_only_with_it(
    new_model: New, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", 0)
    model, (images, labels) = new_model("ranpac", keep=2), lesson("abc")
    model.learn(images, labels)
    model.learn(*lesson("d", seed=1))
    wanted = states(model)
    model.correct(images[:1], remove=True)
    model.learn(*lesson("e", seed=2))
    model.rollback()
    model.rollback()
    assert all(torch.equal(value, wanted[key]) for key, value in states(model).items())
    model.correct(images[:1], remove=True)
    for number, classes in enumerate("efg"):
        model.learn(*lesson(classes, seed=number))
    assert len(model._fitted.state.chain) == 2 and model._fitted.state.base


def test_a_label_may_be_a_new_class_and_a_class_goes_with_its_last_picture(
    new_model: New, lesson: Lesson
) -> None:
    models = [new_model(settings=BETAS) for _ in range(2)]
    images, labels = lesson("abc", 5)
    models[0].learn(
        images, ["typo" if i == 4 else "a" if i > 9 else label for i, label in enumerate(labels)]
    )
    models[1].learn(images, labels)
    assert "No picture is left of typo" in models[0].correct(images[4:5], "a")
    models[0].correct(images[10:], "c")
    check_same(*models)
    assert models[0].classes_.tolist() == list("abc") and models[0].history_[0]["new"] == list(
        "abc"
    )
    for model in models:
        model.learn(*lesson("de", seed=1))
    assert models[0].predict_proba(images).shape == (15, 5)
    rows = models[0]._fitted.state.tensors["w_fast.weight"]
    assert len(rows) == 5 and rows.any(dim=1).all()


@pytest.mark.parametrize(("count", "label"), [(2, None), (3, None), (2, "c")])
def test_each_class_may_be_left_with_one_picture(
    count: int, label: str | None, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    model, (images, _) = new_model(settings=BETAS), lesson("b", count + 1)
    model.learn(images, ["a", *["b"] * count])
    model.correct(images[2:], label, remove=label is None)
    assert counts(model._fitted.header) == {"a": 1, "b": 1, **({"c": 1} if label else {})}
    model.save(tmp_path / "m.safecl")
    assert np.isfinite(
        ContinualClassifier.load(tmp_path / "m.safecl", device="cpu").predict_proba(images)
    ).all()


def test_what_cannot_be_corrected_is_refused_in_a_sentence(new_model: New, lesson: Lesson) -> None:
    model, (images, labels) = new_model("simplecil"), lesson("ab", 2)
    model.learn(images, labels)
    before = model._fitted
    new = lesson("c", 1)[0]
    spelling = re.compile("differ only in spelling")
    words = re.compile("use words or whole numbers")
    for refused, do in (
        (
            raises("correct.never-learned", count="1 picture was"),
            lambda: model.correct(new, remove=True),
        ),
        (raises("correct.never-learned"), lambda: model.split("a", new, "c")),
        (raises("correct.two-labels"), lambda: model.correct(images[[0, 0]], ["b", "c"])),
        (
            raises("pictures.labels.count", pictures=2, labels=3),
            lambda: model.correct(images[:2], ["b", "b", "a"]),
        ),
        (
            raises("pictures.label.type", remedy=words),
            lambda: model.correct(images[:2], ["b", 1.5]),
        ),
        (
            raises("correct.nothing", these="the picture was"),
            lambda: model.correct(images[:1], "a"),
        ),
        (raises("name.like-known", why=spelling), lambda: model.correct(images[:1], "B")),
        (raises("name.spaces", label=" x"), lambda: model.correct(images[:1], " x")),
        (raises("correct.all-removed"), lambda: model.correct(images, remove=True)),
        (raises("correct.one-of-two"), lambda: model.correct(images)),
        (
            raises("correct.learned-otherwise", label="a", others="b"),
            lambda: model.split("a", images[:3], "c"),
        ),
        (
            raises("correct.class.exists", label="b"),
            lambda: model.split("a", images[:1], "b"),
        ),
        (raises("correct.join.itself", label="a"), lambda: model.join("a", "a")),
        (raises("name.unknown", what="class", given="z"), lambda: model.join("a", "z")),
    ):
        with refused:
            do()
    assert model._fitted is before


@pytest.mark.parametrize("name", ["slca", "ssiat", "finetune", "lae", "l2p", "siprompts"])
def test_methods_that_train_on_labels_refuse_and_name_what_is_trained(
    name: str, new_model: New, lesson: Lesson
) -> None:
    model, (images, labels) = new_model(name), lesson("ab", 3)
    model.learn(images, labels)
    for change in (lambda: model.correct(images[:1], "b"), lambda: model.join("a", "b")):
        with raises("correct.trained-part"):
            change()
    with raises("learn.not-corrected", notes=re.compile("Skipped 1 picture .*trained on them")):
        model.learn(images[:1], ["b"])


def test_statistics_that_learners_share_are_not_corrected(new_model: New, lesson: Lesson) -> None:
    """The fast learner's head was solved before the slow one's features were added."""
    settings = {"beyond": 0, "method.answer.statistics": "shared"}
    model, (images, labels) = new_model(memory="features", settings=settings), lesson("abc", 4)
    model.learn(images, labels)
    for change in (lambda: model.correct(images[:1], "b"), lambda: model.join("a", "b")):
        with raises("correct.shared-statistics"):
            change()
    told = model.learn(np.concatenate([images[:1], lesson("d")[0]]), ["b", *"ddddd"])
    assert "Skipped 1 picture that was learned as another class" in told.warnings[0]


def test_an_error_while_a_correction_is_made_is_no_refusal(
    new_model: New, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise SafeclError("package.says", sentence="The disk is full.")

    model, (images, labels) = new_model("simplecil"), lesson("ab", 3)
    model.learn(images, labels)
    monkeypatch.setattr("safecl.classifier.edits.correct._features", fail)
    with raises("package.says", sentence="The disk is full."):
        model.learn(np.concatenate([images[:1], lesson("c", 1)[0]]), ["b", "c"])
    assert [entry["what"] for entry in model.history_] == ["learn"]


def test_a_learner_that_has_moved_on_is_said(new_model: New, lesson: Lesson) -> None:
    model = new_model(keep=0, settings={"method.answer.statistics": "stale"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safecl.classifier.modelfile.state.REPLAYED", 0)
        model.learn(*lesson("abc"))
        model.learn(*lesson("d", seed=1))
    with raises("correct.moved-on", learners="fast"):
        model.correct(lesson("abc")[0][:1], "b")
    model.correct(lesson("d", seed=1)[0][:1], "b")  # of the last session


def test_a_corrected_folder_is_learned_as_that(
    new_model: New, lesson: Lesson, write_folder: Any, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "photos", "abc", 4)
    right, wrong = (new_model("ranpac", settings=BETAS) for _ in range(2))
    first, second = sorted((folder / "a").iterdir())[:2]
    for path in (first, second):
        path.rename(folder / "b" / path.name)
    wrong.learn(folder)
    (folder / "b" / first.name).rename(first)
    told = wrong.learn(folder)
    assert told.pictures == 0 and told.skipped == 11 and told.epochs == 0
    assert "Corrected 1 picture that was learned as another class" in told.warnings[0]
    assert "safecl rollback takes that back" in told.warnings[0]
    assert [entry["what"] for entry in wrong.history_] == ["learn", "correct"]
    (folder / "b" / second.name).rename(second)
    right.learn(folder)
    write_folder(folder, "d", 3, seed=1)
    told = wrong.learn(folder)
    assert (
        told.pictures == 3
        and told.new == ["d"]
        and told.skipped == 11
        and "Corrected 1" in told.warnings[0]
    )
    assert "safecl rollback, twice, takes that back" in told.warnings[0]
    right.learn(folder)
    check_same(wrong, right, rows=False, evidence=False)  # files in another order
    assert [entry["what"] for entry in wrong.history_] == ["learn", "correct", "correct", "learn"]
    images = lesson("ab", 1, seed=7)[0]
    wrong.learn(images, ["a", "b"])
    assert "Corrected 2" in wrong.learn(images, ["b", "a"]).warnings[0]
    with raises("pictures.two-classes"):
        wrong.learn(images[[0, 0]], ["a", "c"])


def test_a_correction_by_hand_holds_against_the_folder_it_came_from(
    new_model: New, lesson: Lesson
) -> None:
    model, (images, labels) = new_model("simplecil"), lesson("abc", 4)
    model.learn(images, labels)
    model.correct(images[:1], "b")
    kept = (
        r"Kept the correction of 1 picture: picture 0 \(corrected to b, still in {}\); move the"
        r" file as well."
    )
    nothing, held = model.learn(images, labels).warnings
    assert nothing.startswith("There is nothing new in ") and re.fullmatch(kept.format("a"), held)
    more = lesson("d", 4, seed=1)
    told = model.learn(np.concatenate([images, more[0]]), [*labels, *more[1]])
    assert re.fullmatch(kept.format("a"), told.warnings[0]) and (told.pictures, told.skipped) == (
        4,
        12,
    )
    assert counts(model._fitted.header) == {"a": 3, "b": 5, "c": 4, "d": 4}
    model.rename("a", "alpha")
    assert re.fullmatch(kept.format("alpha"), model.learn(images[:1], ["alpha"]).warnings[1])
    # a third class is news
    assert "Corrected 1 picture" in model.learn(images[:1], ["c"]).warnings[0]
    assert counts(model._fitted.header)["c"] == 5
    for _ in range(3):  # that, the session, the correction by hand
        model.rollback()
    assert len(model.learn(images[:1], ["alpha"]).warnings) == 1
    model.correct(images[:1], "b")
    model.forget("alpha")
    assert [one["was"] for one in model.history_ if one["what"] == "correct"] == [[]]


def test_a_new_class_whose_name_is_near_to_another_is_asked_about(
    new_model: New, lesson: Lesson
) -> None:
    model, (images, labels) = new_model("simplecil"), lesson("abc", 4)
    names = {"a": "tabby", "b": "room 1", "c": "dog"}
    model.learn(images, [names[label] for label in labels])
    for label, near in {"tabyb": "tabby", "dgo": "dog", "room 2": None, "zebra": None}.items():
        said = model.correct(images[:1], label)
        asked = f"{label}: a new class. Did you mean {near!r}? safecl rollback takes this back."
        assert (
            asked in said
            if near
            else f"{label}: a new class." in said and "Did you mean" not in said
        )
        model.rollback()
    assert "Did you mean" not in model.correct(images[:1], "dog") + model.split(
        "tabby", images[1:2], "tabbi"
    )


def test_confusions_are_those_of_today(new_model: New, lesson: Lesson) -> None:
    images, labels = lesson("abc", 8)
    wrong = [*labels[:7], "b", *labels[8:]]  # the eighth picture shows an a
    models = [new_model("ranpac", keep=5) for _ in range(2)]
    for model, given in zip(models, (wrong, labels), strict=True):
        model.learn(images, given)
    model = models[0]

    def told() -> list[str]:
        return advice(model._fitted.header)

    assert told()[0] == "b is confused with a (1 of 9 pictures)."
    assert told()[0] in model_card(model._fitted.header)
    model.rename("a", "alpha")
    assert told()[0] == "b is confused with alpha (1 of 9 pictures)."
    model.rename("alpha", "a")
    model.learn(*lesson("d", 8, seed=1))
    model.correct(images[7:8], "a")
    models[1].learn(*lesson("d", 8, seed=1))
    found = [one._fitted.header["calibration"] for one in models]
    assert found[0]["confused"] == found[1]["confused"] == []
    model.rollback()
    assert told()[0] == "b is confused with a (1 of 9 pictures)."
    model.forget("a")
    assert not any("confused with a" in sentence for sentence in told())


def test_a_picture_learned_as_several_classes_becomes_one(new_model: New, lesson: Lesson) -> None:
    models, (images, labels) = [new_model("simplecil") for _ in range(2)], lesson("abc", 4)
    models[0].learn(images, labels)
    models[0].learn(images[:1], ["c"], again=True)
    models[1].learn(images, ["b", *labels[1:]])
    models[1].learn(images[:1], ["b"], again=True)
    models[0].correct(images[:1], "b")
    check_same(*models)


@pytest.mark.parametrize("name", ["safe", "safe untuned", "ranpac", "simplecil"])
def test_joined_classes_are_as_one_that_was_never_two(
    name: str, new_model: New, lesson: Lesson
) -> None:
    settings, (name, *_) = ({} if name == "simplecil" else BETAS) | METHODS[name], name.split()
    models, (images, labels) = (
        [new_model(name, settings=settings) for _ in range(2)],
        lesson("abc", 4),
    )
    more, theirs = lesson("db", 4, seed=1)
    for model, one in zip(models, ("b", "a"), strict=True):
        model.learn(images, [one if label == "b" else label for label in labels])
        model.learn(more, [one if label == "b" else label for label in theirs])
    said = models[0].join("a", "b")
    assert said.startswith("a and b are one class now: a.") and "No picture is left" not in said
    check_same(*models)
    models[0].join("c", "a")
    assert models[0].classes_.tolist() == ["c", "d"] and counts(models[0]._fitted.header) == {
        "c": 16,
        "d": 4,
    }


def test_a_split_class_is_as_two_from_the_start(new_model: New, lesson: Lesson) -> None:
    models, (images, labels) = (
        [new_model("ranpac", settings=BETAS) for _ in range(2)],
        lesson("abc", 4),
    )
    models[0].learn(images, labels)
    models[1].learn(images, [*labels[:10], "d", "d"])
    models[0].split("c", images[10:], "d")
    check_same(*models)
    assert models[0].history_[-1]["what"] == "split"
    told = [models[0].correct(images[:1], label) for label in ("b", "c", "b")]
    assert [
        "3 steps can be rolled back, so the oldest one no longer can" in said for said in told
    ] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("name", ["safe", "safe untuned", "simplecil"])
def test_a_corrected_model_is_merged_forgets_and_freezes_as_any_other(
    name: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    images, labels = lesson("abc", 4)
    own = lesson("d", 4, seed=1)
    theirs = lesson("e", 4, seed=2)
    merged = []
    for wrong in (True, False):
        base = new_model(name.partition(" ")[0], settings=METHODS[name])
        base.learn(images, labels)
        one, other = (ContinualClassifier.of(base._fitted, device="cpu") for _ in range(2))
        one.learn(own[0], ["a", *own[1][1:]] if wrong else own[1])
        other.learn(theirs[0], ["b", *theirs[1][1:]] if wrong else theirs[1])
        if wrong:
            one.correct(own[0][:1], "d")
            other.correct(theirs[0][:1], "e")
        merged.append((one.merged(other), one, other))
    both = merged[0][0]
    wanted = merged[1][0]
    check_same(both, wanted, rows=False)
    one, other = merged[0][1:]
    one.correct(images[:1], "b")
    assert (
        counts(one.merged(other)._fitted.header)["b"]
        == 5
        == counts(other.merged(one)._fitted.header)["b"]
    )
    other.correct(images[:1], "b")
    with raises("merge.corrected-twice"):
        one.merged(other)
    one.correct(images[1:2], "z")
    with raises("merge.corrected-in-one", steps=re.compile("1 picture moved to z"), classes="z"):
        one.merged(other)
    one.rollback()
    for model in (both, wanted):
        model.forget("a")
    check_same(both, wanted, rows=False)
    one.save(tmp_path / "f.safecl", frozen=True)
    frozen = ContinualClassifier.load(tmp_path / "f.safecl", device="cpu")
    assert np.array_equal(frozen.predict_proba(images), one.predict_proba(images))
    for change in (lambda: frozen.correct(images[:1], "a"), lambda: frozen.join("a", "b")):
        with raises("model.frozen"):
            change()


def test_a_renamed_class_keeps_its_name_when_a_correction_is_rolled_back(
    new_model: New, lesson: Lesson
) -> None:
    model, (images, labels) = new_model("simplecil"), lesson("abc", 3)
    model.learn(images, labels)
    model.correct(images[:3], "b")  # a goes
    model.rename("b", "bee")
    model.rename("c", "a")
    with raises("model.name-taken"):
        model.rollback()
    model.rename("a", "sea")
    model.rollback()
    assert model.classes_.tolist() == ["a", "bee", "sea"]
    assert counts(model._fitted.header) == {"a": 3, "bee": 3, "sea": 3}
    assert model.history_[0]["new"] == ["a", "bee", "sea"]


def test_pictures_beyond_those_that_are_kept_to_calibrate_by_are_kept_where_there_are_few(
    new_model: New, lesson: Lesson
) -> None:
    model, (images, labels) = new_model("simplecil"), lesson("ab", 24)
    model.learn(images, labels)
    assert len(model._fitted.state.kept["targets"]) == 40
    model.correct(images[22:24], "c")
    kept = model._fitted.state.kept
    assert (
        kept["targets"].tolist().count(2) == 2 and len({len(rows) for rows in kept.values()}) == 1
    )
    model.rollback()
    assert len(model._fitted.state.kept["targets"]) == 40


@pytest.mark.parametrize(("kind", "memory"), CASES)
def test_pictures_that_were_never_learned_are_added_as_by_a_session_without_tuning(
    kind: str, memory: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    """Of known and of new classes, before and after a file: as a session, where that tunes nothing;
    else as a part of the session before.
    """
    name = kind.partition(" ")[0]
    own = METHODS[kind]
    settings = (
        {}
        if name in ("simplecil", "aper")
        else {"method.ridge": {"size": 60, "betas": (0.1,), **PLAIN}} | own
    )
    if name == "safe":
        settings = {"beyond": 0, **settings}
    models = [new_model(name, memory=memory, settings=settings) for _ in range(2)]
    # More pictures than a feature has numbers, and classes in the same order: points are drawn
    # class by class.
    first, (more, right) = lesson("abc", 12), lesson("xaz", 2, seed=3)
    for model in models:
        model.learn(*first)
    if name == "safe":
        first = lesson("gh", 3, seed=4)
        models[0].learn(*first)
        models[1].learn(np.concatenate([first[0], more]), first[1] + right)
    else:
        models[1].learn(more, right)
    models[0].save(tmp_path / "m.safecl")
    models[0] = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    said = models[0].correct(more, right)
    assert said.startswith("Added 6 pictures to a, x, z.")
    step = models[0].history_[-1]
    assert (step["what"], step["new"]) == ("correct", ["x", "z"])
    assert step["classes"] == [["a", 2], ["x", 2], ["z", 2]] and step["touched"] == []
    check_same(*models, rows=name != "safe", evidence=name != "safe", sessions=name != "safe")
    for model in models:
        model.learn(*lesson("ef", seed=1))
    models[0].correct(more[[0, 2]], ["a", "x"])  # they are learned pictures now
    models[0].correct(more[[0, 2]], ["x", "a"])
    models[0].correct(more[1:2], "n")
    models[1].correct(more[1:2], "n")
    check_same(*models, rows=name != "safe", evidence=name != "safe", sessions=name != "safe")


def test_added_pictures_are_rolled_back_merged_forgotten_split_and_joined_as_learned_ones(
    new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    images, labels = lesson("abc", 6)
    more, own = lesson("dab", 2, seed=3)
    other = lesson("ef", 3, seed=4)
    models = []
    for adds in (True, False):
        base = new_model("ranpac", settings=BETAS, keep=6)
        base.learn(images, labels)
        one, two = (ContinualClassifier.of(base._fitted, device="cpu") for _ in range(2))
        past = states(one), header(one)
        if adds:
            said = one.correct(np.concatenate([more, images[:2]]), [*own, "c", None])
            assert said.startswith(
                "Added 6 pictures to a, b, d. Moved 1 picture to c, learned before: 1 as a. "
                "Removed 1 picture, learned before: 1 as a."
            )
            assert (
                one.history_[-1]["name"]
                == "6 pictures added to a, b, d, 1 picture moved to c, 1 picture removed"
            )
            one.save(tmp_path / "m.safecl")
            one = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
            one.rollback()
            assert header(one) == past[1]
            found = states(one)
            assert found.keys() == past[0].keys() and all(
                torch.equal(found[key], past[0][key]) for key in found
            )
            one.correct(more, own)
            assert one.learn(more, own).warnings[0].startswith("There is nothing new in ")
            two.correct(*other)
        else:
            one.learn(more, own)
            two.learn(*other)
        both = two.merged(one)
        models.append((one, both))
    for model in models[0][1], models[1][1]:
        model.forget("e")
    check_same(models[0][1], models[1][1])
    for one, _ in models:
        one.split("d", more[:1], "g")
        one.join("a", "b")
        one.forget("c")
        one.save(tmp_path / "f.safecl", force=True)
    check_same(models[0][0], models[1][0])
    assert counts(models[0][0]._fitted.header) == {"a": 16, "d": 1, "g": 1}


def test_a_correction_that_added_and_removed_pictures_is_itself_corrected(
    new_model: New, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", 0)
    (images, labels), (more, _) = lesson("abcd"), lesson("a", seed=8)
    models = [new_model("ranpac", memory="features", keep=1) for _ in range(2)]
    for model, rows in zip(models, (range(20), range(5, 20)), strict=True):
        model.learn(images[rows], [labels[i] for i in rows])
        for number, classes in enumerate(("ef", "g")):
            model.learn(*lesson(classes, seed=number))
    models[0].correct(np.concatenate([more, images[:1]]), [*"aaaaa", None])
    models[0].correct(more[-1:], "b")
    assert "its 8 pictures have left the sums over all classes" in models[0].forget("a")
    models[1].correct(more[-1:], "b")
    check_same(*models, rows=False, evidence=False)


def test_a_class_that_begins_with_one_picture_is_an_answer_and_says_that_it_is_not_judged(
    new_model: New, lesson: Lesson
) -> None:
    model, (images, labels) = new_model(), lesson("abc", 8)
    model.learn(images, labels)
    strange = lesson("z", 1)[0]
    said = model.correct(strange, "z")
    assert "Added 1 picture to z." in said and "The tuning of the network stays" in said
    assert "Leave-one-out accuracy" in said and "has no leave-one-out accuracy: z." in said
    assert (
        model.predict(strange).tolist() == ["z"]
        and model._fitted.header["calibration"]["classes"][3][0] == 0
    )
    assert "no leave-one-out accuracy" not in model.correct(lesson("z", 2)[0][1:], "z")


def test_methods_that_train_on_labels_refuse_new_pictures_as_they_refuse_learned_ones(
    new_model: New, lesson: Lesson
) -> None:
    model, (images, labels) = new_model("finetune"), lesson("ab", 3)
    model.learn(images, labels)
    with raises("correct.trained-part"):
        model.correct(lesson("c", 1)[0], "a")
