"""CUB-200-2011: 200 species of birds."""

from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, PROCESSED, Archive, Dataset, Plan
from safecl.streams.datasets.layout import plan_processed, read_image_folder


def plan_cub(sources: Sequence[Source]) -> Plan:
    """The processed archive, or the official one with its lists ``images.txt`` and ``train_test_split.txt``."""
    for source in sources:
        names = source.names()
        lists = {PurePosixPath(name).name: name for name in names if name.endswith(".txt")}
        if {"images.txt", "train_test_split.txt"} <= lists.keys():
            return Plan(OFFICIAL, [(source, official_moves(source, set(names), lists))])
    return plan_processed(sources)


def official_moves(source: Source, names: set[str], lists: dict[str, str]) -> dict[str, str]:
    paths = numbered(source, lists["images.txt"])
    training = numbered(source, lists["train_test_split.txt"])
    top = PurePosixPath(lists["images.txt"]).parent
    moves = {}
    for number, path in paths.items():
        name = str(top / "images" / path)
        if name not in names or number not in training:
            raise SafeclError(f"{source.path} lists {path}, but the picture or its split is missing; fetch it again.")
        moves[name] = f"{'train' if training[number] == '1' else 'test'}/{path}"
    return moves


def numbered(source: Source, name: str) -> dict[str, str]:
    """Lines ``number value``."""
    lines = source.read(name).decode("utf-8").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.strip())


CUB = Dataset(
    name="cub",
    title="CUB-200-2011",
    folder="cub",
    home="https://www.vision.caltech.edu/datasets/cub_200_2011",
    classes=200,
    counts={PROCESSED: (9_430, 2_358), OFFICIAL: (5_994, 5_794)},
    first=20,
    step=20,
    archives=(
        Archive("cub.zip", "85e342a2d5f941e740193602057df7a5"),
        Archive(
            "CUB_200_2011.tgz",
            "97eceeb196236b17998738112f37df78",
            "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
        ),
    ),
    fetch="fetch cub.zip (the field's 9 430 / 2 358 split; linked in the readme of github.com/LAMDA-CL/LAMDA-PILOT) "
    "and run `safecl data prepare cub --from cub.zip`, or take the official 5 994 / 5 794 split by "
    "`safecl data prepare cub --download`.",
    licence="non-commercial research and education",
    plan=plan_cub,
    read=partial(read_image_folder, name="cub"),
    pitfalls=(
        "Two splits are in use: the processed 80/20 one, which the paper's numbers are on, and the official one.",
        "A few pictures are grey; nothing is cut to the bounding box.",
    ),
)
