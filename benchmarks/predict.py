"""How fast a model predicts: pictures in memory against one pass of timm's network, or files
against a plain loop.

    python benchmarks/predict.py  # ViT-B/16, 10,000 pictures of 256 × 256, two classes
    python benchmarks/predict.py --pictures 500 --backbone vit_tiny_patch16_224
    python benchmarks/predict.py --folder photos --pictures 128  # files, with the embedded backbone
    python benchmarks/predict.py --folder photos --pictures 128 --side 3000  # from a camera

Random weights do not change the time. The pass of timm's network is in bfloat16 on CUDA, over
inputs on the device. The plain loop decodes 64 files, each as a whole, and gives them to the same
networks, whose weights have the layout of torch's. They take turns; medians are compared. Beside
other work the seconds of the processor tell more than those of the clock.
"""

import argparse
import copy
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image

from safecl import ContinualClassifier
from safecl.learner import Learner
from safecl.methods.method import Method
from safecl.streams.pictures.images import plain_view

BATCH = 64
ROUNDS = 3
LEARNED = 24


def once(backbone: str, pictures: int, batch: int, device: torch.device) -> float:
    """Seconds of one forward pass of timm's network over as many inputs."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    network = timm.create_model(backbone, num_classes=0).eval().to(device, dtype)
    side = network.patch_embed.img_size[0]
    images = torch.rand(batch, 3, side, side, device=device, dtype=dtype)
    with torch.inference_mode():
        for _ in range(3):
            network(images)
        return timed(lambda: [network(images) for _ in range(pictures // batch)], device)


def timed(call, device: torch.device) -> float:  # type: ignore[no-untyped-def]
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.monotonic()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - began


def plain(method: Method) -> Method:
    """A twin whose weights lie in memory as torch's layers make them."""
    twin = copy.deepcopy(method)
    for part in twin.modules():
        if isinstance(part, Learner):
            part.fuse()
    for layer in twin.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.weight.data = layer.weight.data.contiguous()
    return twin


def enlarged(files: list[Path], side: int, folder: Path) -> list[Path]:
    """The pictures as JPEG files with this shorter side."""
    for path in files:
        with Image.open(path) as image:
            scale = side / min(image.size)
            large = image.convert("RGB").resize([round(scale * each) for each in image.size])
            large.save(folder / f"{len(list(folder.iterdir())):05d}.jpg", quality=90)
    return sorted(folder.iterdir())


def files(found: list[Path]) -> None:
    """Print what a picture costs in ``predict``, in the plain loop, and in the networks alone."""
    paths = [str(path) for path in found]
    model = ContinualClassifier(epochs=1, settings={"method.pilots.use": False})
    asked = paths[LEARNED:]
    model.learn(paths[: LEARNED // 2], ["a", "b"] * (LEARNED // 4))
    model.learn(paths[LEARNED // 2 : LEARNED], ["c", "d"] * (LEARNED // 4))
    now = model._snapshot()
    method = now.method
    transform = now.model.transform
    views = list[torch.Tensor]()
    before = plain(method)

    def view(path: str) -> torch.Tensor:
        with Image.open(path) as image:
            return plain_view(image.convert("RGB"), transform)

    @torch.no_grad()
    def loop() -> None:
        views.clear()
        for at in range(0, len(asked), BATCH):
            views.append(torch.stack([view(path) for path in asked[at : at + BATCH]]))
            before.logits(views[-1].to(method.backbone.device).float() / 255)

    @torch.no_grad()
    def networks() -> None:
        for batch in views:
            method.logits(batch.to(method.backbone.device).float() / 255)

    model.predict(asked[:BATCH])
    spent: dict[str, list[tuple[float, float]]] = {
        "plain loop": [],
        "predict": [],
        "networks alone": [],
    }
    for _ in range(ROUNDS):
        for name, call in zip(spent, (loop, lambda: model.predict(asked), networks), strict=True):
            clock = time.perf_counter()
            processor = time.process_time()
            call()
            spent[name].append((time.perf_counter() - clock, time.process_time() - processor))
    medians = {
        name: [statistics.median(column) for column in zip(*took, strict=True)]
        for name, took in spent.items()
    }
    for name, (clock, processor) in medians.items():
        each = f"{1000 * processor / len(asked):.1f} ms of the processor a picture"
        print(f"{name:<15} {len(asked) / clock:7.1f} pictures/s, {each}")
    ratios = [a / b for a, b in zip(medians["plain loop"], medians["predict"], strict=True)]
    print(
        f"predict is {ratios[0]:.2f} times as fast as the plain loop, {ratios[1]:.2f} times by the"
        " processor"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="vit_base_patch16_224")
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--side", type=int, help="of pictures in memory, 256; of files: their own")
    parser.add_argument(
        "--folder", type=Path, help="predict the JPEG files in it, with the embedded backbone"
    )
    chosen = parser.parse_args()
    if chosen.folder is not None:
        found = sorted(chosen.folder.rglob("*.jpg"))[: chosen.pictures + LEARNED]
        with tempfile.TemporaryDirectory() as folder:
            files(enlarged(found, chosen.side, Path(folder)) if chosen.side else found)
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    random = np.random.default_rng(0)
    side = chosen.side or 256
    images = random.integers(0, 256, (chosen.pictures, side, side, 3), dtype=np.uint8)
    model = ContinualClassifier(chosen.backbone, epochs=1, settings={"backbone.weights": "random"})
    model.learn(images[:8], ["a", "b"] * 4)
    model.learn(images[8:16], ["c", "d"] * 4)
    model.predict(images[: chosen.pictures // 5])
    took = min(timed(lambda: model.predict(images), device) for _ in range(3))
    floor = min(once(chosen.backbone, chosen.pictures, 250, device) for _ in range(3))
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(
        f"{name}: {chosen.pictures} pictures in {took:.2f} s, {took / floor:.2f} times one pass of"
        " timm's network"
    )


if __name__ == "__main__":
    main()
