"""VTAB as a stream: Resisc45, DTD, Pets, EuroSAT and Flowers, ten classes each, one after the other."""

from functools import partial

from safecl.streams.datasets.dataset import PROCESSED, Archive, Dataset
from safecl.streams.datasets.layout import plan_processed, read_image_folder

VTAB = Dataset(
    name="vtab",
    title="VTAB",
    folder="vtab",
    home="https://github.com/google-research/task_adaptation",
    classes=50,
    counts={PROCESSED: (1_796, 8_619)},
    first=10,
    step=10,
    archives=(Archive("vtab.zip", "a9c37bde6105a2516c900b0c33a437c1"),),
    fetch="fetch vtab.zip (linked in the readme of github.com/LAMDA-CL/LAMDA-PILOT) and run "
    "`safecl data prepare vtab --from vtab.zip`.",
    licence="by part: Pets CC BY-SA 4.0, EuroSAT MIT, the others research use",
    plan=plan_processed,
    read=partial(read_image_folder, name="vtab"),
    pitfalls=(
        "Never shuffled: the sorted folder names put one domain into each session; renaming a folder breaks that.",
        "Far more test than training pictures, about 36 of a class to learn from and very uneven.",
    ),
    shuffled=False,
)
