"""How a picture becomes an input, wherever it is learned, asked about, served or given to an
exported file.
"""

from PIL import Image


def prepare(image: Image.Image, size: int, resize: int, side: int | None = None) -> Image.Image:
    """Shorter side to ``resize`` (bicubic), central crop of ``size``; ``side``: cut that much
    around the same crop.
    """
    short = min(image.size)
    side = side or size
    wanted = resize * image.width // short, resize * image.height // short
    image = image if image.size == wanted else image.resize(wanted, Image.Resampling.BICUBIC)
    before = round((side - size) / 2)
    left, top = (round((length - size) / 2) - before for length in wanted)
    return image.crop((left, top, left + side, top + side))
