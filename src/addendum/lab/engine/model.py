"""A tiny language model in a file, made here: nothing is downloaded.

Its weights are noise, for nobody listens to it. What counts is that a real engine evaluates real
prompts with it, and that a token is a byte: no merge of the tokenizer ever applies, so a prompt
has as many tokens as the bytes of its text, and one for each control token.

The chat template renders a prompt in the order in which bodies are judged: each tool, the system
text, the messages. Between two requests of which one extends the other, so do the prompts.

Source of the format: the GGUF specification (version 3) in the ggml repository.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from msgspec import Struct

CONTEXT = 32_768
"""Tokens that a prompt may have."""

TEMPLATE = """\
{%- for tool in tools or [] -%}
<|im_start|>tool
{{ tool | tojson }}<|im_end|>
{% endfor -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{ call.function.name }} {{ call.function.arguments | tojson }}
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""

_WIDTH = 32
_ALIGNMENT = 32
_SEED = 20260105

_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# No UTF-8 text holds these bytes, so their merge, which a tokenizer has to have, never applies.
_MERGED = (0xC0, 0xC1)


class _Tensor(Struct, frozen=True):
    """A matrix of `rows` rows and `columns` columns; one row makes a vector."""

    name: str
    columns: int
    rows: int = 1

    @property
    def size(self) -> int:
        return 4 * self.columns * self.rows


def write_model(path: Path) -> Path:
    """Write the model, the same bytes each time, and return its path.

    Args:
        path: Where; what is there is replaced.
    """
    tokens, kinds, merges = _vocabulary()
    metadata = [
        _text("general.architecture", "llama"),
        _text("general.name", "addendum-tiny"),
        _number("general.alignment", _ALIGNMENT),
        _number("general.file_type", 0),
        _number("llama.vocab_size", len(tokens)),
        _number("llama.context_length", CONTEXT),
        _number("llama.embedding_length", _WIDTH),
        _number("llama.block_count", 1),
        _number("llama.feed_forward_length", _WIDTH),
        _number("llama.attention.head_count", 1),
        _number("llama.attention.head_count_kv", 1),
        _number("llama.rope.dimension_count", _WIDTH),
        _real("llama.attention.layer_norm_rms_epsilon", 1e-5),
        _text("tokenizer.ggml.model", "gpt2"),
        _text("tokenizer.ggml.pre", "gpt-2"),
        _texts("tokenizer.ggml.tokens", tokens),
        _key("tokenizer.ggml.token_type", 9)
        + struct.pack(f"<IQ{len(kinds)}i", 5, len(kinds), *kinds),
        _texts("tokenizer.ggml.merges", merges),
        _number("tokenizer.ggml.eos_token_id", tokens.index(_CONTROL[0])),
        _key("tokenizer.ggml.add_bos_token", 7) + b"\0",
        _text("tokenizer.chat_template", TEMPLATE),
    ]
    tensors = _tensors(len(tokens))
    offsets = accumulate((_padded(each.size) for each in tensors), initial=0)
    infos = [_info(each, offset) for each, offset in zip(tensors, offsets, strict=False)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join((*metadata, *infos))
    noise = random.Random(_SEED)
    parts = [head.ljust(_padded(len(head)), b"\0")]
    parts += [_weights(each, noise).ljust(_padded(each.size), b"\0") for each in tensors]
    path.write_bytes(b"".join(parts))
    return path


def _vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Return tokens, their kinds (1 ordinary, 3 control) and merges of a byte-level tokenizer."""
    letters = _letters()
    first, second = (letters[byte] for byte in _MERGED)
    tokens = [*letters, first + second, *_CONTROL]
    kinds = [1] * (len(letters) + 1) + [3] * len(_CONTROL)
    return tokens, kinds, [f"{first} {second}"]


def _letters() -> list[str]:
    """Return the character that stands for each byte: itself if it can be seen, else one behind."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in seen else next(spare)) for byte in range(256)]


def _tensors(vocabulary: int) -> list[_Tensor]:
    words = ("token_embd", "output")
    vectors = ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
    attention = ("attn_q", "attn_k", "attn_v", "attn_output")
    squares = (f"blk.0.{name}" for name in (*attention, "ffn_gate", "ffn_up", "ffn_down"))
    return [
        *(_Tensor(f"{name}.weight", _WIDTH, vocabulary) for name in words),
        *(_Tensor(f"{name}.weight", _WIDTH) for name in vectors),
        *(_Tensor(f"{name}.weight", _WIDTH, _WIDTH) for name in squares),
    ]


def _weights(tensor: _Tensor, noise: random.Random) -> bytes:
    count = tensor.columns * tensor.rows
    values = [1.0] * count if tensor.rows == 1 else [noise.gauss(0.0, 0.1) for _ in range(count)]
    return struct.pack(f"<{count}f", *values)


def _info(tensor: _Tensor, offset: int) -> bytes:
    # The number of columns comes first; type 0 is float32.
    sizes = [tensor.columns] if tensor.rows == 1 else [tensor.columns, tensor.rows]
    form = f"<I{len(sizes)}QIQ"
    return _string(tensor.name) + struct.pack(form, len(sizes), *sizes, 0, offset)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _key(name: str, kind: int) -> bytes:
    return _string(name) + struct.pack("<I", kind)


def _text(name: str, value: str) -> bytes:
    return _key(name, 8) + _string(value)


def _number(name: str, value: int) -> bytes:
    return _key(name, 4) + struct.pack("<I", value)


def _real(name: str, value: float) -> bytes:
    return _key(name, 6) + struct.pack("<f", value)


def _texts(name: str, values: Sequence[str]) -> bytes:
    packed = b"".join(_string(value) for value in values)
    return _key(name, 9) + struct.pack("<IQ", 8, len(values)) + packed
