"""A server's content blocks as text and files: results of calls, resources, prompts.

The text names each file in its place by its number; the files stand beside it. Nothing goes in
silence: what a model cannot be shown is told in one line.

====================  ==================================================================
text                  as it is; lone surrogates become U+FFFD
image                 a file, if `files.read_file` takes it; what it is, its bytes say
audio                 never shown: no wire takes it in a result
embedded resource     its text behind a line that names it, or a file (images, PDF)
resource link         a line: name, address, type, size. `read_resource` reads it
structured content    as JSON, unless the text says the same
====================  ==================================================================

A result may hold 1 MiB of text and `MAX_FILES` files. Files of a failed call are left out: Claude
takes text alone there ("all content must be type text if is_error is true").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from addendum.encoding import clean, decode, encode
from addendum.errors import ContentError
from addendum.log.values import Media
from addendum.tools.files import read_file
from addendum.tools.mcp import checked_json, cut, one_line

MAX_FILES = 10
"""Files of one result."""

MAX_FILES_BYTES = 14_000_000
"""Bytes of the files of one result; no request can carry more (`prompt.media`)."""


def read_content(
    content: Sequence[dict[str, Any]], structured: Any = None, *, failed: bool = False
) -> tuple[str, tuple[Media, ...]]:
    """Return a result as the text that the model reads, and the files that the text names.

    Args:
        content: The content blocks in the protocol's own spelling (`mimeType` ...).
        structured: The result's `structuredContent`, or None.
        failed: Whether it tells of a failure.
    """
    parts: list[str] = []
    texts: list[str] = []
    media: list[Media] = []
    for block in content:
        kind = block.get("type")
        resource = cast("dict[str, Any]", block.get("resource") or {})
        if kind == "text":
            texts.append(str(block.get("text", "")))
            parts.append(texts[-1])
        elif kind == "resource" and "text" in resource:
            texts.append(str(resource["text"]))
            parts.append(f"[resource {_about(resource)}]\n{texts[-1]}")
        elif kind in ("image", "resource"):
            parts.append(_file(block, media, failed=failed))
        else:
            parts.append(_described(block))
    if structured is not None:
        checked = _structured(structured)
        if not _told(checked, texts):
            shown = encode(checked).decode()
            parts.append(f"[structured content]\n{shown}" if any(texts) else shown)
    return cut(clean("\n".join(parts))), tuple(media)


def _file(block: dict[str, Any], media: list[Media], *, failed: bool) -> str:
    resource = cast("dict[str, Any]", block.get("resource") or block)
    try:
        if len(media) == MAX_FILES:
            raise ContentError(f"a result may have {MAX_FILES} files")
        file = read_file(resource.get("data", resource.get("blob")))
        if failed:
            raise ContentError("the call failed")
        if sum(each.size for each in media) + file.size > MAX_FILES_BYTES:
            raise ContentError(f"a result may have {MAX_FILES_BYTES:,} bytes of files")
    except ContentError as error:
        return _described(block, str(error))
    media.append(file)
    name = one_line(str(resource.get("uri") or ""))
    word = "image" if file.media_type.startswith("image/") else "document"
    about = ", ".join(each for each in (file.media_type, f"{file.size:,} bytes", name) if each)
    return f"[{word} {len(media)}: {about}]"


def _told(structured: Any, texts: Sequence[str]) -> bool:
    """Say whether the text holds the structured content, as the protocol asks of servers.

    Some wrap what is no object in `{"result": ...}` and tell each item of a list in a block.
    """
    read: list[Any] = []
    for text in texts:
        try:
            read.append(decode(text))
        except ContentError:
            read.append(text)
    wanted = [structured]
    if isinstance(structured, dict) and list(cast("dict[str, Any]", structured)) == ["result"]:
        wanted.append(cast("dict[str, Any]", structured)["result"])
    said = [*read, *texts]
    return any(each in said or each in (read, list(texts)) for each in wanted)


def _structured(value: Any) -> Any:
    try:
        return checked_json(value)
    except ContentError as error:
        return {"error": f"structured content left out: {error}"}


def _about(thing: dict[str, Any]) -> str:
    given = (thing.get(key) for key in ("name", "uri", "mimeType"))
    return one_line(", ".join(str(value) for value in given if value))


def _described(block: dict[str, Any], why: str = "") -> str:
    kind = one_line(str(block.get("type", "unknown")), 40)
    resource = cast("dict[str, Any]", block.get("resource") or block)
    data = resource.get("data", resource.get("blob"))
    size = resource.get("size")
    if isinstance(data, str):
        # Base64: four characters carry three bytes.
        size = len(data) * 3 // 4 - data[-2:].count("=")
    about = _about(resource)
    shown = f"{kind.replace('_', ' ')} {about}".strip()
    if isinstance(size, int):
        shown += f", {size:,} bytes"
    if kind == "resource_link":
        return f"[{shown}]"
    why = why or ("audio cannot be given to a model here" if kind == "audio" else "unknown content")
    return f"[{shown}: not shown: {why}]"
