"""The datasets that the paper does not use, as miniatures in their published formats."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from safecl.errors import SafeclError
from safecl.streams.catalog import check_stream
from safecl.streams.datasets import DATASETS
from safecl.streams.datasets.archive import open_source
from safecl.streams.datasets.dataset import record
from safecl.streams.datasets.prepare import prepare
from safecl.streams.settings import DatasetSettings
from tests.streams.datasets.test_datasets import miniature, opened, picture, processed, tarred, zipped

__all__ = ["miniature"]


def sizes(stream: Any) -> list[int]:
    return [len(classes) for _, classes in stream.sessions]


def test_cars_in_folders_have_sixteen_classes_first(tmp_path: Path, miniature: Any) -> None:
    classes = [f"Car {i:03d} 2012" for i in range(196)]
    root = miniature("cars", zipped(tmp_path / "mirror.zip", processed(classes, "car_data/car_data")))
    assert record(root / "cars")["split"] == "official"
    stream = opened("cars", root)
    assert sizes(stream) == [16] + [20] * 9 and stream.labels[:3] == [classes[i] for i in (59, 134, 162)]


def test_food_is_split_by_its_lists(tmp_path: Path, miniature: Any) -> None:
    classes = [f"dish_{i:03d}" for i in range(101)]
    files = {f"food-101/images/{c}/{k}.jpg": picture(7 * i + k) for i, c in enumerate(classes) for k in range(3)}
    for part, wanted in (("train", (0, 2)), ("test", (1,))):
        lines = "\n".join(f"{c}/{k}" for c in classes for k in wanted)
        files[f"food-101/meta/{part}.txt"] = lines.encode()
    archive = tarred(tmp_path / "food-101.tar.gz", files)
    root = miniature("food101", archive)
    assert (root / "food-101/test/dish_007/1.jpg").is_file() and (root / "food-101/train/dish_007/2.jpg").is_file()
    stream = opened("food101", root)
    assert sizes(stream) == [11] + [10] * 9
    assert [(len(s.train), len(stream.test(s.number))) for s in stream][:2] == [(22, 11), (20, 10)]
    del files["food-101/images/dish_003/0.jpg"]
    with pytest.raises(SafeclError, match=r"dish_003/0\.jpg, but the picture is missing"):
        DATASETS["food101"].plan([open_source(tarred(tmp_path / "other.tar.gz", files))])


def test_pets_are_split_by_their_lists_and_named_by_breed(tmp_path: Path, miniature: Any) -> None:
    breeds = [f"Breed_{i:02d}" if i % 2 else f"great_dog_{i:02d}" for i in range(37)]
    folder = tmp_path / "downloads"
    folder.mkdir()
    names = [f"{b}_{k}" for b in breeds for k in (1, 10, 100)]
    images = {f"images/{name}.jpg": picture(i) for i, name in enumerate(names)}
    tarred(folder / "images.tar.gz", images | {"images/Breed_01_9.mat": b"no picture"})
    lists = {
        f"annotations/{part}.txt": ("#Image\n" + "\n".join(f"{n} 1 1 1" for n in names if n.endswith(ends))).encode()
        for part, ends in (("trainval", ("_1", "_100")), ("test", "_10"))
    }
    tarred(folder / "annotations.tar.gz", lists | {"annotations/trimaps/Breed_01_1.png": picture(1, "PNG")})
    with pytest.raises(SafeclError, match=r"not the published images\.tar\.gz"):
        miniature("pets", folder)
    root = tmp_path / "root"
    prepare(DATASETS["pets"], folder, root, any_md5=True)
    stream = opened("pets", root)
    assert sizes(stream) == [7, 10, 10, 10] and sorted(stream.labels) == sorted(breeds)
    assert (len(stream.open(1).train), len(stream.test(1))) == (14, 7)


def flowers(folder: Path) -> Path:
    folder.mkdir()
    labels = np.array([1 + i % 102 for i in range(306)])
    tarred(folder / "102flowers.tgz", {f"jpg/image_{i + 1:05d}.jpg": picture(i) for i in range(306)})
    savemat(folder / "imagelabels.mat", {"labels": labels[None].astype(np.uint8)}, do_compression=True)
    numbers = np.arange(1, 307, dtype=np.uint16)[None]
    sets = {"trnid": numbers[:, :102], "valid": numbers[:, 102:204], "tstid": numbers[:, 204:]}
    savemat(folder / "setid.mat", sets)
    return folder


def test_flowers_learn_from_training_and_validation_sets(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", flowers(tmp_path / "downloads")
    prepare(DATASETS["flowers102"], folder, root, any_md5=True)
    stream = opened("flowers102", root)
    assert sizes(stream) == [12] + [10] * 9 and sorted(stream.labels) == [f"{i:03d}" for i in range(1, 103)]
    assert (len(stream.open(1).train), len(stream.test(1))) == (24, 12)
    assert (root / "flowers102/test/005/image_00209.jpg").is_file()
    (folder / "setid.mat").unlink()
    with pytest.raises(SafeclError, match="missing: trnid, valid, tstid"):
        prepare(DATASETS["flowers102"], folder, tmp_path / "other", any_md5=True)


def test_a_broken_list_of_flowers_is_one_sentence(tmp_path: Path) -> None:
    folder = flowers(tmp_path / "downloads")
    whole = (folder / "setid.mat").read_bytes()
    for data in (b"", b"x" * 300, whole[:400]):
        (folder / "setid.mat").write_bytes(data)
        with pytest.raises(SafeclError, match=r"setid\.mat.*(fetch it again|missing: valid, tstid)\.$"):
            prepare(DATASETS["flowers102"], folder, tmp_path / "root", any_md5=True)


def test_core50_learns_eight_places_and_is_tested_in_three_others(tmp_path: Path, miniature: Any) -> None:
    places = [f"s{i}" for i in range(1, 12)]
    files = {
        f"core50_128x128/{s}/o{o}/C_{i:02d}_{o:02d}_{k:03d}.png": picture(100 * i + 2 * o + k, "PNG")
        for i, s in enumerate(places)
        for o in (1, 2, 10)
        for k in range(2)
    }
    root = miniature("core50", zipped(tmp_path / "core50_128x128.zip", files))
    report = check_stream(DatasetSettings(name="core50", root=root))
    assert not report.problems
    stream = opened("core50", root)
    assert tuple(name for name, _ in stream.sessions) == DATASETS["core50"].domains and stream.protocol == "domain"
    assert stream.sessions[0][1] == ("o1", "o10", "o2")
    assert [(len(s.train), len(stream.test(s.number))) for s in stream] == [(6, 18)] + [(6, 0)] * 7
    with pytest.raises(SafeclError, match="lacks the folders s11 of CORe50"):
        few = {name: data for name, data in files.items() if "/s11/" not in name}
        DATASETS["core50"].plan([open_source(zipped(tmp_path / "few.zip", few))])


def test_office_home_has_a_drawn_split_in_each_of_four_domains(tmp_path: Path, miniature: Any) -> None:
    files = {
        f"OfficeHomeDataset_10072016/{domain}/{c}/{k:05d}.jpg": picture(50 * d + 10 * i + k)
        for d, domain in enumerate(DATASETS["office-home"].domains)
        for i, c in enumerate(("Alarm_Clock", "Bed"))
        for k in range(5)
    } | {"OfficeHomeDataset_10072016/ImageInfo.csv": b"a,b"}
    root = miniature("office-home", zipped(tmp_path / "OfficeHomeDataset_10072016.zip", files))
    stream = opened("office-home", root)
    assert tuple(name for name, _ in stream.sessions) == ("Art", "Clipart", "Product", "Real World")
    assert [(len(s.train), len(stream.test(s.number))) for s in stream] == [(8, 2)] * 4
    assert "not the field's split" in stream.split
