"""ImageNet-A: natural pictures of 200 ImageNet classes on which an ordinary network fails."""

from functools import partial

from safecl.streams.datasets.dataset import PROCESSED, SEEDED, Archive, Dataset
from safecl.streams.datasets.layout import plan_processed_or_seeded, read_image_folder

IMAGENET_A = Dataset(
    name="imagenet-a",
    title="ImageNet-A",
    folder="imagenet-a",
    home="https://github.com/hendrycks/natural-adv-examples",
    classes=200,
    counts={PROCESSED: (5_981, 1_519), SEEDED: (6_000, 1_500)},
    first=20,
    step=20,
    archives=(
        Archive("ina.zip", "7f4aaf0b1532b7a0bd670822c152d3c5"),
        Archive(
            "imagenet-a.tar",
            "c3e55429088dc681f30d81f4726b6595",
            "https://people.eecs.berkeley.edu/~hendrycks/imagenet-a.tar",
        ),
    ),
    fetch="fetch ina.zip (the field's 5 981 / 1 519 split; linked in the readme of github.com/LAMDA-CL/LAMDA-PILOT) "
    "and run `safecl data prepare imagenet-a --from ina.zip`, or take the official pictures with a split of our own "
    "by `safecl data prepare imagenet-a --download`.",
    licence="MIT for the repository; the pictures belong to their makers: research use",
    plan=plan_processed_or_seeded,
    read=partial(read_image_folder, name="imagenet-a"),
    pitfalls=(
        "A class has as few as a handful of pictures, in the test about eight: curves of single classes are noisy.",
        "Its 200 classes are other ones than those of ImageNet-R.",
    ),
)
