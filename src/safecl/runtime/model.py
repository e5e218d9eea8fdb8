"""An exported model: the same answers as the model it was made from, by ONNX Runtime. No torch is
imported.

A file may come from a stranger. Its digest says whether it is as it was written, and not by whom:
so what it computes is looked at, too, before ONNX Runtime reads it.
"""

import importlib
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from safecl.errors import SafeclError, unknown
from safecl.lines import counted
from safecl.runtime.answer import (
    Answer,
    Answering,
    check_finite,
    is_calibrated,
    least,
    make_answers,
    thresholds,
)
from safecl.runtime.drift import Drift, looks
from safecl.runtime.graph import Graph, read_graph
from safecl.runtime.seal import is_sealed, says_digest
from safecl.runtime.sizes import Need, TooLargeError, need
from safecl.streams.pictures.decode import ENOUGH, as_arrays, as_image, decode, is_one, listed
from safecl.streams.pictures.find import File, picture_files, printable
from safecl.streams.pictures.prepare import prepare

FORMAT = 1  # of the metadata
BATCH = 16  # pictures that go through the network at a time
BATCHES = (BATCH, 4, 1)  # the first that fits into memory is taken
MAX_FILE = 2**31  # bytes: protobuf has no larger messages
SECONDS = 60.0
SPEED = 1e9  # that a batch may take: as a start, and for each multiplication on the slowest machine
PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "mps": "CoreMLExecutionProvider",
}
TELEMETRY = "ORT_DISABLE_TELEMETRY"
TRUST = "read it with --trust (trust=True in Python) if you know who made it"
MISFITS = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
METADATA = (
    "safecl",
    "format",
    "name",
    "classes",
    "outputs",
    "size",
    "resize",
    "calibration",
    "backbone",
    "history",
    "card",
)


class ExportedModel(Answering):
    """What ``safecl export --format onnx`` has written. ``metadata``: what the file says of itself.

    ``trust``: read the file also if it is not as it was written, or computes what no export does,
    perhaps without end. ``seconds``: that a batch may take; by default a limit far beyond what its
    network needs, and none with ``trust``.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: str = "auto",
        trust: bool = False,
        seconds: float | None = None,
    ) -> None:
        self.path = Path(path).expanduser()
        runtime, providers = _runtime(device)
        data = _bytes(self.path)
        self.batch = BATCH
        self.seconds = seconds
        if not trust:
            graph = _sealed(data, self.path)
            side = _metadata(graph.metadata, self.path)["resize"]
            try:
                self.batch, needed = _needed(graph, len(data), side)
            except ValueError as error:
                raise SafeclError(
                    "exported.not-read", path=self.path, error=error, trust=TRUST
                ) from error
            self.seconds = SECONDS + needed.work / SPEED if seconds is None else seconds
        self._runtime = runtime
        self._session = _session(runtime, providers, data, self.path)
        self.metadata = _metadata(self._session.get_modelmeta().custom_metadata_map, self.path)
        _check_outputs(self.metadata, self._session, self.path)
        self.outputs = tuple(self.metadata["outputs"])
        self.known = self.metadata["classes"]
        self.calibration = self.metadata["calibration"]
        self._names = [output.name for output in self._session.get_outputs()]

    def __repr__(self) -> str:
        method = self.metadata["name"]
        backbone = self.metadata["backbone"]["name"]
        return (
            f"<ExportedModel: {method} on {backbone},"
            f" {counted(len(self.metadata['classes']), 'class')}>"
        )

    def predict_proba(self, pictures: Any) -> np.ndarray:
        """Calibrated probabilities: (N, C), a column per class in the order of ``classes_``."""
        return self.by_class(
            check_finite(said["probabilities"]) for said in self.run(pictures, ["probabilities"])
        )

    def answers(
        self,
        pictures: Any,
        *,
        unknown: float | None = 0.05,
        detail: bool = True,
        sets: float | None = None,
        drift: Drift | None = None,
    ) -> Iterator[Answer]:
        """The answers one by one; only a batch of pictures is in RAM at a time."""
        classes = self.known
        limits = self.limits(unknown, sets)
        columns = {name: f"probabilities_{name}" for name in (self.outputs[:-1] if detail else ())}
        columns[self.outputs[-1]] = "probabilities"
        weighed = {
            name: key
            for name in self.outputs
            if detail and (key := f"weight_{name}") in self._names
        }
        wanted = [*columns.values(), "score", *weighed.values()]
        for views, said in self._asked(pictures, wanted):
            if drift is not None:
                best = said["probabilities"].argmax(axis=1)
                drift.see(best.tolist(), said["score"].tolist(), self._looks(views))
            p = {name: said[column] for name, column in columns.items()}
            weights = {name: said[key] for name, key in weighed.items()} if detail else None
            calibrated = is_calibrated(self.calibration)
            yield from make_answers(
                classes, p, said["score"].astype(np.float64), limits, calibrated, weights
            )

    def run(self, pictures: Any, wanted: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """What the network says of a batch at a time, by the names of its outputs."""
        return (said for _, said in self._asked(pictures, wanted))

    def _asked(
        self, pictures: Any, wanted: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """A batch at a time, and what ``run`` gives of it."""
        least = ENOUGH * self.metadata["resize"]
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
            items = enumerate(_items(pictures))
            while batch := list(islice(items, self.batch)):
                views = list(
                    pool.map(
                        lambda each: self._view(_opened(each[1], f"picture {each[0]}", least)),
                        batch,
                    )
                )
                batch_views = np.stack(views)
                said = self._ran(list(wanted), batch_views)
                yield batch_views, dict(zip(wanted, said, strict=True))

    def _looks(self, views: np.ndarray) -> list[list[float]]:
        """``drift.looks`` of what the network sees of a batch: (N, 6)."""
        size = self.metadata["size"]
        start = round((self.metadata["resize"] - size) / 2)
        seen = views[:, start : start + size, start : start + size].transpose(0, 3, 1, 2)
        found: list[list[float]] = np.stack(looks(seen.astype(np.float32) / 255), axis=1).tolist()
        return found

    def _ran(self, wanted: list[str], pictures: np.ndarray) -> list[np.ndarray]:
        """One run of the network, which is ended after ``seconds``."""
        options = self._runtime.RunOptions()
        options.log_severity_level = 4  # what is wrong is said below
        late = threading.Timer(self.seconds or 0, setattr, (options, "terminate", True))
        late.daemon = True
        if self.seconds is not None:
            late.start()
        try:
            found: list[np.ndarray] = self._session.run(wanted, {"pictures": pictures}, options)
            return found
        except Exception as error:  # its own kinds of errors, by what is wrong
            many = counted(len(pictures), "picture")
            if options.terminate:
                raise SafeclError(
                    "exported.too-slow", path=self.path, seconds=self.seconds, many=many
                ) from None
            raise SafeclError(
                "exported.cannot-answer", path=self.path, many=many, reason=_reason(error)
            ) from None
        finally:
            late.cancel()

    def _view(self, image: Image.Image) -> np.ndarray:
        """The square of side ``resize`` around the central crop: uint8 (resize, resize, 3).

        The network resizes pictures of any shape itself. Squares of one size can go through it
        together, and Pillow has resized them exactly as the pictures that were learned.
        """
        size = self.metadata["size"]
        resize = self.metadata["resize"]
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
        raise SafeclError("exported.no-picture", name=type(pictures).__name__)
    return iter(as_arrays(pictures) if isinstance(pictures, np.ndarray) else pictures)


def onnx_runtime() -> Any:
    """ONNX Runtime, which does not tell its maker of its use unless somebody has asked for that."""
    before = os.environ.get(TELEMETRY)
    os.environ.setdefault(TELEMETRY, "1")  # read when it is first imported
    try:
        return importlib.import_module("onnxruntime")
    finally:
        if before is None:
            del os.environ[TELEMETRY]


def refusal(data: bytes) -> str | None:
    """Why the bytes of an exported file are read with ``trust`` alone, if they are."""
    try:
        graph = read_graph(data)
        _needed(graph, len(data), json.loads(graph.metadata["resize"]))
    except ValueError as error:
        return str(error)
    return None


def _runtime(device: str) -> tuple[Any, list[str]]:
    """(ONNX Runtime, what of it computes on a device)."""
    try:
        runtime = onnx_runtime()
    except ImportError:
        raise SafeclError("exported.onnxruntime.missing") from None
    there = runtime.get_available_providers()
    names = ["cuda", "cpu"] if device == "auto" else [device]
    if not {*names} <= PROVIDERS.keys():
        raise unknown("device", device, ("auto", *PROVIDERS))
    if providers := [PROVIDERS[name] for name in names if PROVIDERS[name] in there]:
        return runtime, providers
    raise SafeclError(
        "exported.device.missing", provider=PROVIDERS[device], device=device, there=", ".join(there)
    )


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise SafeclError("exported.file.missing", path=path)
    try:
        if path.stat().st_size >= MAX_FILE:
            raise SafeclError("exported.file.too-large", path=path)
        return path.read_bytes()
    except OSError as error:
        raise SafeclError("exported.file.unreadable", path=path, strerror=error.strerror) from error


def _sealed(data: bytes, path: Path) -> Graph:
    """The graph in a file of ours that is as it was written."""
    try:
        graph = read_graph(data)
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    _check_ours(graph.metadata, path)
    if not is_sealed(data):
        why = (
            "its digest is not that of what is in it"
            if says_digest(graph.metadata)
            else "it has no digest"
        )
        raise SafeclError("exported.file.altered", path=path, why=why, trust=TRUST)
    return graph


def _needed(graph: Graph, size: int, side: int) -> tuple[int, Need]:
    """(how many pictures can be asked about at a time, what that needs); ``ValueError`` where none
    can be.
    """
    for batch in BATCHES[:-1]:
        try:
            return batch, need(graph, size, {"pictures": (batch, side, side, 3)})
        except TooLargeError:
            continue
    return BATCHES[-1], need(graph, size, {"pictures": (BATCHES[-1], side, side, 3)})


def _session(runtime: Any, providers: list[str], data: bytes, path: Path) -> Any:
    """ONNX Runtime's session; what is wrong with the file is one sentence."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what is wrong is said below
    options.enable_mem_reuse = (
        False  # planning it takes four times as long as all the rest, and saves no run time
    )
    try:
        return runtime.InferenceSession(data, options, providers=providers)
    except Exception as error:  # its own kinds of errors, by what is wrong
        raise _damaged(path, _reason(error)) from None


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _damaged(path: Path, reason: str) -> SafeclError:
    return SafeclError("exported.file.damaged", path=path, reason=reason)


def _check_ours(text: Mapping[str, str], path: Path) -> None:
    if "safecl" not in text:
        raise SafeclError("exported.file.foreign", path=path)


def _metadata(text: Mapping[str, str], path: Path) -> dict[str, Any]:
    """What the file says of itself."""
    _check_ours(text, path)
    try:
        found = {key: json.loads(text[key], parse_constant=_no_number) for key in METADATA}
        if found["format"] > FORMAT:
            raise SafeclError("exported.file.newer", path=path, version=found["safecl"])
        _check(found)
    except MISFITS as error:
        raise _lies(path, error) from None
    return found


def _check_outputs(found: Mapping[str, Any], session: Any, path: Path) -> None:
    """Refuse metadata that the network belies."""
    classes = found["classes"]
    outputs = {output.name: output.shape for output in session.get_outputs()}
    try:
        if (given := [one.name for one in session.get_inputs()]) != ["pictures"]:
            raise ValueError(f"its input is called {', '.join(given)}, not pictures")
        for name in (
            "probabilities",
            *(f"probabilities_{output}" for output in found["outputs"][:-1]),
        ):
            if outputs[name][1:] != [len(classes)]:
                raise ValueError(f"{len(classes)} classes, and {name} of {outputs[name][1:]}")
        outputs["score"]
    except MISFITS as error:
        raise _lies(path, error) from None


def _lies(path: Path, error: Exception) -> SafeclError:
    reason = f"no {error}" if isinstance(error, KeyError) else str(error)
    return SafeclError("exported.facts.damaged", path=path, reason=reason)


def _no_number(word: str) -> float:
    raise ValueError(f"{word} in the place of a number")


def _check(found: Mapping[str, Any]) -> None:
    """Refuse metadata that contradict themselves."""
    classes = found["classes"]
    sides = (found["size"], found["resize"])
    calibration = found["calibration"]
    if (
        not classes
        or not all(isinstance(label, str | int) for label in classes)
        or len(set(classes)) < len(classes)
    ):
        raise ValueError("its classes are not different words or numbers")
    if not all(isinstance(side, int) for side in sides) or not 1 <= sides[0] <= sides[1]:
        raise ValueError(f"pictures of {sides[0]} out of {sides[1]} pixels")
    found["outputs"][-1], found["backbone"]["name"]
    if calibration:  # what else is read of it
        calibration["temperature"], counted(calibration["pictures"], "picture")
    for limits in (thresholds, least):
        if limits(calibration, 0.99, len(classes)).shape != (len(classes),):
            raise ValueError("scores of other classes")
