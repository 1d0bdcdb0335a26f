"""A server's content blocks as text and files: results of calls, resources, prompts.

The text names each file in its place by its number; the files stand beside it. Nothing goes in
silence: what a model cannot be shown is told in one line, and costs nothing else.

====================  ==================================================================
text                  as it is; lone surrogates become U+FFFD
image                 a file, if `files.read_file` takes it; what it is, its bytes say
audio                 never shown: no wire takes it in a result
embedded resource     its text behind a line that names it, or a file (images, PDF)
resource link         a line: name, address, type, size. `read_resource` reads it
structured content    as JSON, unless the text says the same
any other             its text or its fields as JSON behind a line that names it
====================  ==================================================================

Servers send blocks that no version of the protocol knows, and leave fields out. Each block is read
by itself, whatever it is. Seen: `type: "error"` (BerriAI/litellm#36920, calebl/ynab-mcp-server#31),
structured content alone (modelcontextprotocol/python-sdk#1796, gwbtc/urbit-mcp#23), `toolResult` of
the first drafts (cloudflare/mcp-server-cloudflare#12).

A result may hold 1 MiB of text and `MAX_FILES` files. Files of a failed call are left out: Claude
takes text alone there ("all content must be type text if is_error is true").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from addendum.encoding import clean, decode, encode
from addendum.errors import ContentError
from addendum.lines import one_line
from addendum.log.values import Media
from addendum.tools.files import read_file
from addendum.tools.mcp.raw import BARE
from addendum.tools.mcp.values import CallOutcome, checked_json, cut

MAX_FILES = 10
"""Files of one result."""

MAX_FILES_BYTES = 14_000_000
"""Bytes of the files of one result; no request can carry more (`prompt.media`)."""

MAX_FIELDS = 64 * 1024
"""Bytes of JSON that a block of an unknown kind is shown with."""

_DATA_URL = re.compile(r"data:[\w.+/-]*(?:;[\w=.+-]+)*,")
_MISSING = object()


def call_outcome(result: dict[str, Any]) -> CallOutcome:
    """Return the answer to a call from its raw result, which may be anything."""
    failed = result.get("isError") in (True, "true", "True", 1)
    content = result.get("content", result.get(BARE))
    structured = result.get("structuredContent")
    if content is None and structured is None:
        # The first drafts of the protocol called it so; some put the whole result inside.
        content = result.get("toolResult")
        if isinstance(content, dict) and {"content", "structuredContent"} & content.keys():
            inner = cast("dict[str, Any]", content)
            return call_outcome({"isError": result.get("isError"), **inner})
    text, media = read_content(blocks(content), structured, failed=failed)
    if not text and not media and not {"content", "structuredContent"} & result.keys():
        rest = {key: value for key, value in result.items() if key not in _ENVELOPE}
        text = _fields(rest) if rest else text
        if not text and BARE not in result and content is None:
            text = "[the answer has no content]"
    return CallOutcome(text, failed, media=media)


_ENVELOPE = frozenset({"_meta", "isError", "resultType", "ttlMs", "cacheScope", BARE, "toolResult"})


def blocks(content: Any) -> list[Any]:
    """Return content as a list of blocks, however it was sent: a list, one block, text, none."""
    if content is None:
        return []
    return cast("list[Any]", content) if isinstance(content, list) else [content]


def objects(content: Any) -> list[dict[str, Any]]:
    """Return those of the blocks that are objects."""
    return [cast("dict[str, Any]", each) for each in blocks(content) if isinstance(each, dict)]


def read_content(
    content: Sequence[Any], structured: Any = None, *, failed: bool = False
) -> tuple[str, tuple[Media, ...]]:
    """Return a result as the text that the model reads, and the files that the text names.

    Args:
        content: The content blocks in the protocol's own spelling (`mimeType` ...); each may be
            anything.
        structured: The result's `structuredContent`, or None.
        failed: Whether it tells of a failure.
    """
    parts: list[str] = []
    texts: list[str] = []
    media: list[Media] = []
    for block in content:
        if isinstance(block, str):
            texts.append(block)
            parts.append(block)
        elif isinstance(block, dict):
            parts.append(_block(cast("dict[str, Any]", block), texts, media, failed=failed))
        else:
            parts.append(f"[a block that is none: {_short(block)}]")
    if structured is not None:
        checked = _structured(structured)
        if not _told(checked, texts):
            shown = encode(checked).decode()
            parts.append(f"[structured content]\n{shown}" if any(texts) else shown)
    return cut(clean("\n".join(parts))), tuple(media)


def _block(block: dict[str, Any], texts: list[str], media: list[Media], *, failed: bool) -> str:
    kind = _kind(block)
    if kind == "text":
        text = block.get("text", _MISSING)
        if text is _MISSING or text is None:
            rest = {key: value for key, value in block.items() if key not in ("type", "text")}
            return f"[text: {_fields(rest)}]" if rest else "[text: not shown: it has none]"
        texts.append(text if isinstance(text, str) else _fields(text))
        return texts[-1]
    if kind in ("image", "resource"):
        found = block.get("resource", block)
        resource = cast("dict[str, Any]", found) if isinstance(found, dict) else {"uri": found}
        if isinstance(resource.get("text"), str):
            texts.append(resource["text"])
            return f"[{kind} {_about(resource)}]\n{texts[-1]}"
        return _file(block, resource, media, failed=failed)
    if kind in ("resource_link", "audio"):
        return _described(block)
    return _unknown(kind, block, texts)


def _kind(block: dict[str, Any]) -> str:
    kind = block.get("type")
    if isinstance(kind, str) and kind:
        return kind.lower() if kind.lower() in _KINDS else kind
    # Left out: what it holds says what it is.
    if isinstance(block.get("text"), str):
        return "text"
    if "resource" in block or "blob" in block:
        return "resource"
    if "data" in block:
        return "audio" if str(block.get("mimeType")).startswith("audio/") else "image"
    return "resource_link" if isinstance(block.get("uri"), str) else "unknown"


_KINDS = frozenset({"text", "image", "audio", "resource", "resource_link"})


def _unknown(kind: str, block: dict[str, Any], texts: list[str]) -> str:
    """Return what a block of a kind that we do not know says of itself."""
    rest = {
        key: value for key, value in block.items() if key not in ("type", "annotations", "_meta")
    }
    data = rest.get("data", rest.get("blob"))
    if not rest or (isinstance(data, str) and len(data) > 200):
        return _described(block)
    name = one_line(kind, 40)
    if isinstance(rest.get("text"), str):
        texts.append(rest["text"])
        return f"[{name}]\n{texts[-1]}"
    return f"[{name}] {_fields(rest)}"


def _fields(value: Any) -> str:
    """Return any data as JSON, cut; what is no JSON is told."""
    try:
        return cut(encode(checked_json(value)).decode(), MAX_FIELDS)
    except ContentError as error:
        return f"not shown: {error}"


def _file(
    block: dict[str, Any], resource: dict[str, Any], media: list[Media], *, failed: bool
) -> str:
    try:
        if len(media) == MAX_FILES:
            raise ContentError(f"a result may have {MAX_FILES} files")
        data = resource.get("data", resource.get("blob"))
        if isinstance(data, str) and (prefix := _DATA_URL.match(data)):
            data = data[prefix.end() :]
        file = read_file(data)
        if failed:
            raise ContentError("the call failed")
        if sum(each.size for each in media) + file.size > MAX_FILES_BYTES:
            raise ContentError(f"a result may have {MAX_FILES_BYTES:,} bytes of files")
    except ContentError as error:
        return _described(block, str(error))
    media.append(file)
    name = _short(resource.get("uri"))
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


def _short(value: Any) -> str:
    """Return a field as a few words; empty where it is none or has parts of its own."""
    if value is None or isinstance(value, dict | list):
        return "" if value is None else "..."
    return one_line(str(value))


def _about(thing: dict[str, Any]) -> str:
    given = (_short(thing.get(key)) for key in ("name", "uri", "mimeType"))
    return one_line(", ".join(value for value in given if value))


def _described(block: dict[str, Any], why: str = "") -> str:
    kind = one_line(_kind(block), 40)
    found = block.get("resource")
    resource = cast("dict[str, Any]", found) if isinstance(found, dict) else block
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
