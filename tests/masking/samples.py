"""Keys of every form, made from the samples in the data, and what they are to be told from."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import string

from msgspec import Struct

from addendum.masking.forms import Form, forms

_ALPHABETS = {
    "w": "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz0123456789",
    "u": string.ascii_uppercase + "234567",
    "h": "0123456789abcdef",
    "d": string.digits,
    "a": string.ascii_letters,
}

SEPARATORS = {
    "nothing": "",
    "line feed": "\n",
    "carriage return": "\r",
    "tab": "\t",
    "form feed": "\f",
    "backspace": "\b",
    "NUL": "\0",
    "colour": "\x1b[32m",
    "two colours": "\x1b[1;31m",
    "underscore": "_",
    "letter": "x",
    "word": "KEY",
    "digit": "9",
    "encoded line feed": "%0A",
    "encoded space": "%20",
    "written line feed": "\\n",
    "written tab": "\\t",
    "written escape": "\\u000a",
    "written line feed twice": "\\\\n",
    "quote": '"',
    "single quote": "'",
    "entity": "&quot;",
    "zero width": "\u200b",
    "line separator": "\u2028",
    "letter of another script": "é",
    "equals": "=",
    "colon": ":",
    "comma": ",",
    "slash": "/",
    "bracket": "(",
    "mark": "\u202e",
}


class Key(Struct, frozen=True):
    """A key.

    Attributes:
        form: What it is of.
        text: How it is written.
        secret: The part of it that must not be read.
    """

    form: str
    text: str
    secret: str

    @property
    def parts(self) -> tuple[str, ...]:
        """Its secret, as pieces that no encoding changes."""
        return tuple(each for each in re.split(r"[\s+/=%]+", self.secret) if len(each) >= 6)


def key(form: Form, seed: int = 1) -> Key:
    """Make a key of a form; the same seed makes the same one."""
    dice = random.Random(f"{form.name} {seed}")

    def characters(match: re.Match[str]) -> str:
        alphabet = _ALPHABETS[match[1]]
        made = "".join(dice.choice(alphabet) for _ in range(int(match[2])))
        # Of letters and digits each kind is there, as in any real key.
        return made[:-3] + "aB3" if match[1] == "w" and len(made) > 8 else made

    whole = re.sub(r"<([wuhda])(\d+)>", characters, form.sample)
    marked = re.fullmatch(r"(.*)\{(.*)\}(.*)", whole, re.DOTALL)
    if marked is None:
        return Key(form.name, whole, whole.strip())
    before, secret, behind = marked.groups()
    return Key(form.name, before + secret + behind, secret)


def keys() -> list[Key]:
    """Return a key of each form."""
    return [key(form) for form in forms().every]


def all_of_them(nesting: int) -> str:
    """Return a text with each key behind each separator.

    Args:
        nesting: How often it is JSON in a string of JSON.
    """
    lines = [
        f"say {separator}{each.text} said" for each in keys() for separator in SEPARATORS.values()
    ]
    return nested("\n".join(lines), nesting)


def nested(text: str, nesting: int) -> str:
    """Return a text as JSON in strings of JSON."""
    for _ in range(nesting):
        text = json.dumps({"said": text, "n": [1, None]})
    return text


def left(found: str | bytes) -> list[str]:
    """Return the forms whose keys can be read in something that left."""
    text = found.decode("utf-8", "replace") if isinstance(found, bytes) else found
    return [each.form for each in keys() if any(part in text for part in each.parts)]


def blob(size: int, seed: int, *, for_urls: bool = False) -> str:
    """Return bytes in base64; the same seed gives the same ones."""
    data = random.Random(seed).randbytes(size)
    return (base64.urlsafe_b64encode if for_urls else base64.b64encode)(data).decode()


HARMLESS = [
    "Sets a fitting 'Cookie:' header on the 'Request' and goes on.",
    hashlib.md5(b"x").hexdigest(),
    hashlib.sha1(b"x").hexdigest(),
    hashlib.sha256(b"x").hexdigest(),
    hashlib.sha512(b"x").hexdigest().upper(),
    "sha256:" + hashlib.sha256(b"y").hexdigest(),
    "550e8400-e29b-41d4-a716-446655440000",
    "task-1234567890abcdef1234567890",
    "task-550e8400-e29b-41d4-a716-446655440000",
    "disk-usage-monitor-daemon-v2 risk-assessment-framework-2026 flask-0123456789abcdefghij",
    "TASK0123456789abcdef0123456789abcdef work_test_abcdefghij12 disk_live_0123456789ab",
    "toolu_01A09q90qw90lq917835lq9 msg_01XFDUDYJgAACzvnptvVoYEL call_abc123DEF456ghi789JKL012",
    "resp_68a5b3c0f0f88190a1b2c3d4e5f60718293a4b5c chatcmpl-9kQ3xYz0aBcDeFgHiJkLmNoPqRsT",
    "req_011CSHoEeqs5C35K2UUqR7Fy fs_0123456789abcdef rs_" + "a1b2c3d4" * 6,
    "arn:aws:iam::123456789012:role/Reader, git@github.com:user/repository.git",
    "http://localhost:8080/users/@me http://localhost:5173/@vite/client https://x.example/@ann",
    "https://h.example/x?page=2&keyword=harbour&sort=key",
    "docker run -u 1000:1000 image; ratio 3:4@noon; 2026-12-01T10:00:00:Ab",
    "Basic authentication is enough; the bearer of this letter may pass. Bearer tokens are used.",
    "password reset link. Please enter your password: then press return.",
    "The token: required for all calls; a token budget of 4096 tokens; max_tokens=4096",
    "next_page_token=abcdef123456 progressToken: 1234567",
    "def open(password: str, token: Optional[str] = None, api_key=api_key) -> None:",
    "password = get_password(); api_key=os.environ['OPENAI_API_KEY']; token=token",
    "export API_KEY=$OPENAI_API_KEY\npassword: ${DB_PASSWORD}\nsecret: {{ vault.secret }}",
    "key=lambda row: row.name, sort(key=itemgetter(1)), primary_key=True",
    "--token TEXT   What visitors bring\n--password\nuse --token-file path",
    "ASIAPACIFICREGIONALSUMMIT, AKIA is a prefix and eyJ is one, sk-short, SKU-1234",
    "xoxo-hugs-and-kisses, pypi-server-configuration, hf_hub_download_with_resume, npm_config",
    *map(
        json.dumps,
        [
            {"max_tokens": 4096, "prompt_cache_key": "harbour-office", "tool_choice": "required"},
            {
                "password": {"type": "string", "description": "The password."},
                "required": ["password", "username"],
            },
            {"required": ["token", "region"], "api_key": "required", "token": " Hello"},
            [{"token": "Hello", "logprob": -0.3, "bytes": [72, 101]}],
            {"usage": {"prompt_tokens": 10}, "tokens": 12, "token_count": 123456},
            {"name": "Authorization", "description": "The header that every request needs."},
            {"type": "thinking", "thinking": "hm", "signature": blob(900, 1)},
            {"type": "redacted_thinking", "data": blob(900, 2)},
            {
                "type": "reasoning",
                "encrypted_content": "gAAAAA" + blob(90_000, 3, for_urls=True),
            },
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": blob(900, 5)}}},
            {"thoughtSignature": blob(3_000, 6), "redactedContent": blob(3_000, 7)},
            {
                "type": "image",
                "source": {"media_type": "image/png", "data": blob(90_000, 4)},
            },
            {"image_url": {"url": "data:image/png;base64," + blob(9_000, 8)}},
            {"text": "an image: " + blob(90_000, 9) + " and more"},
            {"text": "a token of Fernet: " + blob(9_000, 10, for_urls=True) + " and more"},
        ],
    ),
]
