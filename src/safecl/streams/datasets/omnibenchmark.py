"""OmniBenchmark: 300 classes sampled from 21 realms of web pictures."""

from functools import partial

from safecl.streams.datasets.dataset import PROCESSED, Archive, Dataset
from safecl.streams.datasets.layout import plan_processed, read_image_folder

OMNIBENCHMARK = Dataset(
    name="omnibenchmark",
    title="OmniBenchmark",
    folder="omnibenchmark",
    home="https://github.com/ZhangYuanhan-AI/OmniBenchmark",
    classes=300,
    counts={PROCESSED: (89_697, 5_985)},
    first=30,
    step=30,
    archives=(Archive("omnibenchmark.zip", "f1c30808a707f9197c6c811ea52e5cbb"),),
    fetch="fetch omnibenchmark.zip (the 300 classes the field uses; linked in the readme of "
    "github.com/LAMDA-CL/LAMDA-PILOT) and run `safecl data prepare omnibenchmark --from omnibenchmark.zip`.",
    licence="research only, not commercial",
    plan=plan_processed,
    read=partial(read_image_folder, name="omnibenchmark", forgiving=True),
    pitfalls=(
        "Web pictures: a JPEG that breaks off is filled up with grey, as the field's loaders do.",
        "The full benchmark has 7 372 classes; only the processed archive says which 300 are meant.",
    ),
)
