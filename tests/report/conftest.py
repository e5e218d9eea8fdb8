"""Run folders as the engine leaves them, with made-up but plausible numbers."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from PIL import Image, ImageDraw, ImageFont

from safecl.report.page import write_page

FONT = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans-Bold.ttf"
OUTPUTS = {"safe": ["slow", "fast", "safe"]}
# (accuracy when learned, share lost with each later session) of each output
CHARACTER = {
    "safe": (0.90, 0.02),
    "slow": (0.86, 0.015),
    "fast": (0.88, 0.035),
    "ranpac": (0.87, 0.022),
    "finetune": (0.93, 0.75),
}
LABELS = [
    chr(code)
    for code in [*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0xC0, 0x100), *range(0x3B1, 0x3CA)]
]

MakeRun = Callable[..., Path]

TITLES = {"safe": "SAFE", "ranpac": "RanPAC", "finetune": "Fine-tuning"}


def write_run(
    folder: Path,
    method: str = "safe",
    sessions: int = 5,
    done: int | None = None,
    protocol: str = "class",
    labels: list[str] | None = None,
    seed: int = 0,
    examples: int = 8,
    preset: str = "",
    held_out: bool = False,
) -> Path:
    """Write a run of ``sessions`` sessions with ten classes each, of which ``done`` are
    finished.
    """
    done = sessions if done is None else done
    chance = random.Random(f"{method}{seed}")
    outputs = OUTPUTS.get(method, [method])
    labels = labels or (LABELS * math.ceil(10 * sessions / len(LABELS)))[: 10 * sessions]
    names = [f"classes {10 * i + 1}-{10 * i + 10}" for i in range(sessions)]
    parts = [labels[10 * i : 10 * i + 10] for i in range(sessions)]
    if protocol == "domain":
        names = [f"style {i + 1}" for i in range(sessions)]
        parts = [labels[:10]] * sessions
    facts: dict[str, Any] = {
        "version": "0.1.0",
        "method": method,
        "title": TITLES.get(method, method),
        "main": method,
        "outputs": outputs,
        "stream": {
            "name": "glyphs",
            "protocol": protocol,
            "sessions": [{"name": n, "classes": c} for n, c in zip(names, parts, strict=True)],
        },
        "backbone": {"name": "safecl_micro", "parameters": 5_500_000},
        "preset": preset,
        "pet": "ssf",
        "seed": seed,
        "device": "cpu",
        "hardware": "2 cores",
        "git": "0123abc+",
        "libraries": {"python": "3.11.0", "torch": "2.10.0"},
        "started": "2026-01-02T03:04:05Z",
        "command": f"safecl run glyphs method={method}",
    }
    folder.mkdir(parents=True)
    _write(folder / "facts.json", facts)
    (folder / "resolved.yaml").write_text(
        f"method: {method}\nseed: {seed}\nstream:\n  name: glyphs\n"
    )
    level = {output: [_level(output, chance) for _ in range(sessions)] for output in outputs}
    lines = [_metrics(t, names[t - 1], level, sessions, protocol) for t in range(1, done + 1)]
    for t, line in enumerate(lines, 1):
        if held_out:
            line["validation"] = {
                "counts": [20] * t,
                "pooled": dict.fromkeys(outputs, 0.9 - 0.01 * t),
            }
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    losses = [line for t in range(1, done + 1) for line in _losses(t, method, chance)]
    (folder / "losses.jsonl").write_text("".join(json.dumps(line) + "\n" for line in losses))
    if done == sessions:
        last = lines[-1]
        _write(folder / "summary.json", {"final": last["pooled"]})
        _examples(folder, labels, outputs, examples, sessions)
        _predictions(folder, parts, outputs)
    return folder


def _level(output: str, chance: random.Random) -> float:
    return CHARACTER.get(output, (0.8, 0.1))[0] + chance.uniform(-0.05, 0.05)


def _metrics(
    t: int, name: str, level: dict[str, list[float]], sessions: int, protocol: str
) -> dict[str, Any]:
    def known(output: str, after: int, i: int) -> float:
        if i > after:
            return 0.45 * level[output][i - 1]
        return level[output][i - 1] * (1 - CHARACTER.get(output, (0.8, 0.1))[1]) ** (after - i)

    shown = sessions if protocol == "domain" else t
    pooled = {o: sum(known(o, t, i) for i in range(1, shown + 1)) / shown for o in level}
    seen = {o: sum(known(o, t, i) for i in range(1, t + 1)) / t for o in level}
    first = {"pilots": True, "transfer": False, "kept": 0.75}
    later = {"released": t > 3, "average": 1 / t}
    notes = {"notes": first if t == 1 else later} if "slow" in level else {}
    lost = {
        o: sum(known(o, i, i) - known(o, t, i) for i in range(1, t)) / max(1, t - 1) for o in level
    }
    return {
        "session": t,
        "name": name,
        "classes_seen": 10 if protocol == "domain" else 10 * t,
        "test_counts": [100] * shown,
        "accuracy": {o: [known(o, t, i) for i in range(1, shown + 1)] for o in level},
        "pooled": pooled,
        "seen": seen,
        "task_mean": pooled,
        "forgetting": lost,
        **notes,
        "seconds": {"fit": 6.1 + t, "statistics": 0.8, "evaluate": 0.6, "total": 7.5 + t},
        "phases": [{"phase": "slow" if t == 1 else "fast", "steps": 200, "seconds": 6.1 + t}],
        "parameters": {"learnable": 12_345, "stored": 1_234_567 + 1000 * t},
        "peak_memory": 812_345_678,
        "images_per_second": 412.3,
        "bytes_kept": 2_345_678 + 4000 * t,
    }


def _losses(t: int, method: str, chance: random.Random) -> list[dict[str, Any]]:
    phase = method if method != "safe" else "slow" if t == 1 else "fast"
    result = []
    for step in range(0, 200, 5):
        cls = 2.3 * math.exp(-step / 60) + 0.2 + chance.uniform(0, 0.2)
        terms = {"cls": cls, "diag": 0.1} if method == "safe" else {"cls": cls}
        result.append(
            {
                "session": t,
                "phase": phase,
                "step": step,
                "epoch": step // 20,
                "loss": sum(terms.values()),
                "terms": terms,
                "lr": 0.01,
            }
        )
    return result


def _examples(
    folder: Path, labels: list[str], outputs: list[str], number: int, sessions: int
) -> None:
    (folder / "examples").mkdir()
    font = ImageFont.truetype(str(FONT), 40)
    cards = []
    for i in range(number):
        place = (i * 7) % len(labels)
        label = labels[place]
        image = Image.new(
            "RGB", (64, 64), ((i * 53) % 90 + 20, (i * 31) % 90 + 40, (i * 71) % 90 + 60)
        )
        ImageDraw.Draw(image).text(
            (14 + i % 9, 6), label[:1], font=font, fill=(250, 240 - 9 * i % 60, 200)
        )
        image.save(folder / "examples" / f"{i:02}.png")
        other = labels[(place + 1) % len(labels)]
        wrong = {"finetune": i % 4 != 3, "slow": i % 3 == 0, "fast": i % 5 == 1}
        cards.append(
            {
                "file": f"examples/{i:02}.png",
                "why": "chance",
                "label": label,
                "session": min(place // 10 + 1, sessions),
                "predictions": {o: other if wrong.get(o, i == 5) else label for o in outputs},
            }
        )
    for i, (why, label, other) in enumerate([("pair", 0, 1), ("pair", 0, 1)][:number]):
        cards.append(
            {
                "file": f"examples/{i:02}.png",
                "why": why,
                "label": labels[label],
                "session": 1,
                "predictions": dict.fromkeys(outputs, labels[other]),
            }
        )
    _write(folder / "examples.json", cards)


def _predictions(folder: Path, parts: list[list[str]], outputs: list[str]) -> None:
    """Ten pictures a class, all answered right but three of the first class."""
    first = parts[0][0]
    lines = []
    for session, classes in enumerate(parts, 1):
        for label in classes:
            for i in range(10):
                wrong = session == 1 and label == first and i < 3
                said = classes[1 + i % 2] if wrong else label
                line = {"session": session, "picture": f"{label}/{i}.png", "label": label}
                weights = {
                    "weights": {"slow": 0.55 - 0.01 * session, "fast": 0.45 + 0.01 * session}
                }
                lines.append(
                    {
                        **line,
                        "predicted": dict.fromkeys(outputs, said),
                        **(weights if "fast" in outputs else {}),
                    }
                )
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (folder / "predictions.jsonl").write_text(text, encoding="utf-8")


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Call it to have a run folder: ``make_run("name", method="safe", done=3)``."""

    def make(name: str = "run", **choices: Any) -> Path:
        return write_run(tmp_path / name, **choices)

    return make


VOID = {"meta", "link", "img", "br"}


class Reader(HTMLParser):
    """Collects a page's tags, ids, texts and attributes, and insists that what opens also
    closes.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data.replace("\u00a0", " ")

    def values(self, key: str) -> list[str]:
        return [value for _, name, value in self.attributes if name == key]


@pytest.fixture(scope="session")
def page() -> Callable[..., Reader]:
    """Call it to have a page written, checked and read: ``page([folder]).text``."""

    def read(folders: list[Path], title: str = "A title") -> Reader:
        return Reader(
            write_page(folders, folders[0].parent / "page.html", title).read_text(encoding="utf-8")
        )

    return read


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The whole HTML of two runs' page, with all its figures, made once."""
    place = tmp_path_factory.mktemp("drawn")
    folders = [
        write_run(place / method, method=method, sessions=3, held_out=True)
        for method in ("safe", "ranpac")
    ]
    return write_page(folders, place / "page.html", "Two runs").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def drawn_page(drawn: str) -> Reader:
    """The same page, read."""
    return Reader(drawn)
