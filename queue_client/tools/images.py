"""Getting at an image: an object of Pillow's, a path, a file:, data: or http(s) address."""

from __future__ import annotations

import base64
import binascii
import io
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

MAX_BYTES = 64 * 1024 * 1024
_CHUNK = 1 << 16


class BadImage(ValueError):
    """The image cannot be had; says why, without its content."""


def is_remote(source: Any) -> bool:
    """Whether the image has to be fetched over the network."""
    return isinstance(source, str) and source.lower().startswith(("http://", "https://"))


def load_image(source: Any, *, timeout_s: float = 30.0) -> Any:
    """Return the image as Pillow's, in RGB. Raises BadImage."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(source, dict):
        source = source.get("image", source.get("bytes"))
    if isinstance(source, Image.Image):
        return _rgb(source)
    try:
        data = _bytes(source, timeout_s)
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            return _rgb(image)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError) as error:
        raise BadImage(f"image: cannot be read ({type(error).__name__})") from error


def _rgb(image: Any) -> Any:
    from PIL import Image

    if image.mode == "RGBA":  # what shows through is white, as on a page
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.split()[3])
        return white
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _bytes(source: Any, timeout_s: float) -> bytes:
    if isinstance(source, bytes | bytearray):
        return bytes(source)
    if isinstance(source, Path):
        return _file(source)
    if not isinstance(source, str):
        raise BadImage(f"image: a path, an address or an image expected ({type(source).__name__})")
    if is_remote(source):
        return _fetched(source, timeout_s)
    if source.startswith("data:"):
        return _inline(source)
    if source.startswith("file://"):
        return _file(Path(unquote(urlsplit(source).path)))
    return _file(Path(source))


def _file(path: Path) -> bytes:
    if path.stat().st_size > MAX_BYTES:
        raise BadImage(f"image: larger than {MAX_BYTES} bytes")
    return path.read_bytes()


def _inline(source: str) -> bytes:
    head, comma, data = source.partition(",")
    if not comma or not head.endswith(";base64"):
        raise BadImage("image: a data: address in base64 expected")
    try:
        return base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        raise BadImage("image: the data: address is not base64") from None


def _fetched(url: str, timeout_s: float) -> bytes:
    import requests

    try:
        with requests.get(url, timeout=timeout_s, stream=True) as reply:
            reply.raise_for_status()
            data = bytearray()
            for chunk in reply.iter_content(_CHUNK):
                data += chunk
                if len(data) > MAX_BYTES:
                    raise BadImage(f"image: larger than {MAX_BYTES} bytes")
            return bytes(data)
    except requests.RequestException as error:
        raise BadImage(f"image: cannot be fetched ({type(error).__name__})") from error
