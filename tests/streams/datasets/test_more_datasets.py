"""The datasets that the paper does not use, as miniatures in their published formats."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from safecl.streams.catalog import check_stream
from safecl.streams.datasets import DATASETS
from safecl.streams.datasets.archive import open_source
from safecl.streams.datasets.dataset import record
from safecl.streams.settings import DatasetSettings
from tests.conftest import raises
from tests.streams.datasets.test_datasets import (
    miniature,
    opened,
    picture,
    processed,
    tarred,
    zipped,
)

__all__ = ["miniature"]


def sizes(stream: Any) -> list[int]:
    return [len(classes) for _, classes in stream.sessions]


def test_cars_in_folders_have_sixteen_classes_first(tmp_path: Path, miniature: Any) -> None:
    classes = [f"Car {i:03d} 2012" for i in range(196)]
    root = miniature(
        "cars", zipped(tmp_path / "mirror.zip", processed(classes, "car_data/car_data"))
    )
    assert record(root / "cars")["split"] == "official"
    stream = opened("cars", root)
    assert sizes(stream) == [16] + [20] * 9 and stream.labels[:3] == [
        classes[i] for i in (59, 134, 162)
    ]


def test_cars_as_they_were_published_are_read_by_their_devkit(tmp_path: Path, miniature) -> None:
    names = ["Ram C/V Van 2012", "Acura TL 2012"]
    folder = tmp_path / "mirror"
    (folder / "devkit").mkdir(parents=True)
    savemat(folder / "devkit/cars_meta.mat", {"class_names": np.array(names, dtype=object)})
    for part, file in (
        ("train", "devkit/cars_train_annos"),
        ("test", "cars_test_annos_withlabels"),
    ):
        (folder / f"cars_{part}").mkdir()
        kind = [("class", "O"), ("fname", "O")]
        rows = np.array([(1 + i % 2, f"{i:05d}.jpg") for i in range(4)], dtype=kind)
        savemat(folder / f"{file}.mat", {"annotations": rows[None]})
        for i in range(4):
            (folder / f"cars_{part}/{i:05d}.jpg").write_bytes(picture(10 * len(part) + i))
    stream = opened("cars", miniature("cars", folder), order_seed=None)
    assert stream.labels == ["Acura TL 2012", "Ram C-V Van 2012"]
    assert (len(stream.open(1).train), len(stream.test(1))) == (4, 4)
    assert "published with the pictures" in stream.split


def test_food_is_split_by_its_lists(tmp_path: Path, miniature: Any) -> None:
    classes = [f"dish_{i:03d}" for i in range(101)]
    files = {
        f"food-101/images/{c}/{k}.jpg": picture(7 * i + k)
        for i, c in enumerate(classes)
        for k in range(3)
    }
    for part, wanted in (("train", (0, 2)), ("test", (1,))):
        listed = {c: [f"{c}/{k}" for k in wanted] for c in classes}
        files[f"food-101/meta/{part}.json"] = json.dumps(listed).encode()
    archive = tarred(tmp_path / "food-101.tar.gz", files)
    root = miniature("food101", archive)
    assert (root / "food-101/test/dish_007/1.jpg").is_file() and (
        root / "food-101/train/dish_007/2.jpg"
    ).is_file()
    stream = opened("food101", root)
    assert sizes(stream) == [11] + [10] * 9
    assert [(len(s.train), len(stream.test(s.number))) for s in stream][:2] == [(22, 11), (20, 10)]
    del files["food-101/images/dish_003/0.jpg"]
    with raises("dataset.source.no-picture", name="images/dish_003/0.jpg"):
        DATASETS["food101"].plan(
            [open_source(tarred(tmp_path / "other.tar.gz", files), tmp_path / "work")]
        )


def flowers(folder: Path) -> Path:
    folder.mkdir()
    labels = np.array([1 + i % 102 for i in range(306)])
    pictures = {f"jpg/image_{i + 1:05d}.jpg": picture(i) for i in range(306)}
    tarred(folder / "102flowers.tgz", pictures)
    savemat(
        folder / "imagelabels.mat", {"labels": labels[None].astype(np.uint8)}, do_compression=True
    )
    numbers = np.arange(1, 307, dtype=np.uint16)[None]
    sets = {"trnid": numbers[:, :102], "valid": numbers[:, 102:204], "tstid": numbers[:, 204:]}
    savemat(folder / "setid.mat", sets)
    return folder


def test_flowers_learn_from_training_and_validation_sets(tmp_path: Path, miniature: Any) -> None:
    folder = flowers(tmp_path / "downloads")
    root = miniature("flowers102", folder)
    stream = opened("flowers102", root)
    assert sizes(stream) == [12] + [10] * 9
    assert sorted(stream.labels) == [f"{i:03d}" for i in range(1, 103)]
    assert (len(stream.open(1).train), len(stream.test(1))) == (24, 12)
    assert (root / "flowers102/test/005/image_00209.jpg").is_file()


@pytest.mark.parametrize("data", [None, b"", b"x" * 300], ids=["gone", "empty", "torn"])
def test_a_list_that_is_not_whole_is_one_sentence(
    tmp_path: Path, miniature: Any, data: bytes | None
) -> None:
    folder = flowers(tmp_path / "downloads")
    (folder / "setid.mat").unlink()
    if data is not None:
        (folder / "setid.mat").write_bytes(data)
    with raises("dataset.source.not-published", reader="Flowers102"):
        miniature("flowers102", folder)
    assert not (tmp_path / "root/flowers102").exists()


def test_pets_are_split_by_their_lists_and_named_by_breed(tmp_path: Path, miniature: Any) -> None:
    breeds = [f"great_dog_{i:02d}" if i % 2 else f"Cat_{i:02d}" for i in range(37)]
    folder = tmp_path / "downloads"
    folder.mkdir()
    ends = {"trainval": (1, 100), "test": (10,)}
    images = {
        f"images/{b}_{k}.jpg": picture(3 * i + k % 7)
        for i, b in enumerate(breeds)
        for k in (1, 10, 100)
    }
    tarred(folder / "images.tar.gz", images | {"images/Cat_00_9.mat": b"no picture"})
    lists = {}
    for part, numbers in ends.items():
        lines = [f"{b}_{k} {i + 1} 1 1" for i, b in enumerate(breeds) for k in numbers]
        lists[f"annotations/{part}.txt"] = "\n".join(lines).encode()
    trimaps = {"annotations/trimaps/Cat_00_1.png": picture(1, "PNG")}
    tarred(folder / "annotations.tar.gz", lists | trimaps)
    stream = opened("pets", miniature("pets", folder))
    assert sizes(stream) == [7, 10, 10, 10]
    assert sorted(stream.labels)[-1] == "Great Dog 35" and "Cat 00" in stream.labels
    assert (len(stream.open(1).train), len(stream.test(1))) == (14, 7)


def test_aircraft_are_variants_and_slashes_are_not_folders(tmp_path: Path, miniature: Any) -> None:
    variants = ["F/A-18", *(f"737-{i:03d}" for i in range(11))]
    files = {"fgvc-aircraft-2013b/data/variants.txt": "\n".join(variants).encode()}
    for start, part in enumerate(("trainval", "test")):
        names = {f"{1 + start}{i:06d}": variant for i, variant in enumerate(variants)}
        listed = "\n".join(f"{name} {variant}" for name, variant in names.items())
        files[f"fgvc-aircraft-2013b/data/images_variant_{part}.txt"] = listed.encode()
        for i, name in enumerate(names):
            files[f"fgvc-aircraft-2013b/data/images/{name}.jpg"] = picture(100 * start + i)
    archive = tarred(tmp_path / "fgvc-aircraft-2013b.tar.gz", files)
    stream = opened("aircraft", miniature("aircraft", archive))
    assert sizes(stream) == [10, 2] and "F-A-18" in stream.labels
    assert (len(stream.open(1).train), len(stream.test(1))) == (10, 10)


def test_textures_learn_from_training_and_validation_sets(tmp_path: Path, miniature: Any) -> None:
    classes = [f"texture{i:02d}" for i in range(47)]
    files = {
        f"dtd/images/{c}/{c}_{k:04d}.jpg": picture(5 * i + k)
        for i, c in enumerate(classes)
        for k in range(3)
    }
    for k, part in enumerate(("train", "val", "test")):
        lines = [f"{c}/{c}_{k:04d}.jpg" for c in classes]
        files[f"dtd/labels/{part}1.txt"] = "\n".join(lines).encode()
    stream = opened("dtd", miniature("dtd", tarred(tmp_path / "dtd-r1.0.1.tar.gz", files)))
    assert sizes(stream) == [7, 10, 10, 10, 10]
    assert (len(stream.open(1).train), len(stream.test(1))) == (14, 7)


def test_eurosat_has_a_drawn_split_which_is_always_the_same(tmp_path: Path, miniature) -> None:
    files = {
        f"2750/Land{c}/Land{c}_{k}.jpg": picture(10 * c + k) for c in range(10) for k in range(5)
    }
    files |= {"__MACOSX/2750/Land0/._Land0_0.jpg": b"junk"}
    archive = zipped(tmp_path / "EuroSAT.zip", files)
    stream = opened("eurosat", miniature("eurosat", archive))
    assert sizes(stream) == [2] * 5 and "drawn" in stream.split
    assert [(len(s.train), len(stream.test(s.number))) for s in stream] == [(8, 2)] * 5
    plans = [DATASETS["eurosat"].plan([open_source(archive, tmp_path / w)]) for w in ("a", "b")]
    assert plans[0].moves[0][1] == plans[1].moves[0][1]


def test_traffic_signs_are_named_by_their_numbers(tmp_path: Path, miniature: Any) -> None:
    folder = tmp_path / "downloads"
    folder.mkdir()
    signs = {
        f"GTSRB/Training/{c:05d}/00000_{k:05d}.ppm": picture(3 * c + k, "PPM")
        for c in range(43)
        for k in range(2)
    }
    zipped(folder / "GTSRB-Training_fixed.zip", signs)
    tests = {f"{c:05d}.ppm": c for c in range(43)}
    pictures = {f"GTSRB/Final_Test/Images/{f}": picture(900 + c, "PPM") for f, c in tests.items()}
    zipped(folder / "GTSRB_Final_Test_Images.zip", pictures)
    lines = ["Filename;Width;ClassId", *(f"{file};6;{c}" for file, c in tests.items())]
    zipped(folder / "GTSRB_Final_Test_GT.zip", {"GT-final_test.csv": "\n".join(lines).encode()})
    stream = opened("gtsrb", miniature("gtsrb", folder))
    assert sizes(stream) == [3] + [5] * 8
    assert sorted(stream.labels) == [f"{c:02d}" for c in range(43)]
    assert (len(stream.open(1).train), len(stream.test(1))) == (6, 3)


def test_imagenet_r_and_a_from_their_official_tars_have_a_drawn_split(
    tmp_path: Path, miniature: Any
) -> None:
    for name in ("imagenet-r", "imagenet-a"):
        files = {
            f"{name}/n{i:08d}/{k}.jpg": picture(10 * i + k) for i in range(20) for k in range(5)
        }
        files[f"{name}/README.txt"] = b"hello"
        root = miniature(name, tarred(tmp_path / f"{name}.tar", files))
        stream = opened(name, root)
        assert record(root / name)["split"] == "drawn" and "drawn" in stream.split
        assert (len(stream.open(1).train), len(stream.test(1))) == (80, 20)
        differing = check_stream(DatasetSettings(name=name, root=root)).warnings
        assert any("(drawn split)" in line for line in differing)


def test_office_home_has_a_drawn_split_in_each_of_four_domains(
    tmp_path: Path, miniature: Any
) -> None:
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
    few = {name: data for name, data in files.items() if "/Art/" not in name}
    with raises("dataset.domains.lacking", missing="Art", title="Office-Home"):
        archive = zipped(tmp_path / "few.zip", few)
        DATASETS["office-home"].plan([open_source(archive, tmp_path / "work")])


def test_cifar_10_is_read_by_torchvision(tmp_path: Path, miniature: Any) -> None:
    names = [f"thing{i}" for i in range(10)]
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (60, 3072), dtype=np.uint8)
    files = {"batches.meta": pickle.dumps({"label_names": names}, protocol=2)}
    parts = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
    for i, part in enumerate(parts):
        rows = slice(10 * i, 10 * i + 10)
        entry = {"data": pixels[rows], "labels": list(range(10))}
        files[part] = pickle.dumps(entry, protocol=2)
    files = {f"cifar-10-batches-py/{name}": data for name, data in files.items()}
    stream = opened(
        "cifar10", miniature("cifar10", tarred(tmp_path / "cifar-10-python.tar.gz", files))
    )
    assert sizes(stream) == [2] * 5 and stream.transform.resize == 224
    place = stream.labels.index("thing3")
    test = stream.test(1 + place // 2)
    found = np.asarray(test.decode(list(test.labels).index("thing3")))
    assert (found == pixels[53].reshape(3, 32, 32).transpose(1, 2, 0)).all()


def test_house_numbers_are_digits(tmp_path: Path, miniature: Any) -> None:
    folder = tmp_path / "downloads"
    folder.mkdir()
    random = np.random.default_rng(0)
    for part, count in (("train", 20), ("test", 10)):
        pixels = random.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        labels = np.array([[1 + i % 10] for i in range(count)], dtype=np.uint8)  # 10 is a zero
        savemat(folder / f"{part}_32x32.mat", {"X": pixels, "y": labels})
    stream = opened("svhn", miniature("svhn", folder))
    assert sizes(stream) == [2] * 5 and sorted(stream.labels) == list("0123456789")
    zero = stream.test(1 + stream.labels.index("0") // 2)
    found = np.asarray(zero.decode(list(zero.labels).index("0")))
    assert (found == pixels[:, :, :, 9]).all()


def test_stl_10_is_read_by_torchvision(tmp_path: Path, miniature: Any) -> None:
    random = np.random.default_rng(0)
    names = [f"thing{i}" for i in range(10)]
    files = {"class_names.txt": "\n".join(names).encode(), "fold_indices.txt": b"0"}
    pictures = {}
    for part in ("train", "test", "unlabeled"):
        pixels = random.integers(0, 256, (10, 3, 96, 96), dtype=np.uint8)
        files[f"{part}_X.bin"] = pixels.tobytes()
        files[f"{part}_y.bin"] = bytes(range(1, 11))
        pictures[part] = pixels
    files = {f"stl10_binary/{name}": data for name, data in files.items()}
    stream = opened("stl10", miniature("stl10", tarred(tmp_path / "stl10_binary.tar.gz", files)))
    assert sizes(stream) == [2] * 5 and sorted(stream.labels) == names
    part = stream.test(1 + stream.labels.index("thing4") // 2)
    found = np.asarray(part.decode(list(part.labels).index("thing4")))
    assert (found == pictures["test"][4].transpose(2, 1, 0)).all()


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "stl10"])
def test_arrays_of_which_a_file_is_missing_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    with raises("dataset.files.lacking", path=tmp_path / "in"):
        DATASETS[name].plan([open_source(tmp_path / "in", tmp_path / "work")])


def test_core50_learns_eight_places_and_is_tested_in_three_others(
    tmp_path: Path, miniature: Any
) -> None:
    places = [f"s{i}" for i in range(1, 12)]
    files = {
        f"core50_128x128/{s}/o{o}/C_{i:02d}_{o:02d}_{k:03d}.png": picture(
            100 * i + 2 * o + k, "PNG"
        )
        for i, s in enumerate(places)
        for o in (1, 2, 10)
        for k in range(2)
    }
    root = miniature("core50", zipped(tmp_path / "core50_128x128.zip", files))
    report = check_stream(DatasetSettings(name="core50", root=root))
    assert not report.problems
    stream = opened("core50", root)
    assert (
        tuple(name for name, _ in stream.sessions) == DATASETS["core50"].domains
        and stream.protocol == "domain"
    )
    assert stream.sessions[0][1] == ("o1", "o10", "o2")
    assert [(len(s.train), len(stream.test(s.number))) for s in stream] == [(6, 18)] + [(6, 0)] * 7
    with raises("dataset.domains.lacking", missing="s11"):
        few = {name: data for name, data in files.items() if "/s11/" not in name}
        DATASETS["core50"].plan([open_source(zipped(tmp_path / "few.zip", few), tmp_path / "work")])
