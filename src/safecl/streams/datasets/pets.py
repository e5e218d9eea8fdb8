"""Oxford-IIIT Pets: 37 breeds of cats and dogs."""

from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Archive, Dataset, Plan
from safecl.streams.datasets.layout import pictures_of, read_image_folder

LISTS = {"trainval.txt": "train", "test.txt": "test"}
SITE = "https://www.robots.ox.ac.uk/~vgg/data/pets/data"


def plan_pets(sources: Sequence[Source]) -> Plan:
    """Two archives: pictures ``breed_number.jpg``, and the lists ``trainval.txt`` and ``test.txt`` of their names."""
    part_of: dict[str, str] = {}
    for source in sources:
        for name in source.names():
            part = LISTS.get(PurePosixPath(name).name)
            if part is not None:
                lines = source.read(name).decode("utf-8").splitlines()
                part_of |= {line.split()[0]: part for line in lines if line.strip() and not line.startswith("#")}
    if set(part_of.values()) != {"train", "test"}:
        raise SafeclError(
            "Oxford-IIIT Pets is prepared from one folder with images.tar.gz and annotations.tar.gz; the lists "
            "trainval.txt and test.txt are missing."
        )
    moves: list[tuple[Source, dict[str, str]]] = []
    for source in sources:
        found = {}
        for name in pictures_of(source.names()):
            stem = PurePosixPath(name).stem
            if stem in part_of and PurePosixPath(name).suffix == ".jpg":
                found[name] = f"{part_of[stem]}/{stem.rpartition('_')[0]}/{PurePosixPath(name).name}"
        moves.append((source, found))
    missing = part_of.keys() - {PurePosixPath(to).stem for _, found in moves for to in found.values()}
    if missing:
        raise SafeclError(f"{sources[0].path} lists {min(missing)}, but the picture is missing; fetch it again.")
    return Plan(OFFICIAL, moves)


PETS = Dataset(
    name="pets",
    title="Oxford-IIIT Pets",
    folder="oxford-pets",
    home="https://www.robots.ox.ac.uk/~vgg/data/pets",
    classes=37,
    counts={OFFICIAL: (3_680, 3_669)},
    first=7,
    step=10,
    archives=(
        Archive("images.tar.gz", "5c4f3ee8e5d25df40f4fd59a7f44e54c", f"{SITE}/images.tar.gz"),
        Archive("annotations.tar.gz", "95a8c909bbe2e81eed6a22bccdf3f68f", f"{SITE}/annotations.tar.gz"),
    ),
    fetch="run `safecl data prepare pets --download`, or fetch images.tar.gz and annotations.tar.gz into one folder "
    "and run `safecl data prepare pets --from FOLDER`.",
    licence="CC BY-SA 4.0",
    plan=plan_pets,
    read=partial(read_image_folder, name="pets"),
    pitfalls=(
        "A class is a breed, the file name without its number; names of cats begin with a capital letter.",
        "There is no common division into sessions: 7 classes, then 10 at a time.",
    ),
)
