"""ImageZoomInTool on images from everywhere."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from queue_client.tools import ImageZoomInTool
from queue_client.tools.images import BadImage


@pytest.fixture
def tool() -> Iterator[ImageZoomInTool]:
    made = ImageZoomInTool(config={"rate_limit": 2})
    yield made
    made.close()


@pytest.fixture
def image() -> Image.Image:
    """200 x 100 pixels, red but for a blue square at (150, 50)."""
    made = Image.new("RGB", (200, 100), "red")
    made.paste("blue", (150, 50, 190, 90))
    return made


def as_png(image: Image.Image) -> bytes:
    held = io.BytesIO()
    image.save(held, "PNG")
    return held.getvalue()


async def zoomed(tool: ImageZoomInTool, source: Any, **parameters: Any) -> Any:
    instance, created = await tool.create(create_kwargs={"image": source})
    assert created.is_empty()
    found = await tool.execute(instance, parameters)
    await tool.release(instance)
    await tool.release(instance)
    return found


async def test_a_region_is_cut_out(tool: ImageZoomInTool, image: Image.Image) -> None:
    box = [150, 50, 190, 90]
    response, reward, metrics = await zoomed(tool, image, bbox_2d=box, label="square")
    assert response.text == (
        "Zoomed in on the image to the region [150, 50, 190, 90] with label square."
    )
    (cut,) = response.image
    assert cut.size == (40, 40)
    assert cut.getpixel((20, 20)) == (0, 0, 255)
    assert (reward, metrics) == (0.0, {"success": True})


@pytest.mark.parametrize("box", [[0, 0, 5, 100], [9, 9, 1, 1], None, "x"])
async def test_a_bad_box_costs_a_little(
    tool: ImageZoomInTool, image: Image.Image, box: Any
) -> None:
    response, reward, metrics = await zoomed(tool, image, bbox_2d=box)
    assert response.text.startswith("Error: ")
    assert response.image is None
    assert (reward, metrics) == (-0.05, {"success": False})


async def test_images_come_from_everywhere(
    tool: ImageZoomInTool, image: Image.Image, tmp_path: Path
) -> None:
    path = tmp_path / "an image.png"
    image.save(path)
    inline = "data:image/png;base64," + base64.b64encode(as_png(image)).decode()
    with served(as_png(image)) as url:
        sources = [image, str(path), path, path.as_uri(), inline, url, as_png(image)]
        for source in [*sources, {"image": str(path)}, image.convert("RGBA"), image.convert("L")]:
            response, _, _ = await zoomed(tool, source, bbox_2d=[0, 0, 50, 50])
            assert response.image[0].size == (50, 50), source
            assert response.image[0].mode == "RGB"


@pytest.mark.parametrize(
    "source",
    ["/nowhere.png", "data:image/png;base64,!", "data:,x", "http://127.0.0.1:1/x", b"text", 7],
)
async def test_an_image_that_cannot_be_had_is_an_error(tool: ImageZoomInTool, source: Any) -> None:
    with pytest.raises(BadImage, match="image"):
        await tool.create(image=source)


async def test_an_image_is_needed(tool: ImageZoomInTool) -> None:
    with pytest.raises(ValueError, match="image"):
        await tool.create()
    response, reward, _ = await tool.execute("unknown", {"bbox_2d": [0, 0, 50, 50]})
    assert (response.text, reward) == ("Error: there is no image.", -0.05)


class served:  # noqa: N801
    """An HTTP server that has one image."""

    def __init__(self, data: bytes) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{self._http.server_port}/x.png"

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
