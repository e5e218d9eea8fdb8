"""Runs of two sessions on many architectures of timm, with random weights: that they go through.

    python benchmarks/architectures.py        # some ten minutes; what was done is not done again

Each network learns two sessions of two drawn characters: ``run ranpac pet=none`` on all of them,
``run safe pet=ssf`` on those marked. A line for each in benchmarks/results/architectures.jsonl:
what the network is, what is read of it, which PETs it takes, the accuracies and the seconds of this
machine. A failure is a line as well. ``benchmarks/tables.py`` writes the table of
docs/backbones.md.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import safecl
from safecl.errors import SafeclError
from safecl.pet.facts import network_facts

FILE = Path(__file__).resolve().parent / "results" / "architectures.jsonl"
SMALL = (
    "device=cpu",
    "precision=fp32",
    "stream.classes=4",
    "stream.train=4",
    "stream.test=3",
    "stream.sessions=2",
    "ridge.size=100",
    "backbone.weights=random",
)
TUNED = ("train.epochs=1", "train.batch_size=8", "pet=ssf")
# By name, the side of the pictures where it is not the network's own; those before the line are
# tuned as well.
NETWORKS: dict[str, int | None] = {
    "test_vit": 64,
    "test_vit2": 64,
    "test_vit3": 64,
    "test_vit4": 64,
    "vit_tiny_patch16_224": 64,
    "deit_tiny_distilled_patch16_224": 64,
    "deit3_small_patch16_224": 64,
    "eva02_tiny_patch14_224": 56,
    "vit_small_patch16_dinov3": 64,
    "vit_pe_core_tiny_patch16_384": 64,
    "beit_base_patch16_224": 32,
    "vit_srelpos_small_patch16_224": 64,
    "cait_xxs24_224": 64,
    "xcit_nano_12_p16_224": 64,
    "swin_tiny_patch4_window7_224": 56,
    "swinv2_tiny_window8_256": 64,
    "pvt_v2_b0": 64,
    "tiny_vit_5m_224": 64,
    "edgenext_xx_small": 64,
    "test_convnext": 64,
    "test_convnext2": 64,
    "convnext_atto": 64,
    "convnextv2_atto": 64,
    "inception_next_atto": 64,
    "test_resnet": 64,
    "resnet18": 64,
    "resnet26d": 64,
    "resnetv2_18": 64,
    "regnetx_002": 64,
    "test_efficientnet": 64,
    "efficientnet_b0": 64,
    "mobilenetv3_small_050": 64,
    "mobilenetv4_conv_small_050": 64,
    "mobileone_s0": 64,
    "test_byobnet": 64,
    "test_mambaout": 64,
    "test_nfnet": 64,
    "fasternet_t0": 64,
    "starnet_s050": 64,
    "repvit_m1": 64,
    "mobilevit_xxs": 64,
    "mobilevitv2_050": 64,
}
FROZEN: dict[str, int | None] = {
    "vit_base_patch16_siglip_gap_224": 32,
    "vit_medium_patch16_gap_256": 64,
    "convit_tiny": 64,
    "swinv2_cr_tiny_224": 56,
    "hiera_tiny_224": 64,
    "twins_svt_small": 64,
    "lcnet_035": 64,
    "ghostnet_050": 64,
    "rexnet_100": 64,
    "coatnet_pico_rw_224": 64,
    "maxvit_pico_rw_256": 64,
    "swiftformer_xs": 64,
    "shvit_s1": 64,
    "efficientvit_b0": 64,
    "efficientvit_m0": 64,
    "hgnetv2_b0": 64,
    "repghostnet_050": 64,
    "cs3darknet_focus_s": 64,
    "dla46x_c": 64,
    "resnest14d": 64,
    "skresnet18": 64,
    "densenet121": 64,
    "dpn48b": 64,
    "fastvit_t8": 64,
    "poolformerv2_s12": 64,
    "lcnetv2_small": 64,
    "legacy_seresnet18": 64,
    "levit_128s": None,
    "efficientformer_l1": None,
    "pit_ti_224": None,
    "gmlp_ti16_224": None,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="some of the networks; all if not given")
    parser.add_argument("--out", type=Path, default=FILE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = read(args.out)
    every = NETWORKS | FROZEN
    for name in args.names or every:
        for preset in ("ranpac", "safe") if name in NETWORKS else ("ranpac",):
            if (name, preset) in done:
                continue
            row = one(name, preset, every[name])
            with args.out.open("a") as file:
                print(json.dumps(row), file=file)
            print(f"{name:36} {preset:7} {row.get('error') or row['accuracy']}", flush=True)


def read(file: Path) -> set[tuple[str, str]]:
    """What was done: network and preset."""
    rows = map(json.loads, file.read_text().splitlines() if file.exists() else ())
    return {(row["name"], row["preset"]) for row in rows if not row["error"]}


def one(name: str, preset: str, side: int | None) -> dict[str, Any]:
    """A run, as one line."""
    started = time.perf_counter()
    words = [f"backbone={name}", *SMALL, *(TUNED if preset == "safe" else ["pet=none"])]
    words += [] if side is None else [f"backbone.image_size={side}"]
    row: dict[str, Any] = {"name": name, "preset": preset, "side": side, "error": ""}
    try:
        facts = network_facts(name, side)
        row |= {"kind": facts.kind, "parameters": facts.parameters, "pets": facts.pets}
        row |= {"d": facts.widths.own, "depth": facts.widths.depth, "read": facts.own}
        with tempfile.TemporaryDirectory() as folder:
            safecl.run(preset, *words, folder=Path(folder) / "run", show="quiet")
            lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
            pooled = json.loads(lines[-1])["pooled"]
            row["accuracy"] = round(list(pooled.values())[-1], 4)
    except (SafeclError, RuntimeError, ValueError, TypeError) as error:
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    return {**row, "seconds": round(time.perf_counter() - started, 1)}


if __name__ == "__main__":
    main()
