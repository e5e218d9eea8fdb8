"""How fast a model predicts pictures in memory, against one pass of timm's network over as many.

    python benchmarks/predict.py                    # ViT-B/16, 10,000 pictures of 256 × 256, two classes
    python benchmarks/predict.py --pictures 500 --backbone vit_tiny_patch16_224

Random weights do not change the time. The pass of timm's network is in bfloat16 on CUDA, over inputs on
the device.
"""

import argparse
import time

import numpy as np
import timm
import torch

from safecl import ContinualClassifier


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="vit_base_patch16_224")
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--side", type=int, default=256)
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (chosen.pictures, chosen.side, chosen.side, 3), dtype=np.uint8)
    model = ContinualClassifier(chosen.backbone, epochs=1, settings={"backbone.weights": "random"})
    model.learn(images[:8], ["a", "b"] * 4)
    model.learn(images[8:16], ["c", "d"] * 4)
    model.predict(images[: chosen.pictures // 5])
    took = min(timed(lambda: model.predict(images), device) for _ in range(3))
    floor = min(once(chosen.backbone, chosen.pictures, 250, device) for _ in range(3))
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(f"{name}: {chosen.pictures} pictures in {took:.2f} s, {took / floor:.2f} times one pass of timm's network")


if __name__ == "__main__":
    main()
