"""CIFAR-100: 100 classes of 32-pixel pictures, enlarged to 224."""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.plans import OFFICIAL, Plan

if TYPE_CHECKING:
    from safecl.streams.collection import Collection
    from safecl.streams.pictures.images import ArrayPictures

FILES = ("train", "test", "meta")


def plan(sources: Sequence[Source]) -> Plan:
    for source in sources:
        found = {PurePosixPath(name).name: name for name in source.names()}
        if set(FILES) <= found.keys():
            return Plan(OFFICIAL, [(source, {found[name]: name for name in FILES})])
    raise SafeclError(f"{sources[0].path} lacks one of the files train, test and meta of CIFAR-100's Python version.")


def read(place: Path) -> "Collection":
    """Classes are numbered alphabetically, as in ``meta``, and labelled by their names."""
    from safecl.streams.collection import Collection

    names = [str(name) for name in load(place / "meta", "fine_label_names")[0]]
    train, test = (_pictures(place / part, names) for part in ("train", "test"))
    return Collection("cifar100", train, test, tuple(names), home=place)


def _pictures(path: Path, names: Sequence[str]) -> "ArrayPictures":
    from safecl.streams.pictures.images import ArrayPictures

    data, labels = load(path, "data", "fine_labels")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (len(labels), 3072):
        raise SafeclError(f"{path} does not hold CIFAR-100 pictures (rows of 3072 bytes); prepare cifar100 again.")
    arrays = np.ascontiguousarray(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return ArrayPictures(arrays, [names[label] for label in labels])


def load(path: Path, *keys: str) -> list[Any]:
    """Values of a pickle of lists, bytes and numpy arrays; anything else in it is refused before it can run."""
    try:
        found = _Restricted(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except SafeclError:
        raise
    except Exception as error:  # a broken pickle raises almost anything
        raise SafeclError(f"{path} cannot be read ({error}); prepare cifar100 again.") from None
    if not isinstance(found, dict) or not found.keys() >= set(keys):
        raise SafeclError(f"{path} does not hold {' and '.join(keys)} of CIFAR-100; prepare cifar100 again.")
    return [found[key] for key in keys]


class _Restricted(pickle.Unpickler):
    """Builds numpy arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        # numpy moved its core; files of 2009 name the old place.
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for old protocols
            return lambda value, encoding="latin1": value.encode("latin1")
        raise SafeclError(f"A CIFAR-100 file asks to run {module}.{name}; it is not the published one.")
