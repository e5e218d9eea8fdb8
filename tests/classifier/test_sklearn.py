"""The face of scikit-learn: its own checks, clone, pipelines and cross-validation."""

import copy
import hashlib
import itertools
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import joblib
import numpy as np
import pytest
import sklearn
import sklearn.metrics
import torch
from PIL import Image
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.data import labelled, unlabelled
from safecl.classifier.model import Model
from safecl.methods.catalog import method_settings
from tests.conftest import raises

# of a model by ``new_model``
RIDGE = {
    "size": 60,
    "betas": (0.01,),
    "layers": 2,
    "patches": True,
    "mirror": True,
}


@pytest.fixture(scope="module", autouse=True)
def weights(two_blocks: Path) -> None:
    """scikit-learn makes and clones the estimators, which have no parameter for it."""
    OnRows.tiny = {"backbone.weights": str(two_blocks)}


def as_pictures(rows: np.ndarray) -> np.ndarray:
    """Rows of numbers (n, k) as stripes, uint8 (n, 16, 16, 3); with a digest: different rows
    differ.
    """
    shades = (255 / (1 + np.exp(-np.asarray(rows, dtype=float)))).astype(np.uint8)
    stripes = np.repeat(shades, -(-16 // shades.shape[1]), axis=1)[:, :16]
    pictures = np.ascontiguousarray(
        np.broadcast_to(stripes[:, None, :, None], (len(rows), 16, 16, 3))
    )
    for picture, row in zip(pictures, np.asarray(rows, dtype=np.float32), strict=True):
        picture[0, :4, 0] = list(hashlib.blake2b(row.tobytes(), digest_size=4).digest())
    return pictures


class OnRows(ContinualClassifier):
    """Takes the rows of numbers that scikit-learn's checks give for pictures."""

    tiny: ClassVar[dict[str, str]] = {}

    def __init__(self, seed: int = 0) -> None:
        super().__init__(
            "test_vit", "simplecil", seed=seed, image_size=16, device="cpu", settings=self.tiny
        )

    def fit(self, X: Any, y: Any = None) -> "OnRows":
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        super().fit(as_pictures(X), self._whole(y))
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> "OnRows":
        X, y = validate_data(self, X, y, reset=self._model is None)
        super().partial_fit(as_pictures(X), self._whole(y), classes)
        return self

    def predict(self, pictures: Any, **options: Any) -> np.ndarray:
        return super().predict(self._rows(pictures), **options)

    def predict_proba(self, pictures: Any) -> np.ndarray:
        return super().predict_proba(self._rows(pictures))

    def decision_function(self, pictures: Any) -> np.ndarray:
        return super().decision_function(self._rows(pictures))

    def transform(self, pictures: Any) -> np.ndarray:
        return super().transform(self._rows(pictures))

    def score(self, X: Any, y: Any = None) -> float:
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def _rows(self, pictures: Any) -> np.ndarray:
        _ = self._fitted
        return as_pictures(validate_data(self, pictures, reset=False))

    def _whole(self, y: np.ndarray) -> np.ndarray:
        return y.astype(int) if y.dtype.kind == "f" and (y == y.astype(int)).all() else y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.three_d_array = False
        tags.classifier_tags.poor_score = True  # the tiny backbone is random
        return tags


LEFT_OUT = {
    "check_methods_subset_invariance": (
        "float32 sums of the network depend on the size of a batch, by rounding"
    )
}


@parametrize_with_checks([OnRows()])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    name = getattr(check, "func", check).__name__
    if name in LEFT_OUT:
        pytest.skip(LEFT_OUT[name])
    if "X_dtype" in getattr(check, "keywords", {}):
        pytest.skip("rows of float32 and of float64 become the same pictures")
    check(estimator)


@parametrize_with_checks([ContinualClassifier()])
def test_scikit_learns_checks_of_what_takes_pictures(
    estimator: Any, check: Callable[[Any], None]
) -> None:
    """Of an estimator that takes no tables there are few; the others are held by ``OnRows``."""
    check(estimator)


def test_clones_pipelines_and_cross_validation(new_model: Any, lesson: Any) -> None:
    model = new_model("ranpac")
    twin = clone(model)
    assert is_classifier(model) and twin.get_params() == model.get_params() and twin is not model
    images, labels = lesson("abc", 6)
    scores = cross_val_score(twin, images, labels, cv=3, error_score="raise")
    assert scores.shape == (3,) and scores.mean() > 0.9
    line = make_pipeline(FunctionTransformer(lambda x: 255 - x), model).fit(images, labels)
    assert line.score(images, labels) > 0.9 and line.classes_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="Invalid parameter 'nothing'"):
        model.set_params(nothing=1)
    assert model.set_params(epochs=2).get_params()["epochs"] == 2


@pytest.fixture(scope="module")
def taught(new_model: Any, lesson: Any, tmp_path_factory: Any) -> tuple[ContinualClassifier, Path]:
    """A model that has learned a session, and its file."""
    model = new_model("ranpac", memory="features")
    file = tmp_path_factory.mktemp("taught") / "m.safecl"
    model.learn(*lesson("abc"))
    model.save(file)
    return model, file


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"epochs": 2}, ("epochs", "1", "2")),
        ({"epochs": None}, ("epochs", "1", "None")),
        ({"keep": 5}, ("keep", "3", "5")),
        ({"memory": "statistics"}, ("memory", "features", "statistics")),
        ({"seed": 1}, ("seed", "0", "1")),
        ({"thumbnails": True}, ("thumbnails", "False", "True")),
        ({"image_size": 32}, ("backbone.image_size", "16", "32")),
        ({"backbone": "micro"}, ("backbone", "test_vit", "safecl_micro")),
        ({"method": "safe"}, ("method", "ranpac", "safe")),
        ({"pet": "lora"}, ("pet", "ssf", "lora")),
        (
            {"settings": {"method.ridge": RIDGE | {"size": 70}}},
            ("method.ridge.size", "60", "70"),
        ),
        (
            {"settings": {"method.ridge": RIDGE | {"layers": 1}}},
            ("method.ridge.layers", "2", "1"),
        ),
    ],
)
def test_a_parameter_that_was_changed_is_refused_by_the_next_session(
    given: dict[str, Any],
    told: tuple[str, str, str],
    taught: tuple[ContinualClassifier, Path],
    lesson: Any,
) -> None:
    for model in (copy.copy(taught[0]), ContinualClassifier.load(taught[1], device="cpu")):
        key, there, value = told
        with raises("model.setting.fixed", key=key, there=there, value=value):
            model.set_params(**given).learn(*lesson("d"))
        assert model.classes_.tolist() == ["a", "b", "c"]


def test_labels_beside_what_has_its_own_are_refused(
    taught: tuple[ContinualClassifier, Path], lesson: Any, tmp_path: Path
) -> None:
    pictures, labels = lesson("d")
    for given in (labelled(pictures, labels)[0], tmp_path, str(tmp_path)):
        for ask in (taught[0].learn, taught[0].score):
            with raises("pictures.labels.own"):
                ask(given, labels)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_a_device_that_was_changed_is_used_or_refused_by_the_next_answer(
    taught: tuple[ContinualClassifier, Path], lesson: Any
) -> None:
    model = copy.copy(taught[0])
    before = model.predict_proba(lesson("a")[0])
    with raises("device.missing", device="cuda"):
        model.set_params(device="cuda").predict(lesson("a")[0])
    assert np.array_equal(model.set_params(device="cpu").predict_proba(lesson("a")[0]), before)


def test_parameters_that_say_the_same_in_other_words_are_no_change(
    taught: tuple[ContinualClassifier, Path], lesson: Any
) -> None:
    for model in (copy.copy(taught[0]), ContinualClassifier.load(taught[1], device="cpu")):
        model.set_params(pet="ssf", keep=3, image_size=16, device="cpu", show="quiet").learn(
            *lesson("d")
        )
        assert model.classes_.tolist() == ["a", "b", "c", "d"]
        # forgets everything, settings as well
        model.set_params(epochs=2, image_size=None).fit(*lesson("ab"))
        assert model.history_[-1]["epochs"] == 2


@pytest.mark.parametrize("name", method_settings())
def test_a_loaded_model_has_the_parameters_that_it_was_made_with(name: str) -> None:
    has_pet = "pet" in method_settings()[name].model_fields
    for backbone, pet in itertools.product(
        ("micro", "small", "test_vit"), ("lora", "adapter", None)
    ):
        words: dict[str, Any] = {"train.lr": 0.5} if method_settings()[name].trains else {}
        model = ContinualClassifier(
            backbone, name, pet if has_pet else None, keep=7, settings=words
        )
        header: Any = {"settings": model._resolved().model_dump(mode="json")}
        again = ContinualClassifier.of(Model(header))
        assert again._resolved() == Model(header).settings
        for one in (model, again):
            one._check_unchanged(Model(header))


@pytest.fixture(scope="module")
def files(lesson: Any, tmp_path_factory: Any) -> tuple[list[str], list[str]]:
    """Paths and labels of six pictures of each of three classes."""
    folder, (images, labels) = tmp_path_factory.mktemp("files"), lesson("abc", 6)
    paths = [str(folder / f"{i:02}.png") for i in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths, labels


def test_paths_may_come_in_any_array_or_column(files: Any, new_model: Any) -> None:
    paths, labels = files
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"path": paths, "label": labels}, index=range(50, 50 + len(paths)))
    model = new_model("ranpac")
    model.learn(table["path"], table["label"])
    expected = model.predict_proba(paths)
    forms = {
        "words": np.array(paths),
        "objects": np.array(paths, dtype=object),
        "column": table["path"],
        "table": table[["path"]],
        "string": table["path"].astype("string"),
        "kind": table["path"].astype("category"),
        "Path": np.array([Path(path) for path in paths]),
        "numpy words": list(np.array(paths)),
        "tuple": tuple(paths),
    }
    for name, form in forms.items():
        assert (model.predict_proba(form) == expected).all(), name
        assert model.score(form, table["label"]) == model.score(paths, labels), name
    assert (model.predict(np.array(paths[0])) == model.predict(paths[0])).all()
    images = np.empty(2, dtype=object)
    images[:] = [Image.open(path).resize((20 + i, 24)) for i, path in enumerate(paths[:2])]
    assert model.predict(images).tolist() == model.predict(list(images)).tolist()
    with raises("pictures.forms", place=1, kind="float"):
        model.predict(np.array([paths[0], float("nan")], dtype=object))
    with raises("pictures.label.type", name="picture 0", value=re.compile("^nan")):
        model.learn(np.array(paths[:1]), [float("nan")])


def test_cross_validation_takes_paths(files: Any, new_model: Any) -> None:
    paths, labels = files
    pandas = pytest.importorskip("pandas")
    for X in (np.array(paths), pandas.Series(paths), pandas.DataFrame({"path": paths})):
        scores = cross_val_score(
            new_model("ranpac"), X, pandas.Series(labels), cv=2, error_score="raise"
        )
        assert scores.mean() > 0.9


def test_partial_fit_is_a_session_and_fit_starts_anew(new_model: Any, lesson: Any) -> None:
    model = new_model("simplecil")
    with pytest.raises(sklearn.exceptions.NotFittedError, match="learned nothing yet"):
        model.predict(lesson("a")[0])
    model.partial_fit(*lesson("ab"), classes=list("abc")).partial_fit(*lesson("c"))
    assert model.classes_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="not in classes"):
        model.partial_fit(*lesson("x"), classes=list("abc"))
    with pytest.raises(ValueError, match="X holds 'x', which is not in classes"):
        model.partial_fit(labelled(*lesson("x"))[0], classes=list("abc"))
    assert model.fit(*lesson("de")).classes_.tolist() == ["d", "e"]
    with pytest.raises(Exception, match="no picture"):
        model.fit([], [])
    assert model.classes_.tolist() == ["d", "e"]


@pytest.mark.parametrize(
    ("method", "networks"),
    [
        ("safe", ("slow", "fast")),
        ("ranpac", ("learner",)),
        ("aper", ("backbone", "adapted")),
        ("simplecil", ("backbone",)),
    ],
)
def test_features_are_those_that_the_heads_read(
    method: str, networks: tuple[str, ...], new_model: Any, lesson: Any
) -> None:
    """Heads of prototypes: the CLS token. Ridge heads: of the last two blocks, and the mean of the
    patches.
    """
    model = new_model(method).fit(*lesson("ab", 6)).partial_fit(*lesson("c", 6))
    images, _ = lesson("abc", 4, seed=1)
    found = model.transform(images)
    now = model._snapshot()
    pictures = unlabelled(images).plain(range(len(images)), now.model.transform).float() / 255
    wanted = []
    with torch.no_grad():
        for name in networks:
            network = getattr(now.method, name)
            vit = network.network if name == "backbone" else network._network()
            x = vit.norm_pre(
                vit._pos_embed(vit.patch_embed(now.method.backbone._normalise(pictures)))
            )
            before, last = [x := block(x) for block in vit.blocks]
            more = [before[:, 0], last[:, 1:].mean(dim=1)] if method in ("safe", "ranpac") else []
            wanted += [vit.norm(token) for token in (last[:, 0], *more)]
    assert found.shape == (12, len(wanted) * now.method.backbone.width)
    assert np.allclose(found, torch.cat(wanted, dim=1).numpy(), atol=1e-5)
    again = new_model(method).fit_transform(*lesson("ab", 6))
    assert (again == new_model(method).fit(*lesson("ab", 6)).transform(lesson("ab", 6)[0])).all()


def test_features_go_on_in_a_pipeline(new_model: Any, lesson: Any) -> None:
    images, labels = lesson("abc", 6)
    line = make_pipeline(new_model("ranpac"), LogisticRegression(max_iter=1000)).fit(images, labels)
    assert line.score(*lesson("abc", 6, seed=1)) > 0.9


def test_decisions_are_the_logits_in_the_order_of_the_classes(new_model: Any, lesson: Any) -> None:
    model = new_model("ranpac").fit(*lesson("cd", 6))
    images, _ = lesson("abcd", 4, seed=1)
    main, *rest = model._snapshot().logits(unlabelled(images))
    two = model.decision_function(images)
    assert not rest and two.shape == (16,) and (two == (main[:, 1] - main[:, 0]).numpy()).all()
    assert (model.classes_[(two > 0).astype(int)] == model.predict(images)).all()
    model.partial_fit(*lesson("ab", 6))
    main, *rest = model._snapshot().logits(unlabelled(images))
    assert (model.decision_function(images) == main[:, [2, 3, 0, 1]].numpy()).all()
    assert (
        model.classes_[model.decision_function(images).argmax(axis=1)] == model.predict(images)
    ).all()
    assert model.decision_function([]).shape == (0, 4) and model.predict_proba([]).shape == (0, 4)


def test_pickles_and_copies_are_as_small_as_the_file_and_the_same_model(
    new_model: Any, lesson: Any, tmp_path: Path
) -> None:
    model = new_model("safe").fit(*lesson("cd", 6)).partial_fit(*lesson("ab", 6))
    images, _ = lesson("abcd", 4, seed=1)
    expected = model.predict_proba(images)
    before = model._loaded
    model.save(tmp_path / "m.safecl")
    data = pickle.dumps(model)
    joblib.dump(model, tmp_path / "m.joblib")
    size = (tmp_path / "m.safecl").stat().st_size
    assert len(data) <= size and (tmp_path / "m.joblib").stat().st_size <= size
    assert model._loaded is before  # the model itself keeps what it has loaded
    for twin in (pickle.loads(data), copy.deepcopy(model), joblib.load(tmp_path / "m.joblib")):
        assert (
            twin._loaded is None
            and twin.get_params() == model.get_params()
            and repr(twin) == repr(model)
        )
        assert (twin.predict_proba(images) == expected).all()
        twin.partial_fit(*lesson("e", 6))
        twin.rollback()
        assert (twin.predict_proba(images) == expected).all() and twin.history_ == model.history_
        twin.rollback()
        assert twin.classes_.tolist() == ["c", "d"] and model.classes_.tolist() == list("abcd")
    shallow = copy.copy(model)
    assert shallow._model is model._model and shallow._loaded is model._loaded
    model.save(tmp_path / "f.safecl", frozen=True)
    frozen = pickle.loads(
        pickle.dumps(ContinualClassifier.load(tmp_path / "f.safecl", device="cpu"))
    )
    assert (frozen.predict_proba(images) == expected).all()
    with raises("model.frozen"):
        frozen.partial_fit(*lesson("e"))
    assert pickle.loads(pickle.dumps(new_model("safe")))._model is None


@pytest.mark.parametrize(
    ("sessions", "classes"),
    [
        (["cd", "ab"], list("abcd")),
        ([[10, 3], [2]], [2, 3, 10]),
        ([["b", 2], ["a", 1]], [1, 2, "a", "b"]),
    ],
)
def test_classes_are_sorted_as_columns_are_whatever_the_order_they_were_learned_in(
    sessions: list[Any], classes: list[Any], new_model: Any, lesson: Any
) -> None:
    model = new_model("ranpac")
    for session in sessions:
        model.partial_fit(*lesson(session, 6))
    images, labels = lesson(classes, 4, seed=1)
    p = model.predict_proba(images)
    assert model.classes_.tolist() == classes and model._fitted.classes[-1] != classes[-1]
    assert model.predict(images).tolist() == [classes[i] for i in p.argmax(axis=1)] == labels
    columns = [classes.index(label) for label in labels]
    loss = sklearn.metrics.log_loss(columns, p)
    assert loss == pytest.approx(-np.log(p[np.arange(len(p)), columns]).mean(), rel=1e-4)
    learned_in = [model._fitted.classes.index(label) for label in classes]
    # columns in another order are worse
    assert loss < 0.8 * sklearn.metrics.log_loss(columns, p[:, learned_in])
    if len({type(label) for label in classes}) == 1:  # scikit-learn refuses labels of two types
        assert model.classes_.tolist() == np.unique(labels).tolist()
        assert sklearn.metrics.log_loss(labels, p) == pytest.approx(loss)


def test_what_is_no_picture_or_no_label_is_said_with_what_to_do(new_model: Any) -> None:
    from torch.utils.data import DataLoader, TensorDataset

    shades = np.random.default_rng(0).random((4, 16, 16, 3))
    labels = ["a", "b"] * 2
    batches = DataLoader(TensorDataset(torch.rand(4, 3, 16, 16), torch.arange(4) % 2), batch_size=2)

    def values(name: str, seen: str, remedy: str) -> tuple[str, dict[str, Any]]:
        types = "uint8, uint16, or floats between 0 and 1"
        patterns = {key: re.compile(text) for key, text in (("seen", seen), ("remedy", remedy))}
        return "pictures.values", {"types": types, "name": re.compile(name), **patterns}

    def label(value: float, remedy: str) -> tuple[str, dict[str, Any]]:
        fields = {"name": "picture 0", "value": value, "remedy": re.compile(remedy)}
        return "pictures.label.type", fields

    def unlabelled(given: str) -> tuple[str, dict[str, Any]]:
        return "pictures.labels.missing", {"given": given, "remedy": re.compile("a list of pairs")}

    wrong: tuple[tuple[tuple[str, dict[str, Any]], tuple[Any, ...]], ...] = (
        (
            values("", r"^float64 from 0\.\d+ to 25\d\.?\d*$", "^divide them by 255"),
            (255 * shades, labels),
        ),
        (
            values("^picture 0$", "^float32", "^divide them by 255"),
            ([*(255 * shades).astype(np.float32)], labels),
        ),
        (
            values("", r"^int64 from \d+ to 25\d$", r"^give array.astype\('uint8'\)"),
            ((255 * shades).astype(int), labels),
        ),
        (values("", r"^float64 from -0\.\d+ to 0\.\d+$", "^scale them"), (shades - 0.5, labels)),
        (("pictures.loader", {}), (batches,)),
        (
            label(0.0, r"^give 0, as labels.astype\(int\) does"),
            (shades, np.array([0.0, 1.0, 0.0, 1.0])),
        ),
        (label(0.5, "^use words or whole numbers"), (shades, [0.5] * 4)),
        (
            ("pictures.label.several", {"name": "picture 0", "size": 2}),
            (shades, torch.eye(2)[[0, 1, 0, 1]]),
        ),
        (unlabelled("generator"), ((pair for pair in labels),)),
        (unlabelled("dict"), ({"a": shades},)),
    )
    for (code, fields), given in wrong:
        for learn in (new_model().learn, new_model().fit):
            with raises(code, **fields):
                learn(*given)
    assert new_model("simplecil").learn(batches.dataset).pictures == 4
