"""What the lab knows about providers, as data: each value with its source and date.

Values with the certainty `assumed` are not published; the less kind reading was taken.
Prices are not here: the lab counts tokens, never money.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Generic, Literal, TypeVar

import msgspec

T = TypeVar("T")

CHECKED = "2026-11-30"
"""The day on which the sources were read."""


class Fact(msgspec.Struct, Generic[T], frozen=True):
    """One value and where it comes from.

    Attributes:
        value: The value; its unit is in the name of the fact.
        source: Where it is written.
        certainty: `documented` by the provider, `reported` by others, or `assumed`.
        checked: The day on which the source was read.
    """

    value: T
    source: str
    certainty: Literal["documented", "reported", "assumed"] = "documented"
    checked: str = CHECKED


class CacheFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider of the lab keeps the prefixes of one model: what its answers go by.

    Attributes:
        minimum: Shortest prefix that is cached, in tokens.
        step: Distance of the places that can be read, or of automatic units, in tokens; 0 where
            there are none.
        fresh: Tokens at a prompt's end that are evaluated each time.
        lookback: Positions that a read walks back from a mark, the mark's own included, or earlier
            message ends that are looked up; 0 where neither is done.
        runs: Whether a run of calls, or of results, is one position of a lookback.
        marks: Marks that a request may set, the provider's own not counted.
        text_marks: Takes marks on prompt text and in messages of text alone, nowhere else.
        lifetime: Seconds that an entry lives without being read.
        lifetimes: The same, by the lifetime that a request may ask for.
    """

    minimum: int
    step: int = 0
    fresh: int = 0
    lookback: int = 0
    runs: bool = False
    marks: int = 0
    text_marks: bool = False
    lifetime: float
    lifetimes: Mapping[str, float] = {}


_CACHING = "platform.claude.com, Prompt caching (2026-09-26)"
_CHANGES = "platform.claude.com, Mid-conversation system messages and tool changes (2026-09-26)"

CLAUDE_LOOKBACK_POSITIONS = Fact(20, _CACHING)
CLAUDE_MARKS = Fact(4, _CACHING)
CLAUDE_LIFETIME_SECONDS: Fact[dict[str, float]] = Fact({"5m": 300.0, "1h": 3600.0}, _CACHING)
CLAUDE_PREAMBLE_TOKENS = Fact(
    200, "no figure published; clients measured that hidden text appears", "assumed"
)
CLAUDE_LATE_TOOLS = Fact(10_000, _CHANGES)
CLAUDE_LATE_BYTES = Fact(4_194_304, _CHANGES)

CLAUDE_VERSION_WITHOUT_SAMPLING = Fact("2026-10-21", "platform.claude.com, Versions")

BETA_INLINE = "inline-tools-2026-09-15"
BETA_REFERENCE = "mid-conversation-tool-changes-2026-07-01"
BETA_CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"
BETA_OUTPUT_CONFIG = "mid-conversation-output-config-2026-07-01"
BETA_BINDING = "thinking-binding-controls-2026-08-01"


class ClaudeModel(msgspec.Struct, frozen=True):
    """What one Claude model can do, as far as the lab plays it.

    Attributes:
        minimum: Shortest prefix that is cached, in tokens.
        system_messages: Takes `role: system` in `messages`, and tool changes in it.
        keeps_thinking: Thinking of earlier turns stays in the context; otherwise it is stripped
            once a later user message is more than tool results.
        bound: Signed thinking is bound to the exact prefix in front of it.
        forced_choice: `tool_choice` may force a tool.
        thinks: Thinks when the request does not say whether to.
        omits: Thinking is returned without its text unless `display` asks for it.
        prefill: The last message may be the assistant's.
        no_system: How the model refuses system messages, where it does.
    """

    minimum: int
    system_messages: bool = False
    keeps_thinking: bool = True
    bound: bool = False
    forced_choice: bool = True
    thinks: bool = False
    omits: bool = False
    prefill: bool = False
    no_system: str = (
        'Unexpected role "system". The Messages API accepts a top-level `system` parameter, not'
        ' "system" as an input message role.'
    )


def _newest(minimum: int, *, bound: bool = False, forced_choice: bool = True) -> ClaudeModel:
    return ClaudeModel(
        minimum,
        system_messages=True,
        bound=bound,
        forced_choice=forced_choice,
        thinks=True,
        omits=True,
    )


# Minimums of Sonnet 5.5 and Haiku 5.5 are not published: the largest that any model has.
CLAUDE_MODELS: Fact[dict[str, ClaudeModel]] = Fact(
    {
        "claude-opus-5-5": _newest(512, bound=True, forced_choice=False),
        "claude-opus-5": _newest(512),
        "claude-opus-4-8": ClaudeModel(1024, system_messages=True, omits=True),
        "claude-opus-4-7": ClaudeModel(
            2048, omits=True, no_system="role 'system' is not supported on this model"
        ),
        "claude-opus-4-6": ClaudeModel(4096),
        "claude-opus-4-5": ClaudeModel(4096, prefill=True),
        "claude-opus-4-1": ClaudeModel(1024, keeps_thinking=False, prefill=True),
        "claude-opus-4": ClaudeModel(1024, keeps_thinking=False, prefill=True),
        "claude-opus-4-0": ClaudeModel(1024, keeps_thinking=False, prefill=True),
        "claude-fable-5-1": _newest(512, bound=True, forced_choice=False),
        "claude-fable-5": _newest(512),
        "claude-mythos-5-1": _newest(512, bound=True, forced_choice=False),
        "claude-mythos-5": _newest(512),
        "claude-mythos-preview": ClaudeModel(2048, forced_choice=False, thinks=True, omits=True),
        "claude-sonnet-5-5": _newest(4096, bound=True, forced_choice=False),
        "claude-sonnet-5": ClaudeModel(1024, thinks=True, omits=True),
        "claude-sonnet-4-6": ClaudeModel(1024),
        "claude-sonnet-4-5": ClaudeModel(1024, keeps_thinking=False, prefill=True),
        "claude-sonnet-4": ClaudeModel(1024, keeps_thinking=False, prefill=True),
        "claude-sonnet-4-0": ClaudeModel(1024, keeps_thinking=False, prefill=True),
        "claude-haiku-5-5": _newest(4096, bound=True),
        "claude-haiku-4-5": ClaudeModel(4096, keeps_thinking=False, prefill=True),
        "claude-3-5-haiku": ClaudeModel(2048, keeps_thinking=False, prefill=True),
    },
    "platform.claude.com: Prompt caching, Preserved thinking (2026-09-26), Thinking (2026-09-26)",
)

_DATED = re.compile(r"-(?:\d{8}|latest)$")


def undated(name: str) -> str:
    """Return a Claude model's id without the date or `-latest` at its end."""
    return _DATED.sub("", name)


def claude_cache(model: ClaudeModel, *, minimum: int = 0, runs: bool = False) -> CacheFacts:
    """Return how a Claude model caches at marks.

    Args:
        model: The model.
        minimum: Shortest prefix that is cached where it is served, if that is more than usual.
        runs: Whether a run of calls, or of results, is one position there.
    """
    lifetimes = CLAUDE_LIFETIME_SECONDS.value
    return CacheFacts(
        minimum=max(model.minimum, minimum),
        lookback=CLAUDE_LOOKBACK_POSITIONS.value,
        runs=runs,
        marks=CLAUDE_MARKS.value,
        lifetime=lifetimes["5m"],
        lifetimes=lifetimes,
    )


def claude_model(name: str) -> ClaudeModel | None:
    """Return the facts of a Claude model, or None if there is no such model.

    Args:
        name: The model's id; a date (`-20260801`) or `-latest` at its end is ignored.
    """
    return CLAUDE_MODELS.value.get(undated(name))


class BedrockModel(msgspec.Struct, frozen=True):
    """What one model on Bedrock can do, as far as the lab plays it.

    Attributes:
        name: Its own name, without what Bedrock puts around it.
        claude: The facts of a Claude model, or None.
        caches: Takes cache points.
        minimum: Shortest prefix that is cached, in tokens.
        lookback: Positions that a read walks back from a mark, the mark's own among them.
        hour: Takes marks that live an hour.
        text_marks: Takes marks on prompt text and in messages of text alone, nowhere else.
    """

    name: str
    claude: ClaudeModel | None = None
    caches: bool = True
    minimum: int = 4096
    lookback: int = CLAUDE_LOOKBACK_POSITIONS.value
    hour: bool = False
    text_marks: bool = False


_AWS_CACHING = "aws/agent-toolkit-for-aws, prompt-caching.md (2026-08-20)"
BEDROCK_MINIMUM_TOKENS: Fact[dict[str, int]] = Fact(
    {
        "claude-sonnet-4-6": 2048,
        "claude-3-5-haiku": 2048,
        "claude-sonnet-4-5": 1024,
        "claude-sonnet-4": 1024,
        "claude-opus-4-1": 1024,
        "claude-opus-4": 1024,
        "claude-3-7-sonnet": 1024,
    },
    f"{_AWS_CACHING}; others 4,096, which is assumed for models after 4.6",
)
BEDROCK_HOUR: Fact[frozenset[str]] = Fact(
    frozenset(
        f"claude-{name}"
        for name in ("sonnet-4-5", "sonnet-4-6", "opus-4-5", "opus-4-6", "haiku-4-5")
    ),
    f"{_AWS_CACHING}: at least these",
)
BEDROCK_NOVA = Fact(
    BedrockModel("nova", minimum=1024, lookback=1, text_marks=True),
    "danny-avila/LibreChat#13838, BerriAI/litellm#17479; no lookback is stated for it",
    "reported",
)
_BEDROCK_CLAUDE = re.compile(
    r"(?:[a-z]+(?:-[a-z]+)*\.)?anthropic\.(claude-[a-z0-9-]+?)"
    r"(?:-\d{8})?(?:-v\d+(?::\d+(?::\d+k)?)?)?"
)
_BEDROCK_NOVA = re.compile(r"(?:[a-z]+(?:-[a-z]+)*\.)?amazon\.nova-.+")


def bedrock_model(name: str) -> BedrockModel:
    """Return the facts of a model on Bedrock; one that is not known does not cache.

    Args:
        name: The model's id, or that of an inference profile.
    """
    found = _BEDROCK_CLAUDE.fullmatch(name)
    if found is not None:
        own = found[1]
        claude = claude_model(own) or ClaudeModel(4096, keeps_thinking=False)
        minimum = BEDROCK_MINIMUM_TOKENS.value.get(own, 4096)
        return BedrockModel(own, claude, minimum=minimum, hour=own in BEDROCK_HOUR.value)
    if _BEDROCK_NOVA.fullmatch(name):
        return BEDROCK_NOVA.value
    return BedrockModel(name, caches=False)


_GEMINI = "ai.google.dev, Context caching (2026-10-13)"
GEMINI_MINIMUM_TOKENS = Fact(4096, f"{_GEMINI}: 3.x and 4; other copies say less")
GEMINI_OLDER_MINIMUM_TOKENS = Fact(2048, f"{_GEMINI}: 2.5")
VERTEX_MINIMUM_TOKENS = Fact(6144, "Google Cloud, Argon guide; one language says 4,096")
GEMINI_STEP_TOKENS = Fact(128, f"{_GEMINI}: not published", "assumed")
GEMINI_LIFETIME_SECONDS = Fact(300.0, f"{_GEMINI}: within a short time", "assumed")

_DEEPSEEK = "api-docs.deepseek.com, Context Caching"
DEEPSEEK_MODELS: Fact[tuple[tuple[str, bool], ...]] = Fact(
    (("deepseek-flash", True), ("deepseek-v4-flash.*", True), ("deepseek-v4-pro", False)),
    "deepseek-harness catalogue, as quoted downstream: True takes system messages and additions",
    "reported",
)


def deepseek_model(name: str) -> bool | None:
    """Return whether a DeepSeek model takes tool changes, or None if there is no such model."""
    for pattern, changes in DEEPSEEK_MODELS.value:
        if re.fullmatch(pattern, name):
            return changes
    return None


DEEPSEEK_MINIMUM_TOKENS = Fact(
    64, f"{_DEEPSEEK}: the last figure published, no longer in the page", "assumed"
)
DEEPSEEK_INTERVAL_TOKENS = Fact(
    4096, f"{_DEEPSEEK}: fixed intervals, size not published", "assumed"
)
DEEPSEEK_LIFETIME_SECONDS = Fact(3600.0, f"{_DEEPSEEK}: hours to days", "assumed")


class ChatModel(msgspec.Struct, frozen=True):
    """How one OpenAI model family caches.

    Attributes:
        exact: Caches at breakpoints and reports exact boundaries (5.6 and later).
        step: Distance of the automatic boundaries in tokens, where not `exact`.
        lifetime: How long a prefix lives since its last use, in seconds.
        max_tokens: Takes the older `max_tokens` parameter.
        reasons: Reasons before it speaks.
    """

    exact: bool = False
    step: int = 128
    lifetime: float = 300.0
    max_tokens: bool = False
    reasons: bool = True


OPENAI_EXACT = ChatModel(exact=True, lifetime=1800.0)
_OPENAI = "platform.openai.com, Prompt caching"
OPENAI_MODELS: Fact[tuple[tuple[str, ChatModel], ...]] = Fact(
    (
        (r"gpt-(?:5\.(?:[6-9]|\d\d)|6(?:\.\d+)?)(?:-[a-z]+)*", OPENAI_EXACT),
        (r"gpt-5\.5(?:-[a-z]+)*", ChatModel(step=2048, lifetime=1800.0)),
        (r"gpt-5(?:\.[0-4])?(?:-[a-z]+)*", ChatModel()),
        (r"gpt-4(?:o|\.1)(?:-[a-z]+)*", ChatModel(max_tokens=True, reasons=False)),
        (r"o[134](?:-[a-z]+)*", ChatModel()),
    ),
    f"{_OPENAI}: at least 30 minutes from GPT-5.5 on, 5 to 10 minutes in memory before",
)
OPENAI_MINIMUM_TOKENS = Fact(1024, f"{_OPENAI}; below GPT-5.6 it varies, this is the usual figure")
OPENAI_EXPLICIT_FIRST = Fact(2, f"{_OPENAI}: breakpoints looked up from the front")
OPENAI_EXPLICIT_LATEST = Fact(50, f"{_OPENAI}: breakpoints looked up from the end")
OPENAI_EARLIER_ENDS = Fact(20, f"{_OPENAI}: eligible ends looked up in implicit mode")
OPENAI_WRITES = Fact(4, f"{_OPENAI}: prefixes written by one request")
OPENAI_LIFETIMES = Fact(
    ("30m", "12h"),
    f"{_OPENAI}: the second on Responses only; each entry lives as one of the first, the less kind",
)
OPENAI_TOOLS = Fact(128, "platform.openai.com, Chat Completions reference: tools")


class ChatVendor(msgspec.Struct, frozen=True):
    """What a vendor of Chat Completions takes, and how it caches.

    Attributes:
        models: Matches the ids of its models.
        caches: Matches those that are cached.
        minimum: Shortest prefix that is cached, in tokens.
        step: Distance of the places that can be read, in tokens.
        lifetime: How long a prefix lives since its last use, in seconds.
        fresh: Tokens at a prompt's end that are evaluated each time.
        keyed: Nothing is cached without `prompt_cache_key`.
        usage: Where cached tokens are reported: `details`, `detail` (Mistral's spelling) or
            `choice` (in streams, beside the last choice).
        reasoning: Field in which it shows its reasoning, and takes it back; empty for neither.
        needs_key: Refuses requests without a key.
        message_tools: Matches the models that take tools in system messages; empty for none.
        names: Matches the names of tools that it takes.
        call_ids: Matches the ids of calls that it takes.
        own_ids: Form of the ids that it gives.
        refused: Shapes of a history that it refuses (`addendum.lab.chat_shapes`).
    """

    models: str = "(?s).+"
    caches: str = "(?s).+"
    minimum: int = 1024
    step: int = 128
    lifetime: float = 300.0
    fresh: int = 0
    keyed: bool = False
    usage: Literal["details", "detail", "choice"] = "details"
    reasoning: str = "reasoning_content"
    needs_key: bool = True
    message_tools: str = ""
    names: str = "[a-zA-Z0-9_-]{1,64}"
    call_ids: str = "(?s).+"
    own_ids: str = "call_{}"
    refused: frozenset[str] = frozenset()


CHAT_VENDORS: Mapping[str, Fact[ChatVendor]] = {
    "moonshot": Fact(
        ChatVendor(
            models="kimi-.+|moonshot-.+",
            minimum=256,
            step=256,
            usage="choice",
            message_tools=r"kimi-k3(?:\.\d+)?(?:-[a-z]+)*",
            names="[A-Za-z_][A-Za-z0-9_-]{0,255}",
            refused=frozenset({"empty"}),
        ),
        "platform.kimi.ai; contract tests in NVIDIA/TensorRT-LLM#17845; the step is assumed",
    ),
    "xai": Fact(ChatVendor(models="grok-.+"), "measured by others on grok-4.6", "reported"),
    "groq": Fact(
        ChatVendor(
            caches="openai/gpt-oss-.+|moonshotai/kimi-k2-.+",
            lifetime=7200.0,
            reasoning="reasoning",
            refused=frozenset({"reasoning_content"}),
        ),
        "console.groq.com, Prompt caching; minimum and step are assumed",
        "reported",
    ),
    "mistral": Fact(
        ChatVendor(
            keyed=True,
            usage="detail",
            reasoning="",
            call_ids="[a-zA-Z0-9]{9}",
            own_ids="{}",
            refused=frozenset(
                {"template", "behind results", "empty", "reasoning_content", "usage option"}
            ),
        ),
        "docs.mistral.ai; charmbracelet/crush#1590 (reasoning); minimum and step are assumed",
        "reported",
    ),
    "zai": Fact(ChatVendor(models="glm-.+"), "docs.z.ai: implicit; no figures", "assumed"),
    "qwen": Fact(
        ChatVendor(models="qw(?:en|q).+", minimum=256, step=256),
        "alibabacloud.com, Context cache: implicit; the step is assumed",
    ),
    "vllm": Fact(
        ChatVendor(minimum=16, step=16, needs_key=False),
        "docs.vllm.ai, Automatic prefix caching, with --enable-prompt-tokens-details",
    ),
    "sglang": Fact(
        ChatVendor(minimum=1, step=1, needs_key=False),
        "docs.sglang.ai, RadixAttention, with --enable-cache-report and pages of one token",
        "reported",
    ),
    "llamacpp": Fact(
        ChatVendor(minimum=1, step=1, fresh=1, needs_key=False),
        "llama.cpp at commit 86a2835",
        "reported",
    ),
}

OPENROUTER_LOOKBACK_POSITIONS = Fact(1, "openrouter.ai: not said of Qwen", "assumed")
OPENROUTER_QWEN_MINIMUM_TOKENS = Fact(1024, "openrouter.ai, Prompt caching: Alibaba Qwen")
OPENROUTER_CLAUDE_MINIMUM_TOKENS = Fact(
    {"claude-sonnet-4-6": 2048, "claude-opus-4-8": 2048, "claude-sonnet-5": 2048},
    "the larger of what Claude's own API and Bedrock say",
    "assumed",
)
BEDROCK_CLAUDE_MINIMUM_TOKENS = Fact(4096, "not published for its Messages API", "assumed")
VERTEX_CLAUDE_VERSION = Fact("vertex-2023-10-16", "anthropic 2.14.0, AnthropicVertex")

COMPATIBLE_STEP_TOKENS = Fact(16, "vLLM block size", "reported")
COMPATIBLE_LIFETIME_SECONDS = Fact(3600.0, "a server's own memory; no figure", "assumed")

_SNAPSHOT = re.compile(r"-\d{4}-\d\d-\d\d$")


def chat_model(name: str) -> ChatModel | None:
    """Return the facts of an OpenAI model, or None if there is no such model.

    Args:
        name: The model's id; a date (`-2025-04-14`) at its end is ignored.
    """
    bare = _SNAPSHOT.sub("", name)
    for pattern, model in OPENAI_MODELS.value:
        if re.fullmatch(pattern, bare):
            return model
    return None
