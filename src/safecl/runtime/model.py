"""An exported model: the same answers as the model it was made from, by ONNX Runtime. No torch is imported."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from safecl.errors import SafeclError, unknown
from safecl.lines import counted
from safecl.runtime.answer import Answer, Answering, is_calibrated, make_answers, thresholds
from safecl.streams.pictures.decode import ENOUGH, as_arrays, as_image, decode, is_one, listed
from safecl.streams.pictures.find import File, picture_files, printable
from safecl.streams.pictures.prepare import prepare

FORMAT = 1  # of the metadata
BATCH = 16  # pictures that go through the network at a time
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "mps": "CoreMLExecutionProvider"}
METADATA = (
    "safecl", "format", "name", "classes", "outputs", "size", "resize", "calibration", "backbone", "history", "card"
)  # fmt: skip


class ExportedModel(Answering):
    """What ``safecl export --format onnx`` has written. ``metadata``: what the file says of itself."""

    def __init__(self, path: str | Path, *, device: str = "auto") -> None:
        self.path = Path(path).expanduser()
        self._session = _session(self.path, device)
        self.metadata = _metadata(self._session, self.path)
        self.outputs, self.known = tuple(self.metadata["outputs"]), self.metadata["classes"]
        self.calibration = self.metadata["calibration"]
        self._names = [output.name for output in self._session.get_outputs()]

    def __repr__(self) -> str:
        method, backbone = self.metadata["name"], self.metadata["backbone"]["name"]
        return f"<ExportedModel: {method} on {backbone}, {counted(len(self.metadata['classes']), 'class')}>"

    def predict_proba(self, pictures: Any) -> np.ndarray:
        """Calibrated probabilities: (N, C), a column per class in the order of ``classes_``."""
        return self.by_class(said["probabilities"] for said in self.run(pictures, ["probabilities"]))

    def answers(self, pictures: Any, *, unknown: float | None = 0.05, detail: bool = True) -> Iterator[Answer]:
        """The answers one by one; only a batch of pictures is in RAM at a time."""
        classes, limits = self.known, self.limits(unknown)
        columns = {name: f"probabilities_{name}" for name in (self.outputs[:-1] if detail else ())}
        columns[self.outputs[-1]] = "probabilities"
        weighed = {name: key for name in self.outputs if detail and (key := f"weight_{name}") in self._names}
        for said in self.run(pictures, [*columns.values(), "score", *weighed.values()]):
            p = {name: said[column] for name, column in columns.items()}
            weights = {name: said[key] for name, key in weighed.items()} if detail else None
            calibrated = is_calibrated(self.calibration)
            yield from make_answers(classes, p, said["score"].astype(np.float64), limits, calibrated, weights)

    def run(self, pictures: Any, wanted: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """What the network says of a batch at a time, by the names of its outputs."""
        least = ENOUGH * self.metadata["resize"]
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
            items = enumerate(_items(pictures))
            while batch := list(islice(items, BATCH)):
                views = list(pool.map(lambda each: self._view(_opened(each[1], f"picture {each[0]}", least)), batch))
                yield dict(zip(wanted, self._session.run(list(wanted), {"pictures": np.stack(views)}), strict=True))

    def _view(self, image: Image.Image) -> np.ndarray:
        """The square of side ``resize`` around the central crop: uint8 (resize, resize, 3).

        The network resizes pictures of any shape itself. Squares of one size can go through it together, and Pillow
        has resized them exactly as the pictures that were learned.
        """
        size, resize = self.metadata["size"], self.metadata["resize"]
        return np.asarray(prepare(image, size, resize, side=resize))


def _opened(item: Any, name: str, least: int) -> Image.Image:
    """An image of a path, a file that was found, or whatever holds pixels."""
    if isinstance(item, str | os.PathLike):
        item = File.at(os.path.expanduser(item))
    if isinstance(item, File):
        return decode(item.read(), printable(item.path), least=least)
    return as_image(item, name)


def _items(pictures: Any) -> Iterator[Any]:
    """One by one: paths, files, images or arrays."""
    pictures = listed(pictures)
    if isinstance(pictures, str | os.PathLike):
        return picture_files(Path(pictures))
    if is_one(pictures):
        return iter([pictures])
    if hasattr(pictures, "detach"):  # a tensor
        pictures = pictures.detach().cpu().numpy()
    if not hasattr(pictures, "__iter__"):
        raise SafeclError(f"A {type(pictures).__name__} is no picture; give paths, images or arrays.")
    return iter(as_arrays(pictures) if isinstance(pictures, np.ndarray) else pictures)


def _session(path: Path, device: str) -> Any:
    """ONNX Runtime's session; what is wrong with the file is one sentence."""
    try:
        import onnxruntime
    except ImportError:
        raise SafeclError("Answers from an ONNX file need onnxruntime: pip install onnxruntime.") from None
    if not path.is_file():
        raise SafeclError(f"There is no file {path}; 'safecl export MODEL --format onnx -o {path}' makes one.")
    there, names = onnxruntime.get_available_providers(), ["cuda", "cpu"] if device == "auto" else [device]
    if not {*names} <= PROVIDERS.keys():
        raise unknown("device", device, ("auto", *PROVIDERS))
    providers = [PROVIDERS[name] for name in names if PROVIDERS[name] in there]
    if not providers:
        raise SafeclError(
            f"This onnxruntime has no {PROVIDERS[device]} for --device {device}; it has: {', '.join(there)}."
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is wrong is said below
    options.enable_mem_reuse = False  # planning it takes four times as long as all the rest, and saves no run time
    try:
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=providers)
    except Exception as error:  # its own kinds of errors, by what is wrong
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise SafeclError(f"{path} is no ONNX file that can be read, or it is damaged ({reason}).") from None


def _metadata(session: Any, path: Path) -> dict[str, Any]:
    """What the file says of itself, if it is true of its network."""
    text = session.get_modelmeta().custom_metadata_map
    if "safecl" not in text:
        raise SafeclError(f"{path} is an ONNX file of another program; give one that 'safecl export' has written.")
    try:
        found = {key: json.loads(text[key]) for key in METADATA}
        if found["format"] > FORMAT:
            raise SafeclError(f"{path} was written by a newer safecl ({found['safecl']}); update safecl to read it.")
        if (given := [one.name for one in session.get_inputs()]) != ["pictures"]:
            raise ValueError(f"its input is called {', '.join(given)}, not pictures")
        _check(found, {output.name: output.shape for output in session.get_outputs()})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise SafeclError(f"What {path} says of itself is damaged ({reason}); export the model again.") from None
    return found


def _check(found: Mapping[str, Any], outputs: Mapping[str, Sequence[Any]]) -> None:
    """Refuse metadata that the outputs of the network belie."""
    classes, sides, calibration = found["classes"], (found["size"], found["resize"]), found["calibration"]
    if not classes or not all(isinstance(label, str | int) for label in classes) or len(set(classes)) < len(classes):
        raise ValueError("its classes are not different words or numbers")
    for name in ("probabilities", *(f"probabilities_{output}" for output in found["outputs"][:-1])):
        if outputs[name][1:] != [len(classes)]:
            raise ValueError(f"{len(classes)} classes, and {name} of {outputs[name][1:]}")
    if not all(isinstance(side, int) for side in sides) or not 1 <= sides[0] <= sides[1]:
        raise ValueError(f"pictures of {sides[0]} out of {sides[1]} pixels")
    found["outputs"][-1], outputs["score"], found["backbone"]["name"]
    if calibration:  # what else is read of it
        calibration["temperature"], counted(calibration["pictures"], "picture")
    if thresholds(calibration, 0.99, len(classes)).shape != (len(classes),):
        raise ValueError("scores of other classes")
