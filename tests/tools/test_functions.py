from __future__ import annotations

import dataclasses
import enum
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Literal, TypedDict

import anyio
import msgspec
import pytest

from addendum.errors import ConfigurationError, ContentError
from addendum.log.values import ToolSchema
from addendum.tools.dispatcher import CALL_TOOL
from addendum.tools.functions import FunctionTool, ToolContext, as_tool, tool
from addendum.tools.search import TOOL_SEARCH
from addendum.tools.validation import validator_for

pytestmark = pytest.mark.anyio

CONTEXT = ToolContext("s1", 1, 1, "c1", "t", {})


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 1.0


class Options(TypedDict, total=False):
    deep: bool


class Node(msgspec.Struct):
    """A node of a tree."""

    value: int
    children: list[Node] = []


def everything(
    text: str,
    whole: int,
    number: float,
    flag: bool,
    maybe: str | None,
    mode: Literal["fast", "slow", 3],
    colour: Colour,
    names: list[str],
    pair: tuple[int, str],
    unique: set[int],
    table: dict[str, list[int]],
    options: Options,
    point: Point,
    node: Node,
    either: int | str | list[int],
    anything: Any,
    described: Annotated[int, "An annotated one."],
    limit: int = 5,
    colour2: Colour = Colour.RED,
    point2: Point | None = None,
) -> str:
    """Take everything.

    Args:
        text: Some text.
        described: Loses to the annotation.
    """
    return repr((text, colour, pair, unique, point, node, options, limit, colour2, point2))


GOOD: dict[str, Any] = {
    "text": "a",
    "whole": 1,
    "number": 2,
    "flag": True,
    "maybe": None,
    "mode": 3,
    "colour": "red",
    "names": ["n"],
    "pair": [1, "b"],
    "unique": [1],
    "table": {"k": [1]},
    "options": {"deep": True},
    "point": {"x": 1},
    "node": {"value": 1, "children": [{"value": 2}]},
    "either": [1],
    "anything": {"free": [1]},
    "described": 1,
}


def schema_of(made: FunctionTool[..., Any]) -> dict[str, Any]:
    return json.loads(bytes(made.schema.parameters))


def test_a_schema_of_every_supported_annotation() -> None:
    schema = schema_of(tool(everything))
    properties = schema["properties"]
    assert schema["type"] == "object" and schema["additionalProperties"] is False
    assert schema["required"] == list(GOOD)
    assert properties["text"] == {"description": "Some text.", "type": "string"}
    assert properties["maybe"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert properties["mode"]["enum"] == [3, "fast", "slow"]
    assert properties["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert properties["unique"]["uniqueItems"] is True
    assert properties["table"]["additionalProperties"] == {
        "type": "array",
        "items": {"type": "integer"},
    }
    assert properties["anything"] == {}
    assert properties["described"] == {"description": "An annotated one.", "type": "integer"}
    assert properties["limit"] == {"type": "integer", "default": 5}
    assert properties["colour2"] == {"$ref": "#/$defs/Colour", "default": "red"}
    assert schema["$defs"]["Point"]["additionalProperties"] is False
    assert schema["$defs"]["Node"]["description"] == "A node of a tree."
    assert "title" not in schema and all("title" not in part for part in schema["$defs"].values())


def test_the_schema_compiles_offline_and_agrees_with_decoding() -> None:
    validator = validator_for(tool(everything).schema.parameters)
    assert validator.validate(GOOD) == ()
    for key, wrong in [("pair", [1]), ("point", {"x": 1, "z": 2}), ("colour", "green")]:
        assert validator.validate({**GOOD, key: wrong}), key


def test_the_same_function_gives_the_same_bytes() -> None:
    assert tool(everything).schema == tool(everything).schema
    assert bytes(tool(everything).schema.parameters).startswith(
        b'{"type":"object","properties":{"text":{"description":"Some text.","type":"string"},'
    )


async def test_arguments_arrive_in_the_annotated_types() -> None:
    result = await tool(everything).invoke(json.dumps(GOOD).encode(), CONTEXT)
    assert result == (
        "('a', <Colour.RED: 'red'>, (1, 'b'), {1}, Point(x=1, y=1.0), Node(value=1, "
        "children=[Node(value=2, children=[])]), {'deep': True}, 5, <Colour.RED: 'red'>, None)"
    )


def test_bare_and_with_arguments() -> None:
    @tool
    def plain(city: str) -> str:
        """Say the weather."""
        return city

    @tool(name="weather-2", description="Told.", defer_loading=True, timeout=3)
    def other() -> None:
        """Not told."""

    assert plain.schema == ToolSchema("plain", "Say the weather.", plain.schema.parameters)
    assert plain("Oslo") == "Oslo"
    assert (other.name, other.schema.description) == ("weather-2", "Told.")
    assert other.schema.defer_loading is True and other.timeout == 3
    assert plain.schema.defer_loading is None
    assert schema_of(other) == {"type": "object", "properties": {}, "additionalProperties": False}
    with pytest.raises(AttributeError):
        plain.timeout = 1  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_context_is_filled_in_and_not_in_the_schema() -> None:
    @tool
    def count(context: ToolContext, by: int = 1) -> int:
        context.state["n"] = context.state.get("n", 0) + by
        return context.state["n"]

    assert list(schema_of(count)["properties"]) == ["by"]
    context = ToolContext("s1", 2, 3, "c9", "count", {})
    assert await count.invoke(b"", context) == "1"
    assert await count.invoke('{"by":4}', context) == "5"
    assert (context.turn, context.step, context.call_id, context.tool) == (2, 3, "c9", "count")


async def test_sync_runs_in_a_thread_and_async_does_not() -> None:
    def sync() -> bool:
        return threading.current_thread() is threading.main_thread()

    async def direct() -> bool:
        return threading.current_thread() is threading.main_thread()

    class Callable_:
        async def __call__(self, by: int) -> int:
            return by + 1

    def wrapped(by: int) -> Any:
        return Callable_()(by)

    assert await tool(sync).invoke(b"{}", CONTEXT) == "false"
    assert await tool(direct).invoke(b"{}", CONTEXT) == "true"
    assert await tool(name="wrapped")(wrapped).invoke(b'{"by":1}', CONTEXT) == "2"
    assert await as_tool(Callable_()).invoke(b'{"by":1}', CONTEXT) == "2"


class Dumped:
    def model_dump_json(self) -> str:
        return '{"by":"itself"}'


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("bad \ud800", "bad \ufffd"),
        (None, ""),
        (True, "true"),
        ({"a": [1, "ø"]}, '{"a":[1,"ø"]}'),
        ({"a": ("\udfff",)}, '{"a":["\ufffd"]}'),
        (Point(1), '{"x":1,"y":1.0}'),
        (Node(1), '{"value":1,"children":[]}'),
        (Dumped(), '{"by":"itself"}'),
    ],
)
async def test_results_become_text(result: Any, text: str) -> None:
    def give() -> Any:
        return result

    assert await tool(give).invoke(b"{}", CONTEXT) == text


async def test_a_result_that_is_no_json_is_an_error() -> None:
    def give() -> Any:
        return object()

    with pytest.raises(ContentError, match="tool 'give' returned a object that is no JSON"):
        await tool(give).invoke(b"{}", CONTEXT)


async def test_exceptions_pass_through() -> None:
    def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        await tool(fail).invoke(b"{}", CONTEXT)


@pytest.mark.parametrize("arguments", [b'{"n":"5"}', b'{"n":1,"x":2}', b"{}", b"[1]", b"nope"])
async def test_arguments_that_do_not_fit_are_refused(arguments: bytes) -> None:
    def take(n: int) -> int:
        return n

    with pytest.raises(ContentError):
        await tool(take).invoke(arguments, CONTEXT)


async def test_an_integral_float_is_an_integer_as_in_json_schema() -> None:
    def take(n: int, f: float, ns: list[int]) -> Any:
        return [n, f, ns]

    assert await tool(take).invoke(b'{"n":5.0,"f":2,"ns":[1.0]}', CONTEXT) == "[5,2.0,[1]]"


async def test_a_mutable_default_is_the_functions_own() -> None:
    def take(names: list[str] = ["a"]) -> Any:  # noqa: B006
        return names

    assert "default" not in schema_of(tool(take))["properties"]["names"]
    assert await tool(take).invoke(b"{}", CONTEXT) == '["a"]'


async def test_a_timeout_ends_the_call() -> None:
    @tool(timeout=0.01)
    async def slow() -> None:
        await anyio.sleep_forever()

    release = threading.Event()

    @tool(timeout=0.01)
    def stuck() -> None:
        release.wait(10)

    with pytest.raises(TimeoutError, match=r"slow gave no result within 0\.01 seconds"):
        await slow.invoke(b"{}", CONTEXT)
    with pytest.raises(TimeoutError):
        await stuck.invoke(b"{}", CONTEXT)
    release.set()


async def test_a_given_schema() -> None:
    schema = ToolSchema("given", "Given.", msgspec.Raw(b'{"type":"object"}'))

    def plain(arguments: dict[str, Any]) -> Any:
        return arguments

    async def with_context(context: ToolContext, arguments: dict[str, Any]) -> str:
        return f"{context.call_id} {arguments}"

    made = FunctionTool.from_schema(schema, plain)
    assert made.schema is schema
    assert await made.invoke(b'{"a":1.5}', CONTEXT) == '{"a":1.5}'
    assert await FunctionTool.from_schema(schema, with_context).invoke(b"", CONTEXT) == "c1 {}"


def test_as_tool_keeps_a_tool_and_makes_one_of_a_function() -> None:
    made = tool(everything)
    assert as_tool(made) is made
    assert as_tool(everything).schema == made.schema
    with pytest.raises(ConfigurationError, match="is no tool"):
        as_tool(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["call_tool", "tool_search"])
def test_case_t8_reserved_names_are_a_configuration_error(name: str) -> None:
    with pytest.raises(ConfigurationError, match="reserved"):
        tool(name=name)(everything)
    given = CALL_TOOL if name == "call_tool" else TOOL_SEARCH
    with pytest.raises(ConfigurationError, match="reserved"):
        as_tool(FunctionTool.from_schema(given, everything))


def unannotated(a) -> None: ...  # type: ignore[no-untyped-def]


def starred(*names: str) -> None: ...


def positional(a: int, /) -> None: ...


def odd(a: complex) -> None: ...


def called(a: Callable[[], int]) -> None: ...


def two_objects(a: Point | Node) -> None: ...


def odd_keys(a: list[dict[int, str]]) -> None: ...


def unresolved(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def late_context(a: int, context: ToolContext) -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (unannotated, "parameter 'a' of tool 'unannotated' has no annotation"),
        (starred, "has no name to call it by"),
        (positional, "has no name to call it by"),
        (odd, "makes no schema"),
        (called, "makes no schema"),
        (two_objects, "more than one dict-like type"),
        (odd_keys, "a JSON object has text as keys"),
        (unresolved, "define its types at module level"),
        (late_context, "put it first"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
    ],
)
def test_what_makes_no_tool_is_one_line_of_configuration_error(
    function: Callable[..., Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        tool(function)
    assert "\n" not in str(caught.value)


def test_a_name_no_provider_takes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not usable"):
        tool(name="look up")(everything)
    with pytest.raises(ConfigurationError, match="not usable"):
        tool(lambda: None)


def test_a_function_that_hangs_does_not_keep_the_process_from_ending() -> None:
    program = """
import anyio, threading
from addendum.tools.functions import ToolContext, tool

@tool(timeout=0.01)
def stuck() -> None:
    threading.Event().wait()

async def main() -> None:
    try:
        await stuck.invoke(b"{}", ToolContext("s", 1, 1, "c", "stuck", {}))
    except TimeoutError as error:
        print(error)

anyio.run(main)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "stuck gave no result within 0.01 seconds\n"
    assert ended.stderr == ""
