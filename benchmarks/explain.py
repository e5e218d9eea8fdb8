"""Do heat maps show what an answer rests on? Deletion and insertion curves against random masks and
the centre.

    python benchmarks/explain.py --pictures DIR [--weights FILE --name vit_tiny_patch16_224] \
        [--maps FOLDER]

DIR holds train/CLASS and test/CLASS. A model learns some classes in two sessions. Of test pictures
the patches of the most heat are replaced by the mean colour (deletion: the probability of the
answer should fall soon), or put back into a blurred picture (insertion: it should rise soon).
Printed: the mean probability over shares of patches, by order.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from safecl import ContinualClassifier
from safecl.classifier.answers.calibrate import probabilities
from safecl.classifier.answers.explain import overlay, placed, relevance
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import positions

SHARES = (0.125, 0.25, 0.5, 0.75)  # of the patches


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--name", default="micro", help="of the backbone")
    parser.add_argument("--weights", help="its weight file")
    parser.add_argument("--size", type=int, help="pixels per side of its input")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--each", type=int, default=8, help="training pictures per class")
    parser.add_argument("--tested", type=int, default=2, help="test pictures per class")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--maps", type=Path, help="a folder for the overlays")
    o = parser.parse_args()
    data = read_folder(o.pictures, duplicates="allow")
    chosen = data.classes[: o.classes]
    train = positions(data.train.labels)
    test = positions(data.test.labels)
    settings = {"backbone.weights": o.weights} if o.weights else {}
    model = ContinualClassifier(o.name, epochs=o.epochs, image_size=o.size, settings=settings)
    for half in (chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]):
        model.learn(data.train.subset([int(i) for label in half for i in train[label][: o.each]]))
    pictures = data.test.subset([int(i) for label in chosen for i in test[label][: o.tested]])
    found = measure(
        model, pictures.plain(range(len(pictures)), model._fitted.transform).float() / 255
    )
    heat = found.pop("heat")
    for i in range(len(pictures) if o.maps else 0):
        o.maps.mkdir(parents=True, exist_ok=True)
        image = pictures.decode(i)
        transform = model._fitted.transform
        overlay(image, placed(heat[i], image.size, transform), transform).save(
            o.maps / f"{i:03d}.png"
        )
    print(json.dumps({"backbone": o.name, "pictures": len(pictures), **found}))


def measure(model: ContinualClassifier, views: Tensor) -> dict[str, Any]:
    """The mean probability of the answer to views (N, 3, size, size) while they are deleted or
    inserted, by order.
    """
    now = model._snapshot()
    method = now.method
    calibration = now.calibration

    @torch.no_grad()
    def sure(images: Tensor) -> Tensor:
        return torch.cat(
            [probabilities(method.logits(part), calibration) for part in images.split(32)]
        )

    answers = sure(views).argmax(dim=1)
    heat = torch.stack(
        [relevance(method, view[None], int(i)) for view, i in zip(views, answers, strict=True)]
    )
    rows, columns = heat.shape[1:]
    y, x = torch.meshgrid(
        torch.linspace(-1, 1, rows), torch.linspace(-1, 1, columns), indexing="ij"
    )
    dice = torch.Generator().manual_seed(0)
    orders = {
        "heat map": heat,
        "centre": -(x**2 + y**2).expand_as(heat),
        "random": torch.rand(heat.shape, generator=dice),
    }
    size = views.shape[-1]
    blurred = gaussian_blur(views, [2 * (size // 8) + 1] * 2, [size / 12] * 2)
    mean = views.mean(dim=(2, 3), keepdim=True)
    result: dict[str, Any] = {"heat": heat, "deletion": {}, "insertion": {}}
    for name, order in orders.items():
        rank = order.flatten(1).argsort(dim=1, descending=True).argsort(dim=1).reshape(heat.shape)
        for kind, (start, end) in {
            "deletion": (views, mean),
            "insertion": (blurred, views),
        }.items():
            curve = []
            for share in SHARES:
                mask = F.interpolate(
                    (rank < share * rows * columns).float()[:, None], size=views.shape[2:]
                )
                p = sure(start * (1 - mask) + end * mask)
                curve.append(float(p.gather(1, answers[:, None]).mean()))
            result[kind][name] = round(sum(curve) / len(curve), 3)
    return result


if __name__ == "__main__":
    main()
