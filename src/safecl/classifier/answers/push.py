"""A model on the Hugging Face hub: its file and its card, in one commit."""

import os
from pathlib import Path

from safecl.classifier.modelfile.store import ModelFile
from safecl.errors import SafeclError


def push(path: Path, repo: str, *, private: bool = False) -> str:
    """Put a model, or what was exported of one, and its card into a repository, which is made if it
    is not there.

    The endpoint is HF_ENDPOINT, the token the one of ``hf auth login`` or HF_TOKEN. Gives the
    address of the commit.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    card = card_of(path)
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        name = api.create_repo(repo, private=private, exist_ok=True).repo_id
        parts = [
            CommitOperationAdd(path.name, str(path)),
            CommitOperationAdd("README.md", card.encode()),
        ]
        commit = api.create_commit(name, parts, commit_message=f"Put {path.name} here with safecl")
    except Exception as error:  # the hub's, the network's and those of wrong names
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise SafeclError("push.failed", path=path, repo=repo, reason=reason) from None
    return str(commit.commit_url)


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
