"""A model learns session by session and answers; what was learned is kept to the bit."""

import copy
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.model import Model
from safecl.classifier.teach import model_of_run
from safecl.engine.run import run
from safecl.errors import SafeclError
from safecl.heads.left_out import LeftOut, one_of_each
from safecl.methods.catalog import make_method, method_settings
from safecl.streams.pictures.images import Transform
from safecl.streams.stream import Part, Stream
from tests.conftest import raises

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]


@pytest.mark.parametrize("name", method_settings())
def test_any_method_learns_new_classes_known_ones_and_both(
    name: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    quick = {"slca": {"method.align_epochs": 1, "method.align_samples": 4}}.get(name, {})
    model = new_model(name, settings=quick)
    model.learn(*lesson("ab"))
    before = model.predict_proba(lesson("ab")[0])
    model.learn(*lesson("c"))
    model.learn(*lesson("ad", seed=1))
    assert model.classes_.tolist() == ["a", "b", "c", "d"] and len(model.history_) == 3
    p = model.predict_proba(lesson("abcd")[0])
    assert p.shape == (20, 4) and np.allclose(p.sum(axis=1), 1, atol=1e-5)
    model.save(tmp_path / "m.safecl")
    again = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    assert (again.predict_proba(lesson("abcd")[0]) == p).all()
    again.rollback()
    again.rollback()
    assert (again.predict_proba(lesson("ab")[0]) == before).all() and again.classes_.tolist() == [
        "a",
        "b",
    ]
    with raises("rollback.one-session"):
        again.rollback()


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (
            {"keep": 20_000_000},
            partial(
                raises, "model.setting.too-large", key="keep", value="20000000", limit=10000000
            ),
        ),
        (
            {"settings": {"method.ridge.size": 70_000}},
            partial(
                raises,
                "model.setting.too-large",
                key="method.ridge.size",
                value="70000",
                limit=65536,
            ),
        ),
        (
            {"settings": {"train.batch_size": 1 << 40}},
            partial(
                raises, "model.setting.too-large", key="train.batch_size", value="1099511627776"
            ),
        ),
        (
            {"pet": "vpt_deep", "settings": {"method.pet.tokens": 9_000_000}},
            partial(raises, "model.setting.too-large", key="method.pet.tokens", value="9000000"),
        ),
    ],
)
def test_what_no_file_could_hold_is_refused_before_anything_is_learned(
    given: dict[str, Any],
    refused: Callable[[], Any],
    new_model: New,
    lesson: Lesson,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("safecl.classifier.teach.teach", None)
    model = new_model(**given)
    with refused():
        model.learn(*lesson("ab"))


def test_a_full_history_is_refused(
    taught: ContinualClassifier, monkeypatch: pytest.MonkeyPatch, lesson: Lesson
) -> None:
    model = copy.copy(taught)
    images = lesson("ab")[0]
    monkeypatch.setattr("safecl.classifier.modelfile.history.MAX_STEPS", 2)
    for change in (
        lambda: model.correct(images[:1], "b"),
        lambda: model.join("a", "b"),
        lambda: model.rename("a", "z"),
        lambda: model.forget("a"),
    ):
        with raises("model.history.full", most=2):
            change()
    assert model._fitted is taught._fitted


def test_an_empty_name_is_not_the_folder_that_one_stands_in(new_model: New) -> None:
    with raises("pictures.none-given"):
        new_model().learn("")


@pytest.mark.parametrize("where", ["weights", "statistics", "features"])
def test_a_session_after_which_a_number_is_not_finite_leaves_the_model_as_it_was(
    where: str, taught: ContinualClassifier, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safecl.classifier import teach

    model = copy.copy(taught)
    learn = teach.learn
    images = lesson("abcdef", 1, seed=3)[0]
    expected = model.predict_proba(images)

    def spoil(method: Any, *rest: Any) -> None:
        learn(method, *rest)
        if where != "features":
            name = {"weights": "ridge_slow.weight", "statistics": "ridge_slow.statistics.sums"}[
                where
            ]
            {**dict(method.named_buffers()), **dict(method.named_parameters())}[name].data.view(-1)[
                0
            ] = float("inf")

    monkeypatch.setattr(teach, "learn", spoil)
    if where == "features":  # too large for the half precision in which they are kept
        judging = type(model._snapshot().method.judging)
        keep = judging.keep
        monkeypatch.setattr(
            judging,
            "keep",
            lambda *a: {k: v * 1e6 for k, v in keep(*a).items()},
        )
    with raises("learn.diverged"):
        model.learn(*lesson("gh"))
    assert model.classes_.tolist() == list("abcdef") and len(model.history_) == 2
    assert (model.predict_proba(images) == expected).all()


@pytest.mark.parametrize("untuned", [False, True], indirect=True)
def test_a_model_taught_folder_by_folder_equals_the_run_over_the_stream(
    untuned: bool, new_model: New, lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, from file to file, with a Gram matrix and features that are added to it; so does
    a model of the run.

    With pilots the untuned backbone answers, too.
    """
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", 0)
    # sums are solved again to leave pictures out
    monkeypatch.setattr("safecl.heads.left_out.MIN_LEFT_OUT_BETA", 1.0)
    sessions = ["abcd", "ef", "ag"]
    first = new_model(epochs=2, settings={"beyond": untuned / 2})

    def given(number: int) -> tuple[Any, Any]:
        images, labels = lesson(sessions[number], seed=number)
        # one picture that cannot be left out
        return (images[:6], labels[:6]) if number == 2 else (images, labels)

    for number in range(len(sessions)):
        path = tmp_path / "m.safecl"
        model = ContinualClassifier.load(path, device="cpu") if number else first
        model.learn(*given(number), again=True)
        model.save(path)
    from safecl.classifier.data import labelled

    parts = []
    for number, classes in enumerate(sessions):
        pictures = labelled(*given(number))[0]
        parts.append(Part(str(number), tuple(sorted(classes)), pictures, pictures.subset([])))
    settings = model._fitted.settings
    stream = Stream("same", parts, "mixed", Transform(16))
    method = make_method(settings.method, model._backbone(), settings.seed)
    train = settings.for_pictures(20)
    values = {**settings.model_dump(mode="json"), "train": train.model_dump(mode="json")}
    options = {
        "accelerator": Accelerator(cpu=True),
        "train": train,
        "seed": settings.seed,
        "settings": values,
    }
    run(method, stream.copy(), tmp_path / "run", **options)
    made = model_of_run(tmp_path / "run", model._backbone(), stream, values, print)
    made.save(tmp_path / "of_run.safecl")
    taught = model._fitted
    made = Model.open(tmp_path / "of_run.safecl")
    for each in (taught, made):
        own = each.method(model._backbone(), learning=True).state_dict()
        for key, value in method.state_dict().items():
            assert torch.equal(value, own[key]), key
    said = [
        [(one["what"], one["classes"], one["new"]) for one in each.header["history"]]
        for each in (taught, made)
    ]
    assert said[0] == said[1] and made.header["classes"] == taught.header["classes"]
    assert {key: rows.tolist() for key, rows in made.state.seen.items()} == {
        key: rows.tolist() for key, rows in taught.state.seen.items()
    }
    assert (
        made.state.kept.keys()
        == taught.state.kept.keys()
        >= {"slow", *(["untuned"] if untuned else [])}
    )
    for key, rows in taught.state.kept.items():
        torch.testing.assert_close(made.state.kept[key].float(), rows.float(), rtol=2e-3, atol=2e-3)
    judged = [[row[0] for row in each.header["calibration"]["classes"]] for each in (taught, made)]
    assert judged[0] == judged[1] and made.header["history"][-1]["accuracy"] is not None


@pytest.mark.parametrize("together", [False, True])
@torch.no_grad()
def test_left_out_answers_are_those_of_a_head_that_never_saw_the_pictures(
    together: bool, new_model: New, lesson: Lesson
) -> None:

    images, labels = lesson("abc", 4)
    model = new_model("ranpac")
    model.learn(images, labels)
    method = model._fitted.method(model._backbone(), learning=True)
    views = torch.rand(12, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    features = method.embed(views)
    targets = torch.arange(12) % 3
    ridge = method.ridge
    ridge.statistics.gram = torch.zeros(0, 0)
    ridge.statistics.sums = torch.zeros(60, 0)
    ridge.statistics.count = torch.tensor(0)
    ridge.add(features["learner"], targets)
    ridge.solve()
    beta = ridge.beta
    groups = one_of_each(targets) if together else torch.arange(12)
    found = method.answer(features, LeftOut(targets, groups))["ranpac"]
    assert sorted(groups.bincount().tolist()) == ([3] * 4 if together else [1] * 12)
    for i in range(12):
        rest = [j for j in range(12) if groups[j] != groups[i]]
        h = ridge.project(features["learner"]).double()
        y = torch.nn.functional.one_hot(targets).double()
        weight = torch.linalg.solve(h[rest].T @ h[rest] + beta * torch.eye(60), h[rest].T @ y[rest])
        assert torch.allclose(found[i].double(), h[i] @ weight, atol=1e-3)


def test_pictures_of_any_kind_are_the_same_pictures(
    new_model: New, lesson: Lesson, write_folder: Any, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "photos", "ab", 3)
    images, labels = lesson("ab", 3)
    files = sorted(folder.rglob("*.png"))
    (tmp_path / "t.csv").write_text(
        "path,label\n" + "".join(f"{f},{f.parent.name}\n" for f in files)
    )
    dataset = [(Image.open(f), f.parent.name) for f in files]

    class Torch(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(dataset)

        def __getitem__(self, index: int) -> Any:
            return dataset[index]

    answers = []
    for data in (
        (folder,),
        (tmp_path / "t.csv",),
        ([(str(f), f.parent.name) for f in files],),
        (images, labels),
        ((images, labels),),
        (list(images), labels),
        (torch.from_numpy(images).permute(0, 3, 1, 2), labels),
        (dataset,),
        (Torch(),),
    ):
        model = new_model("simplecil")
        model.learn(*data)
        answers.append(model.predict_proba(images))
        assert model.score(*data) == model.score(images, labels)
    assert all((found == answers[0]).all() for found in answers[1:])
    for asked in (files, folder, [Image.open(f) for f in files], torch.from_numpy(images), Torch()):
        assert (model.predict_proba(asked) == answers[0]).all()
    assert model.predict(files[0]).shape == model.predict(Image.open(files[0])).shape == (1,)


def test_one_class_and_one_picture_a_class_work_and_say_what_they_cannot_do(
    new_model: New, lesson: Lesson
) -> None:
    model = new_model()
    told = model.learn(*lesson("a", 1))
    assert any("one class" in warning for warning in told.warnings)
    assert any("too few to say how sure" in warning for warning in told.warnings)
    with pytest.raises(
        SafeclError,
        match="no pictures to judge itself by, too few to say whether a picture is unknown",
    ):
        model.predict(lesson("a", 2)[0], unknown=0.05)
    assert model.predict(lesson("a", 2)[0]).tolist() == ["a", "a"]
    assert {(one.probability, one.unknown) for one in model.answers(lesson("a", 2)[0])} == {
        (None, None)
    }
    told = model.learn(*lesson("bc", 1))
    assert told.new == ["b", "c"] and any(
        "3 pictures or fewer" in warning for warning in told.warnings
    )


def test_pictures_that_were_learned_are_skipped(new_model: New, lesson: Lesson) -> None:
    model = new_model("ranpac")
    images, labels = lesson("ab", 4)
    model.learn(images[:6], labels[:6])
    told = model.learn(images, labels)
    assert (told.pictures, told.skipped) == (2, 6)
    before = model._fitted
    told = model.learn(images, labels)
    assert (told.pictures, told.skipped, told.classes, told.accuracy) == (0, 8, {}, None)
    assert told.warnings == ["There is nothing new in ndarray: 8 pictures were learned before."]
    assert model._fitted is before
    told = model.learn(np.concatenate([images, lesson("c")[0]]), ["b", *labels[1:], *"ccccc"])
    assert (told.pictures, told.skipped) == (5, 7)
    assert any(
        "Corrected 1 picture that was learned as another class: picture 0" in note
        for note in told.warnings
    )


def test_few_more_pictures_of_a_known_class_are_not_too_few(new_model: New, lesson: Lesson) -> None:
    model = new_model("ranpac")
    model.learn(*lesson("ab", 5))
    told = model.learn(*lesson("ac", 1, seed=1))
    (note,) = (warning for warning in told.warnings if "or fewer" in warning)
    assert note.startswith("1 class has 3 pictures or fewer (c)")


def test_a_session_that_fails_leaves_the_model_as_it_was(
    taught: ContinualClassifier, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = lesson("abcdef")[0]
    before = taught.predict_proba(images)

    def fail(*_: Any) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr("safecl.classifier.teach.look_back", fail)
    with pytest.raises(RuntimeError):
        taught.learn(*lesson("gh"))
    assert (taught.predict_proba(images) == before).all() and len(taught.history_) == 2


def test_explanations_name_opinions_weights_and_nearest_classes(
    taught: ContinualClassifier, lesson: Lesson
) -> None:
    (answer,) = taught.explain(lesson("a", 1)[0])
    assert (
        set(answer.opinions) == {"slow", "fast", "safe"}
        and answer.nearest == answer.opinions["safe"]
    )
    assert answer.nearest[0] == (answer.label, pytest.approx(answer.probability))
    assert sum(answer.weights.values()) == pytest.approx(1)


def test_a_frozen_file_predicts_the_same_and_only_predicts(
    taught: ContinualClassifier, lesson: Lesson, tmp_path: Path
) -> None:
    taught.save(tmp_path / "f.safecl", frozen=True)
    frozen = ContinualClassifier.load(tmp_path / "f.safecl", device="cpu")
    images = lesson("abcdef")[0]
    assert (frozen.predict_proba(images) == taught.predict_proba(images)).all()
    for change in (
        lambda: frozen.learn(*lesson("xy")),
        frozen.rollback,
        lambda: frozen.forget("a"),
    ):
        with raises("model.frozen"):
            change()


def test_a_new_name_changes_nothing_else(taught: ContinualClassifier, lesson: Lesson) -> None:
    images = lesson("abcdef")[0]
    model = ContinualClassifier.of(taught._fitted, device="cpu")
    before = model.predict_proba(images)
    model.rename("a", "ä")
    assert model.classes_.tolist() == [*"bcdef", "ä"]
    assert (model.predict_proba(images) == before[:, [1, 2, 3, 4, 5, 0]]).all()
    model.rollback()
    assert model.classes_.tolist() == ["b", "c", "d", "ä"]


def test_a_wrong_label_and_a_picture_in_two_classes_are_pointed_out(
    new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    images, labels = lesson("abc", 8)
    wrong = [*labels[:7], "b", *labels[8:]]  # the eighth picture shows an a
    model = new_model("ranpac")
    told = model.learn(images, wrong)
    assert [(where, label, said) for where, label, said, _ in told.suspects] == [
        ("picture 7", "b", "a")
    ]
    twice = np.concatenate([images, images[3:4], images[:1]]), [*labels, "a", "c"]
    for data in (twice, (list(zip(*twice, strict=True)),)):
        for learn in (new_model().learn, new_model("simplecil").fit, model.partial_fit):
            with raises(
                "pictures.two-classes",
                names="picture 0 (a) and picture 25 (c)",
                way=re.compile("^take the"),
            ):
                learn(*data)
    model.save(tmp_path / "m.safecl")
    # names of files may name people
    assert b"picture 7" not in (tmp_path / "m.safecl").read_bytes()


def test_probabilities_are_honest_on_pictures_that_were_never_learned(
    new_model: New, lesson: Lesson
) -> None:
    """Noise that hides the pattern in some of the pictures: neither always right nor always
    wrong.
    """
    random = np.random.default_rng(0)

    def noisy(each: int, seed: int) -> tuple[np.ndarray, list[Any]]:
        images, labels = lesson("abcd", each, seed)
        share = random.uniform(0, 1, (len(images), 1, 1, 1)) ** 2
        noise = random.integers(0, 256, images.shape)
        return (images * (1 - share) + noise * share).astype(np.uint8), labels

    model = new_model("ranpac")
    model.learn(*noisy(40, 1))
    images, labels = noisy(100, 2)
    p = model.predict_proba(images)
    right = model.predict(images) == np.array(labels)
    assert abs(p.max(axis=1).mean() - right.mean()) < 0.07
    strange = [answer is None for answer in model.predict(images, unknown=0.1)]
    assert 0.04 < np.mean(strange) < 0.18


@pytest.mark.parametrize("kind", ["array", "tensor", "list"])
def test_pixels_that_are_not_finite_are_refused_wherever_pictures_are_read(
    kind: str, taught: ContinualClassifier, lesson: Lesson
) -> None:
    model, (images, labels) = ContinualClassifier.of(taught._fitted, device="cpu"), lesson("xy")
    floats = images.astype(np.float32) / 255
    floats[7, 3, 3, 1] = np.nan
    data = {
        "array": floats,
        "tensor": torch.from_numpy(floats).permute(0, 3, 1, 2),
        "list": list(floats),
    }[kind]
    for ask in (
        model.predict,
        model.predict_proba,
        model.explain,
        lambda data: model.learn(data, labels),
    ):
        with raises(
            "picture.unreadable", where=7, reason=re.compile("^pixels that are not finite numbers")
        ):
            ask(data)
    assert model._model is taught._model


def test_a_model_learns_the_same_from_scans_of_16_bits_and_from_what_they_show(
    new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    images, labels = lesson("ab", 3)
    grey = images.mean(axis=3).round().astype(np.uint8)
    grey[:3] //= 16  # one class is dark
    for i, (picture, label) in enumerate(zip(grey, labels, strict=True)):
        (tmp_path / "scans" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture.astype(np.uint16) * 257).save(
            tmp_path / "scans" / label / f"{i}.png"
        )
    answers = []
    for data in ((grey, labels), (grey.astype(np.uint16) * 257, labels), (tmp_path / "scans",)):
        model = new_model("simplecil")
        model.learn(*data)
        answers.append(model.predict_proba(images))
    assert all((found == answers[0]).all() for found in answers)


@pytest.mark.filterwarnings("ignore:Grey pictures of floats")
def test_a_float_picture_that_is_not_finite_is_omitted_as_any_unreadable_file(
    new_model: New, write_folder: Any, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "photos", "ab", 3)
    Image.fromarray(np.full((16, 16), np.inf, dtype=np.float32)).save(folder / "a" / "x.tif")
    model = new_model("simplecil")
    with pytest.warns(UserWarning, match="1 picture is omitted as unreadable: .*x.tif"):
        assert model.learn(folder).pictures == 6
    with raises(
        "picture.unreadable",
        where=re.compile(r"x\.tif$"),
        reason=re.compile("^pixels that are not finite numbers"),
    ):
        model.predict(folder / "a" / "x.tif")


@pytest.mark.parametrize("method", ["safe", "ranpac"])
def test_a_careful_answer_is_the_mean_of_a_picture_and_its_mirror_image(
    new_model: Any, lesson: Any, method: str, tmp_path: Path
) -> None:
    model, (pictures, labels) = new_model(method), lesson("abcd")
    model.learn(pictures, labels)
    model.learn(*lesson("ef", seed=1))
    mirrored = np.ascontiguousarray(pictures[:, :, ::-1])
    wanted = (model.decision_function(pictures) + model.decision_function(mirrored)) / 2
    assert (
        model.predict(pictures, careful=True).tolist()
        == model.classes_[wanted.argmax(axis=1)].tolist()
    )
    ours, theirs = (model.explain(each, careful=True) for each in (pictures, mirrored))
    assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-5)
    plain = model.explain(pictures)
    assert max(abs(a.score - b.score) for a, b in zip(ours, plain, strict=True)) > 1e-3
    tuned = model._snapshot().method.networks["fast" if method == "safe" else "learner"].network
    with torch.no_grad():
        merged = tuned._network()
        model.explain(pictures[:1])
        assert tuned._network() is merged  # weights are merged once for all answers
    model.save(tmp_path / "frozen.safecl", frozen=True)
    frozen = ContinualClassifier.load(tmp_path / "frozen.safecl").explain(pictures, careful=True)
    assert [one.label for one in frozen] == [one.label for one in ours]
    # kept in 16 bits
    assert [one.score for one in frozen] == pytest.approx([one.score for one in ours], abs=1e-2)


@pytest.mark.parametrize("method", ["safe", "simplecil"])
def test_a_model_without_mirror_images_has_no_careful_answers(
    new_model: Any, lesson: Any, method: str
) -> None:
    ridge = (
        {"method.ridge": {"size": 60, "betas": (0.01,), "mirror": False}}
        if method == "safe"
        else {}
    )
    model = new_model(method, settings=ridge)
    model.learn(*lesson("ab"))
    with raises("answer.careful.no-mirror"):
        model.predict(lesson("ab")[0], careful=True)
