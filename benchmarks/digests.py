"""What a preset computes, as a few short digests: two versions of the package that print the same
lines compute the same to the last bit.

    python benchmarks/digests.py [PRESET …] [--pets ssf adapter vpt_deep] > before.txt

Each line is a preset with a PET on the embedded stream (three sessions, class- or
domain-incremental, the embedded backbone, a tiny head): the accuracies of every output after every
session, a digest of the logits of every output, and one of the state. That of the state is of the
values of its tensors in any order, whatever their names: a name may change, a number may not.
Tensors of fewer than two dimensions (counters, flags, single numbers) are omitted.
"""

import argparse
import hashlib
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

import safecl
from safecl.engine.checkpoint import load_state
from safecl.experiments.config import load, presets
from safecl.experiments.launch import build
from safecl.methods.catalog import make_method
from safecl.methods.method import restore

SMALL = (
    "backbone=micro",
    "precision=fp32",
    "device=cpu",
    "stream.classes=12",
    "stream.train=5",
    "stream.test=3",
    "stream.sessions=3",
)
PROTOCOLS = ("class", "domain")
PETS = ("ssf", "adapter", "vpt_deep")
OWN = {"loranpac": ["method.size=600"]}


def words(preset: str, pet: str | None, protocol: str) -> list[str]:
    """The settings of one line."""
    settings = load(preset)
    found = [*SMALL, f"stream.protocol={protocol}", *OWN.get(preset, [])]
    if settings.method.idle_outside("train.epochs") is None:
        found += ["train.epochs=2", "train.batch_size=12"]
        if settings.train.later_epochs is not None:
            found.append("train.later_epochs=1")
        if settings.train.milestones:
            found.append("train.milestones=[1]")
    if pet is not None:
        found.append(f"pet={pet}")
    if hasattr(settings.method, "ridge") and settings.method.ridge.project:
        found.append("ridge.size=200")
    return found


def digest(tensors: Iterable[Tensor]) -> str:
    """Of the values of tensors, in any order."""
    every = sorted(
        hashlib.sha256(
            f"{tuple(tensor.shape)}{tensor.dtype}".encode() + tensor.contiguous().numpy().tobytes()
        ).hexdigest()
        for tensor in tensors
    )
    return hashlib.sha256("".join(every).encode()).hexdigest()[:12]


@torch.no_grad()
def line(preset: str, pet: str | None, protocol: str, folder: Path) -> str:
    given = words(preset, pet, protocol)
    safecl.run(preset, *given, folder=folder, show="quiet")
    rows = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    accuracies = hashlib.sha256(json.dumps([row["pooled"] for row in rows]).encode()).hexdigest()[
        :12
    ]
    last = " ".join(f"{name} {value:.4f}" for name, value in rows[-1]["pooled"].items())
    settings = load(preset, given)
    backbone, stream, *_ = build(settings)
    method = make_method(settings.method, backbone, settings.seed)
    tensors, facts = load_state(sorted((folder / "state").glob("session_*.safetensors"))[-1])
    restore(method, tensors, facts["classes"])
    method.eval()
    test = stream.test(1)
    images = test.plain(range(len(test)), stream.transform).float() / 255
    logits = method.answer(method.embed(images))
    state = {
        tensor.data_ptr(): tensor
        for tensor in tensors.values()
        if tensor.ndim > 1 and tensor.numel()
    }
    said = (
        f"accuracies {accuracies}  logits {digest(logits.values())}  state {digest(state.values())}"
    )
    return f"{preset:22} {pet or '-':9} {protocol:7} {said}  {last}"


def pairs(chosen: list[str], pets: list[str]) -> list[tuple[str, str | None]]:
    """Each preset with each PET, of those that it may have; others as they are."""
    found: list[tuple[str, str | None]] = []
    for preset in chosen:
        if preset in ("paper", "published", "safe", "ranpac", "demo"):
            found += [(preset, pet) for pet in pets]
        else:
            found.append((preset, None))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "presets", nargs="*", default=[name for name in presets() if name != "demo"]
    )
    parser.add_argument("--pets", nargs="+", default=list(PETS))
    args = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order, whatever the machine
    for preset, pet in pairs(args.presets, args.pets):
        for protocol in PROTOCOLS:
            with tempfile.TemporaryDirectory() as folder:
                print(line(preset, pet, protocol, Path(folder, "run")), flush=True)


if __name__ == "__main__":
    main()
