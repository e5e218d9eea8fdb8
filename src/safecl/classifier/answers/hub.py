"""A model on the Hugging Face hub: its file, its card and what the hub reads, in one commit; and
back from there. Nothing is pickled, and nothing else than models is fetched.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safecl.atomic import replacing
from safecl.classifier.modelfile.place import replaceable
from safecl.classifier.modelfile.store import SUFFIX, ModelFile
from safecl.errors import SafeclError
from safecl.lines import as_json, counted, naming
from safecl.outputs import check_output, locked

SCHEME = "hf:"  # before USER/NAME on a command line
KINDS = (SUFFIX, ".onnx")  # of files that are fetched


def push(path: Path, repo: str, *, private: bool = False) -> str:
    """Put a model, or what was exported of one, and its card into a repository, which is made if it
    is not there.

    The endpoint is HF_ENDPOINT, the token the one of ``hf auth login`` or HF_TOKEN. Gives the
    address of the commit.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    card = card_of(path)
    about = config_of(path)
    repo = repo.removeprefix(SCHEME)
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    with without_places(path) as file:
        try:
            name = api.create_repo(repo, private=private, exist_ok=True).repo_id
            parts = [
                CommitOperationAdd(path.name, str(file)),
                CommitOperationAdd("README.md", card.encode()),
            ]
            if about is not None:
                parts.append(CommitOperationAdd("config.json", as_json(about, indent=2).encode()))
            commit = api.create_commit(
                name, parts, commit_message=f"Put {path.name} here with safecl"
            )
        except Exception as error:  # the hub's, the network's and those of wrong names
            raise SafeclError("push.failed", path=path, repo=repo, reason=_reason(error)) from None
    return str(commit.commit_url)


def fetch(source: str, revision: str | None = None, kinds: tuple[str, ...] = KINDS) -> Path:
    """The model in a repository, [hf:]USER/NAME[/FILE], in the hub's cache; without a network what
    the cache has of it.

    Where it holds several, FILE says which. ``kinds``: the endings of files that may be fetched.
    """
    from huggingface_hub import snapshot_download

    from safecl.backbone.hub import quiet_hub

    user, _, rest = source.removeprefix(SCHEME).partition("/")
    name, _, wanted = rest.partition("/")
    if wanted and not wanted.endswith(kinds):
        raise SafeclError("pull.kind", file=wanted, kinds=" or ".join(kinds))
    patterns = [wanted] if wanted else [f"*{kind}" for kind in kinds]
    try:
        with quiet_hub():
            folder = snapshot_download(
                f"{user}/{name}",
                revision=revision,
                allow_patterns=patterns,
                endpoint=os.environ.get("HF_ENDPOINT"),
            )
    except Exception as error:  # the hub's, the network's and those of wrong names
        raise SafeclError("pull.failed", source=source, reason=_reason(error)) from None
    found = [path for path in sorted(Path(folder).rglob("*")) if path.suffix in kinds]
    found = [path for path in found if wanted in ("", path.relative_to(folder).as_posix())]
    own = [path for path in found if path.suffix == SUFFIX] or found
    if not own:
        raise SafeclError("pull.none", source=source, kinds=" or ".join(kinds))
    if len(own) > 1:
        names = naming(path.relative_to(folder).as_posix() for path in own)
        raise SafeclError("pull.several", source=source, names=names)
    return own[0]


def pull(
    source: str, out: Path | None = None, *, revision: str | None = None, force: bool = False
) -> tuple[Path, str]:
    """Fetch a model into a file, ``out`` or its own name in the current folder; gives the file and
    what is in it. A model that can learn is only replaced with ``force``.
    """
    found = fetch(source, revision)
    place = Path(found.name) if out is None else out.expanduser()
    if place.suffix.lower() != found.suffix:
        raise SafeclError("pull.suffix", out=place, suffix=found.suffix)
    if found.suffix == SUFFIX:
        from safecl.classifier.answers.card import licence

        header = ModelFile(found).header  # which checks what it says
        told = f"{counted(len(header['classes']), 'class')}, backbone {header['backbone']['name']}"
        told += f", licence {licence(header)}"
    else:
        from safecl.runtime.model import ExportedModel

        told = counted(len(ExportedModel(found, device="cpu").known), "class")
    with locked(place) as file:
        if found.suffix == SUFFIX:
            replaceable(place, force)
        else:
            check_output(place, "onnx", force)
        with found.open("rb") as whole, replacing(file) as copy:
            shutil.copyfileobj(whole, copy)
    return place, told


def _reason(error: Exception) -> str:
    """The first sentence of an error of the hub's client."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


@contextlib.contextmanager
def without_places(path: Path) -> Iterator[Path]:
    """The file, or a copy of a model that names its weights without their folders, which may name
    people.
    """
    from safecl.classifier.answers.card import without_folders

    header = ModelFile(path).header if path.suffix.lower() == SUFFIX else {}
    if not header or without_folders(header) == header:
        yield path
        return
    from safecl.classifier.model import Model

    model = Model.open(path)
    with tempfile.TemporaryDirectory() as folder:
        clean = Model(without_folders(model.header), model.state)
        clean.save(Path(folder, path.name), frozen=header["frozen"])
        yield Path(folder, path.name)


def config_of(path: Path) -> dict[str, Any] | None:
    """``config.json``, by which the hub counts downloads and its tools know the classes; of weights
    alone none.
    """
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return None
    if suffix == ".onnx":
        from safecl.runtime.model import ExportedModel

        found = ExportedModel(path, device="cpu")
        classes = found.known
        size = found.metadata["size"]
    else:
        header = ModelFile(path).header
        classes = header["classes"]
        size = header["backbone"]["size"]
    names = [str(label) for label in classes]
    return {
        "model_type": "safecl",
        "image_size": size,
        "num_labels": len(names),
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def card_of(path: Path) -> str:
    """The card of a model file, of an exported ONNX file or of a safetensors file."""
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        from safecl.runtime.model import ExportedModel

        return str(ExportedModel(path, device="cpu").metadata["card"])
    if suffix == ".safetensors":
        from safecl.backbone.load import metadata

        found = metadata(path).get("card")
        if found is None:
            raise SafeclError("push.foreign", path=path)
        return found
    from safecl.classifier.answers.card import model_card
    from safecl.classifier.modelfile.schema import THUMBNAILS

    header = ModelFile(path).header
    told = (
        "\nThe file contains thumbnails of learned pictures.\n"
        if THUMBNAILS in header["members"]
        else ""
    )
    return model_card(header) + told
