"""A model in MLflow: its own file, without pickle, as a flavour and as a function of pictures.

from safecl.serve import mlflow as flavour

flavour.log_model(model, "pets")
model = flavour.load_model("models:/m-…")
"""

import importlib
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

import safecl
from safecl.classifier.classifier import ContinualClassifier, Device
from safecl.errors import SafeclError
from safecl.streams.pictures.decode import decode

if TYPE_CHECKING:
    import pandas

    from safecl.classifier.answers.snapshot import Snapshot

FLAVOUR = "safecl"
FILE = "model.safecl"
PICTURE = "picture"  # the column of what the function is given: the bytes of a picture file
UNKNOWN = 0.05  # of known pictures that may be called unknown, as ``safecl predict`` has it


def save_model(
    model: ContinualClassifier, path: str | Path, mlflow_model: Any = None, **about: Any
) -> None:
    """Write a folder as MLflow reads it. ``about``: more of its ``pyfunc.add_to_model``."""
    models = _mlflow("models")
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    made = mlflow_model or models.Model()
    if made.signature is None:
        made.signature = _signature()
    model.save(folder / FILE)
    needed = [f"mlflow=={_mlflow('').__version__}", f"safecl=={safecl.__version__}"]
    python = f"python: '{platform.python_version()}'\ndependencies:\n- -r requirements.txt\n"
    (folder / "requirements.txt").write_text("\n".join(needed) + "\n", encoding="utf-8")
    (folder / "python_env.yaml").write_text(python, encoding="utf-8")
    _mlflow("pyfunc").add_to_model(
        made, loader_module=__name__, data=FILE, python_env="python_env.yaml", **about
    )
    made.add_flavor(FLAVOUR, safecl_version=safecl.__version__, data=FILE)
    made.save(str(folder / "MLmodel"))


def log_model(model: ContinualClassifier, name: str, **options: Any) -> Any:
    """Log a model to the run that is active, or to a new one; gives MLflow's ``ModelInfo``.

    ``options``: of MLflow's ``Model.log``, such as ``registered_model_name``.
    """
    kind = _mlflow("models").Model
    return kind.log(
        artifact_path=None, name=name, flavor=sys.modules[__name__], model=model, **options
    )


def load_model(model_uri: str, *, device: Device = "auto") -> ContinualClassifier:
    """The model at an address of MLflow, which goes on learning."""
    place = _mlflow("artifacts").download_artifacts(artifact_uri=model_uri)
    flavours = _mlflow("models").Model.load(place).flavors
    if FLAVOUR not in flavours:
        raise SafeclError("mlflow.other", uri=model_uri, flavours=", ".join(flavours) or "none")
    return ContinualClassifier.load(Path(place, flavours[FLAVOUR]["data"]), device=device)


class Function:
    """What MLflow asks and serves: a table of pictures in, a table of answers out."""

    def __init__(self, now: "Snapshot") -> None:
        self.now = now

    def predict(
        self, model_input: "pandas.DataFrame", params: Mapping[str, Any] | None = None
    ) -> "pandas.DataFrame":
        """label, probability and unknown of each row. ``params``: ``unknown``, a share."""
        import pandas

        pictures = [_picture(data, i) for i, data in enumerate(model_input[PICTURE])]
        share = float((params or {}).get("unknown", UNKNOWN))
        answers = self.now.answers(pictures, unknown=share, detail=False) if pictures else ()
        rows = [one.fields(detail=False) for one in answers]
        columns = ["label", "probability", "unknown"]
        return pandas.DataFrame(rows, columns=columns).astype({"label": str})


def _load_pyfunc(path: str) -> Function:
    """Called by MLflow with the place of the file."""
    from safecl.classifier.answers.snapshot import Snapshot

    return Function(Snapshot.open(path))


def _picture(data: Any, row: int) -> Image.Image:
    if not isinstance(data, bytes):
        raise SafeclError("mlflow.no-bytes", row=row, kind=type(data).__name__)
    return decode(data, f"picture {row}")


def _signature() -> Any:
    types = _mlflow("types")
    parts = [("label", "string"), ("probability", "double"), ("unknown", "boolean")]
    return _mlflow("models").ModelSignature(
        inputs=types.Schema([types.ColSpec("binary", PICTURE)]),
        outputs=types.Schema([types.ColSpec(kind, name, required=False) for name, kind in parts]),
        params=types.ParamSchema([types.ParamSpec("unknown", "double", UNKNOWN)]),
    )


def _mlflow(part: str) -> Any:
    """A part of MLflow, which is no dependency of ours."""
    try:
        return importlib.import_module(f"mlflow.{part}" if part else "mlflow")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mlflow":
            raise
        raise SafeclError("mlflow.not-installed") from None
