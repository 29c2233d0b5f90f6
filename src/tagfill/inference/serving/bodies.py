"""The body of a request: no larger, no slower and in no more parts than allowed, and then the images in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from tagfill.errors import ImageError
from tagfill.images.header import open_header
from tagfill.inference.serving.limits import Limits

PLAIN = ("image/jpeg", "image/png", "image/webp")
_FIELD_BYTES = 1024


class RefusedError(Exception):
    """A request that asks for what it may not have."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Upload:
    """An image of a request, not yet decoded."""

    name: str
    content: bytes


async def uploads(request: Request, limits: Limits) -> list[Upload]:
    """The images of a request.

    Args:
        request: whose body is an image, or a form (`multipart/form-data`) with files named `images`.
        limits: that it must keep to.

    Raises:
        RefusedError: with 400, 408, 411, 413 or 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    length = request.headers.get("content-length")
    if length is not None and (not length.isdigit() or int(length) > limits.body):
        raise RefusedError(413, f"the body is larger than {limits.body:,} bytes")
    body = _bounded(request, limits)
    if kind in PLAIN:
        content = b"".join([chunk async for chunk in body])
        return [Upload("image", content)]
    if kind == "multipart/form-data":
        return await _files(request, body, limits)
    raise RefusedError(415, f"send an image ({', '.join(PLAIN)}) or a form with files named 'images'")


def check(upload: Upload, limits: Limits) -> None:
    """Look at the header of an image: its format and its size, before any pixel is decoded.

    Raises:
        RefusedError: with 413 or 415.
    """
    try:
        width, height = open_header(upload.name, upload.content).size
    except ImageError as error:
        raise RefusedError(415, str(error).rstrip(".")) from None
    if width * height > limits.pixels:
        raise RefusedError(413, f"image {upload.name} has more than {limits.pixels:,} pixels")


async def _bounded(request: Request, limits: Limits) -> AsyncGenerator[bytes, None]:
    """The body, as long as it keeps to its size and its time."""
    size, until = 0, time.monotonic() + limits.body_seconds
    stream = request.stream()
    while True:
        try:
            chunk = await asyncio.wait_for(anext(stream, None), until - time.monotonic())
        except TimeoutError:
            raise RefusedError(408, f"the body did not come within {limits.body_seconds:g} seconds") from None
        except ClientDisconnect:
            raise RefusedError(400, "the connection was closed before the body had come") from None
        if chunk is None:
            return
        size += len(chunk)
        if size > limits.body:
            raise RefusedError(413, f"the body is larger than {limits.body:,} bytes")
        yield chunk


async def _files(request: Request, body: AsyncGenerator[bytes, None], limits: Limits) -> list[Upload]:
    parser = MultiPartParser(
        request.headers, body, max_files=limits.images, max_fields=limits.images, max_part_size=_FIELD_BYTES
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        status = 413 if "Too many" in error.message or "exceeded" in error.message else 400
        raise RefusedError(status, f"the form cannot be read: {error.message.rstrip('.')}") from None
    except (KeyError, ValueError, UnicodeDecodeError):
        raise RefusedError(400, "the form cannot be read") from None
    try:
        files = [value for name, value in form.multi_items() if name == "images" and isinstance(value, UploadFile)]
        return [Upload(_name(file, number), await file.read()) for number, file in enumerate(files)]
    finally:
        await form.close()


def _name(file: UploadFile, number: int) -> str:
    """What the sender calls an image, for answers alone; it never becomes a path."""
    name = (file.filename or "").replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(sign for sign in name if sign.isprintable())[:100] or f"image {number}"
