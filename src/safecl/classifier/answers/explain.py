"""What a model looked at: a heat map for an answer, laid onto the picture, as PNG files and a
page.
"""

import io
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from safecl.atomic import write_bytes
from safecl.backbone.layers import watching
from safecl.classifier.answers.snapshot import Snapshot
from safecl.classifier.answers.sort import new_folder, numbered, safe_name
from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.methods.method import Method, all_logits
from safecl.report.gallery import Card, thumbnail
from safecl.report.templates import render, write
from safecl.runtime.answer import Answer
from safecl.streams.drawn.drawing import SANS, font_folder
from safecl.streams.pictures.decode import decode
from safecl.streams.pictures.find import File, printable
from safecl.streams.pictures.images import Transform, plain_view

SIDE = 768
THUMBNAIL = 360  # pixels of the longer side of a PNG, and of a picture on the page
LETTERS = 22  # pixels of the letters below it
MAX_ON_PAGE = 500  # pictures; two of about 10 kB each
# from little to much
COLOURS = np.array([[40, 20, 110], [170, 30, 120], [240, 95, 45], [255, 235, 90]])
OPAQUE = 0.9
UNSEEN = 0.35  # share of the colour where the heat is 1; brightness of what the model does not see
ABOUT = (
    "Left the picture, right what speaks for the answer: grey is nothing, else by the scale below,"
    " from little to much. What is dark around it is cut off before the model looks."
)


def relevance(method: Method, view: Tensor, index: int | None = None) -> Tensor:
    """How much each patch of a view (1, 3, size, size) in [0, 1] speaks for a class, or the answer:
    (h, w) in [0, 1].

    Gradient × value: how much the logit grows with what a head reads of a token, where that is
    positive, over the heads of the later half of the blocks of every network that the answer comes
    from. It is gradient × attention, summed over who reads; gradients of one block's tokens alone
    did not beat random masks.
    """
    with watching() as seen:
        logits = all_logits(method, view)[method.outputs[-1]][0]
        logit = logits[int(logits.argmax()) if index is None else index]
        read = [
            (one, v) for one in seen for v in one.values[len(one.values) // 2 :] if v.requires_grad
        ]
        if not read:
            raise SafeclError("answer.heat-map.attention", backbone=method.backbone.name)
        gradients = torch.autograd.grad(logit, [v for _, v in read], allow_unused=True)
    heat = torch.zeros(seen[0].grid, device=view.device)
    for (one, v), gradient in zip(read, gradients, strict=True):
        if gradient is not None:  # a network may only have chosen what another one computes
            rows = (gradient * v.detach()).float().sum(dim=3).relu().sum(dim=2)[0]
            heat += rows[one.first : one.first + heat.numel()].reshape(heat.shape)
    return heat / heat.max().clamp(min=torch.finfo(heat.dtype).tiny)


def heat_map(
    method: Method, transform: Transform, image: Image.Image, index: int | None = None
) -> Tensor:
    """How much each pixel of a picture speaks for a class, or the answer: (H, W) in [0, 1]; 0
    beside the view.
    """
    view = plain_view(image, transform).to(method.backbone.device)[None].float() / 255
    return placed(relevance(method, view, index).cpu(), image.size, transform)


def placed(heat: Tensor, size: tuple[int, int], transform: Transform) -> Tensor:
    """A map (h, w) of the plain view, on the picture of a width and height it is cut from: (H, W),
    0 beside it.
    """
    axes = []
    for side in size:
        resized = int(transform.resize * side / min(size))
        start = round((resized - transform.size) / 2)
        axes.append(((torch.arange(side) + 0.5) * resized / side - start) / transform.size * 2 - 1)
    x, y = torch.meshgrid(*axes, indexing="xy")
    grid = torch.stack([x, y], dim=-1)[None]
    laid = F.grid_sample(heat[None, None], grid, padding_mode="border", align_corners=False)
    return laid[0, 0].clamp(max=1) * ((x.abs() <= 1) & (y.abs() <= 1))


def overlay(
    image: Image.Image, heat: Tensor, transform: Transform, caption: str = ""
) -> Image.Image:
    """The picture in grey, coloured by its heat (H, W), dark where it is not seen; below it the
    scale and a caption.
    """
    seen = placed(torch.ones(1, 1), image.size, transform).numpy()
    grey = np.asarray(image.convert("L")) * (UNSEEN + (1 - UNSEEN) * seen)
    scale = np.broadcast_to(
        np.linspace(0, 1, image.width), (max(image.height // 20, 1), image.width)
    )
    h = np.concatenate([heat.numpy(), scale])
    under = np.concatenate([grey, np.full(scale.shape, 128.0)])
    colour = [np.interp(h, np.linspace(0, 1, len(COLOURS)), channel) for channel in COLOURS.T]
    mixed = np.stack([under + OPAQUE * h * (channel - under) for channel in colour], axis=2)
    drawn = Image.fromarray(mixed.round().clip(0, 255).astype(np.uint8))
    if not caption:
        return drawn
    font = ImageFont.truetype(font_folder() / SANS[0], LETTERS)
    fitting = font.font_variant(
        size=LETTERS * min(drawn.width / (font.getlength(caption) + LETTERS), 1)
    )
    framed = ImageOps.expand(drawn, (0, 0, 0, 2 * LETTERS), "white")
    ImageDraw.Draw(framed).text(
        (LETTERS // 2, framed.height - LETTERS), caption, "black", fitting, "lm"
    )
    return framed


class Explanations:
    """Heat maps in a new folder: a PNG for each picture, and a page of them."""

    def __init__(self, folder: Path, now: Snapshot, title: str) -> None:
        self.folder = new_folder(folder)
        self.now = now
        self.title = title
        self.count = 0
        self._cards: list[Card] = []

    def add(self, file: File, answer: Answer) -> None:
        """Explain the answer to a picture."""
        name = printable(file.path)
        image = ImageOps.contain(decode(file.read(), file.path), (SIDE, SIDE))
        now = self.now
        heat = heat_map(
            now.method, now.model.transform, image, now.method.classes.index(answer.label)
        )
        speaks = f"What speaks for {answer.label}"
        png = io.BytesIO()
        drawn = overlay(image, heat, now.model.transform, f"{speaks}; the answer: {answer.told}")
        drawn.save(png, "PNG")
        paths = (self.folder / f"{one}.png" for one in numbered(safe_name(Path(name).name)))
        write_bytes(next(path for path in paths if not path.exists()), png.getvalue())
        self.count += 1
        if self.count <= MAX_ON_PAGE:
            shown = [(thumbnail(image, THUMBNAIL), name), (thumbnail(drawn, THUMBNAIL), speaks)]
            self._cards.append(Card(shown, answer.told, [name]))

    def finish(self) -> Path:
        """Write the page."""
        rest = self.count - MAX_ON_PAGE
        more = f" {counted(rest, 'more is', 'more are')} in the folder." if rest > 0 else ""
        html = render(
            "pictures.html",
            title=self.title,
            subject="What it looked at",
            about=ABOUT + more,
            cards=self._cards,
        )
        return write(self.folder / "index.html", html)
