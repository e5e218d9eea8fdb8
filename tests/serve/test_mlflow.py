"""A model in MLflow, where it is installed: logged, loaded, taught on, and asked as a function."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.serve import mlflow as flavour
from tests.conftest import raises

needed = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="MLflow is not installed"
)


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is not None, reason="MLflow is installed")
def test_without_mlflow_one_sentence_says_what_to_install(new_model: Any, tmp_path: Path) -> None:
    with raises("mlflow.not-installed"):
        flavour.save_model(new_model(), tmp_path / "m")


@needed
def test_a_logged_model_answers_as_a_function_and_goes_on_learning(
    new_model: Any, lesson: Callable[..., Any], write_folder: Callable[..., Path], tmp_path: Path
) -> None:
    import mlflow
    import pandas

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.create_experiment("pets", artifact_location=(tmp_path / "kept").as_uri())
    mlflow.set_experiment("pets")
    model = new_model()
    model.learn(*lesson("ab", 12))
    with mlflow.start_run():
        logged = flavour.log_model(model, "pets")
    assert not [path for path in (tmp_path / "kept").rglob("*") if path.suffix in (".pkl", ".pt")]
    files = sorted(write_folder(tmp_path / "new", "abz", 2, seed=4).rglob("*.png"))
    asked = mlflow.pyfunc.load_model(logged.model_uri)
    table = pandas.DataFrame({"picture": [file.read_bytes() for file in files]})
    said = asked.predict(table, params={"unknown": 0.1})
    meant = list(model.answers(files, unknown=0.1))
    assert said["label"].tolist() == [str(one.label) for one in meant]
    assert said["unknown"].tolist() == [one.unknown for one in meant]
    np.testing.assert_allclose(
        said["probability"].astype(float), [one.probability or np.nan for one in meant], atol=1e-5
    )
    again = flavour.load_model(logged.model_uri, device="cpu")
    again.learn(*lesson("c"))
    assert again.classes_.tolist() == ["a", "b", "c"]
    with raises("mlflow.no-bytes", row=0):
        flavour.Function(asked).predict(pandas.DataFrame({"picture": ["/etc/passwd"]}))
