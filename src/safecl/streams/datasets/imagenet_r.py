"""ImageNet-R: renditions (paintings, toys, sketches, …) of 200 ImageNet classes."""

from functools import partial

from safecl.streams.datasets.dataset import PROCESSED, SEEDED, Archive, Dataset
from safecl.streams.datasets.layout import plan_processed_or_seeded, read_image_folder

IMAGENET_R = Dataset(
    name="imagenet-r",
    title="ImageNet-R",
    folder="imagenet-r",
    home="https://github.com/hendrycks/imagenet-r",
    classes=200,
    counts={PROCESSED: (24_000, 6_000), SEEDED: (24_000, 6_000)},
    first=20,
    step=20,
    archives=(
        Archive("imagenet-r.zip", "730aa3fb9c7d2ec0b6381c6b23040681"),
        Archive(
            "imagenet-r.tar",
            "a61312130a589d0ca1a8fca1f2bd3337",
            "https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar",
        ),
    ),
    fetch="fetch imagenet-r.zip (the field's 24 000 / 6 000 split; linked in the readme of "
    "github.com/LAMDA-CL/LAMDA-PILOT) and run `safecl data prepare imagenet-r --from imagenet-r.zip`, or take the "
    "official pictures with a split of our own by `safecl data prepare imagenet-r --download`.",
    licence="MIT for the repository; the pictures belong to their makers: research use",
    plan=plan_processed_or_seeded,
    read=partial(read_image_folder, name="imagenet-r"),
    pitfalls=(
        "There is no official split: numbers on the processed archive, on other lists and on a split drawn from the "
        "official tar are not comparable.",
        "Classes are strongly unbalanced, and an ImageNet backbone has seen the concepts.",
    ),
)
