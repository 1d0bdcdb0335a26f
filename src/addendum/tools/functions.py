"""Function tools: a Python function, its schema made from annotations and docstring.

Annotations may be `str`, `int`, `float`, `bool`, `None`, `Any`, `Literal`, `Enum`, lists, tuples,
sets, `dict[str, X]`, `TypedDict`, dataclasses, `msgspec.Struct`, unions of these, and
`Annotated[X, "description"]`. What a Google-style docstring says under `Args:` describes the
parameters that no annotation describes. The schema is self-contained, refuses unknown keys, and is
the same bytes in every process.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import math
import threading
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, Union, cast, overload

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec
from msgspec import Raw, Struct

from addendum import encoding
from addendum.allowed import shown
from addendum.checked import (
    SHALLOW,
    AtLeastNone,
    Seconds,
    Word,
    check_fields,
    check_value,
    checks_arguments,
)
from addendum.errors import ConfigurationError, ContentError
from addendum.log.values import ToolSchema
from addendum.tools.dispatcher import RESERVED_NAMES
from addendum.tools.docstrings import describe
from addendum.tools.names import check_function_names

P = ParamSpec("P")
R = TypeVar("R")


def _unheard(progress: float, total: float | None = None, message: str | None = None) -> None:
    pass


class ToolContext(Struct, frozen=True):
    """Where a call happens. A tool whose first parameter is annotated with it receives it.

    Attributes:
        session: Id of the session.
        turn: The turn, from 1.
        step: The step in the turn, from 1.
        call_id: The model's id of the call.
        tool: The tool's name.
        state: Free for the tools of one session to share; not stored.
        report: Tells whoever watches how far the call is, of how much if that is known, and in
            what words.
        host: The session that the call is made in, for tools that open others; None outside one.
    """

    session: str
    turn: AtLeastNone
    step: AtLeastNone
    call_id: str
    tool: str
    state: Annotated[dict[str, Any], SHALLOW]
    report: Callable[[float, float | None, str | None], None] = _unheard
    host: Any = None

    def __post_init__(self) -> None:
        check_fields(self)


class FunctionTool(Struct, Generic[P, R], frozen=True, eq=False):
    """A function that a model may call; calling it calls the function.

    Attributes:
        schema: What the model sees.
        function: The function.
        timeout: Seconds a call may take; None for no limit of its own.
        takes_context: Whether a `ToolContext` is its first argument.
        arguments: Struct type the arguments are decoded to; None if it takes the decoded object.
        read_only: Whether a call changes nothing, so that it may start early, or be in vain.

    Raises:
        ConfigurationError: A field holds what it cannot hold.
    """

    schema: ToolSchema
    function: Callable[P, R]
    timeout: Seconds | None = None
    takes_context: bool = False
    arguments: type[Struct] | None = None
    read_only: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.schema.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @classmethod
    @checks_arguments
    def from_schema(
        cls,
        schema: ToolSchema,
        function: Callable[..., Any],
        *,
        timeout: Seconds | None = None,
        read_only: bool = False,
    ) -> FunctionTool[..., Any]:
        """Make a tool whose schema is given.

        Args:
            schema: What the model sees.
            function: Takes the decoded arguments as one `dict`, behind a `ToolContext` if its first
                parameter is annotated so. May be async.
            timeout: Seconds a call may take.
            read_only: Whether a call changes nothing.

        Raises:
            ConfigurationError: The function is no such function, or the schema none of a tool.
        """
        _check_schema(schema)
        parameters = _parameters(function, schema.name)
        context = bool(parameters) and _hints(function, schema.name).get(parameters[0].name)
        return FunctionTool(schema, function, timeout, context is ToolContext, read_only=read_only)

    async def invoke(self, arguments: bytes | str, context: ToolContext) -> str:
        """Run the function and return its result as text for the model.

        A synchronous function runs in a daemon thread, which is left behind when the call is
        cancelled. Text stays as it is, None is empty, everything else becomes JSON.

        Args:
            arguments: JSON text, checked against the schema before; empty counts as `{}`.
            context: Where the call happens.

        Raises:
            ContentError: The arguments do not decode, or the result cannot be written as text.
            TimeoutError: It took longer than `timeout`.
            Exception: Whatever the function raises.
        """
        leading = (context,) if self.takes_context else ()
        decoded: Any = encoding.decode(arguments or b"{}")
        if self.arguments is None:
            call = functools.partial(self.function, *leading, decoded)
        else:
            given = _convert(decoded, self.arguments, self.name)
            call = functools.partial(self.function, *leading, **given)
        scope = anyio.move_on_after(self.timeout)
        with scope:
            return text_of(await _run(call), self.name)
        raise TimeoutError(f"{self.name} gave no result within {self.timeout:g} seconds")


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    defer_loading: bool = False,
    timeout: float | None = None,
    read_only: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


@checks_arguments
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: Word | None = None,
    description: str | None = None,
    defer_loading: bool = False,
    timeout: Seconds | None = None,
    read_only: bool = False,
) -> Any:
    """Make a function a tool: `@tool`, or `@tool(name=...)`.

    Args:
        function: The function.
        name: Its name for the model; the function's own if left out.
        description: What it does; the docstring up to its first section if left out.
        defer_loading: Keep it out of the head: it is offered once an update or a search shows it.
        timeout: Seconds a call may take.
        read_only: Whether a call changes nothing: policies see it, and `Agent(early_start=True)`.

    Raises:
        ConfigurationError: A name or an annotation cannot be used.
    """
    if function is None:
        return functools.partial(
            _make,
            name=name,
            description=description,
            defer_loading=defer_loading,
            timeout=timeout,
            read_only=read_only,
        )
    return _make(function, name, description, defer_loading, timeout, read_only)


def as_tool(function: Callable[..., Any] | FunctionTool[..., Any]) -> FunctionTool[..., Any]:
    """Return a tool as it is and make one of a plain function.

    Raises:
        ConfigurationError: As `tool`; also for a tool with a name that is not usable.
    """
    made = (
        cast("FunctionTool[..., Any]", function)
        if isinstance(function, FunctionTool)
        else _make(function)
    )
    check_function_names([made.name], RESERVED_NAMES)
    return made


def text_of(result: Any, name: str) -> str:
    """Return a tool's result as text for the model.

    Args:
        result: Text, None, JSON-like data, structs, dataclasses, or an object that offers
            `model_dump_json()`.
        name: The tool's name, for the error.

    Raises:
        ContentError: It is none of these.
    """
    if isinstance(result, str):
        return encoding.clean(result)
    if result is None:
        return ""
    dump = getattr(result, "model_dump_json", None)
    if callable(dump) and not isinstance(result, type):
        return encoding.clean(str(dump()))
    try:
        raw = encoding.encode(result)
    except ContentError:
        raw = encoding.encode(_cleaned(msgspec.to_builtins(result)))
    except RecursionError:
        raw = b"[" * (encoding.MAX_DEPTH + 1)
    except (TypeError, ValueError) as error:
        raise ContentError(
            f"tool {name!r} returned a {type(result).__name__} that is no JSON; "
            "return text or JSON-like data"
        ) from error
    # How deep an interpreter can encode differs between versions; this limit does not.
    if encoding.too_deep(raw):
        raise ContentError(
            f"tool {name!r} returned JSON nested deeper than {encoding.MAX_DEPTH} levels; "
            "return flatter data or text"
        )
    return raw.decode()


def _make(
    function: Callable[..., Any],
    name: str | None = None,
    description: str | None = None,
    defer_loading: bool = False,
    timeout: float | None = None,
    read_only: bool = False,
) -> FunctionTool[..., Any]:
    if not callable(function):
        raise ConfigurationError(f"{shown(function)} is no tool; pass a function or a FunctionTool")
    name = name or str(getattr(function, "__name__", type(function).__name__))
    check_function_names([name], RESERVED_NAMES)
    parameters = _parameters(function, name)
    hints = _hints(function, name)
    takes_context = bool(parameters) and hints.get(parameters[0].name) is ToolContext
    summary, details = describe(inspect.getdoc(function) or "")
    arguments = _struct(parameters[1:] if takes_context else parameters, hints, name)
    schema = ToolSchema(
        name,
        encoding.clean(summary if description is None else description),
        Raw(encoding.encode(_schema(arguments, hints, details, name))),
        True if defer_loading else None,
    )
    return FunctionTool(schema, function, timeout, takes_context, arguments, read_only)


def _check_schema(schema: ToolSchema) -> None:
    """Refuse a definition that no provider takes: it is not checked where it is made."""
    where = f"ToolSchema({shown(schema.name)})"
    check_value("ToolSchema", "name", schema.name, str)
    check_value(where, "description", schema.description, str)
    check_value(where, "defer_loading", schema.defer_loading, bool | None)
    check_value(where, "parameters", schema.parameters, Raw)
    try:
        parameters: Any = encoding.decode(bytes(schema.parameters))
    except ContentError as error:
        raise ConfigurationError(f"{where}: its parameters cannot be read: {error}") from error
    if not isinstance(parameters, dict):
        raise ConfigurationError(f"{where}: its parameters are no JSON schema, which is an object")


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigurationError(f"tool {name!r} is a generator; return one result instead")
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"tool {name!r} has no signature; wrap it in a function with annotations"
        ) from error


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target: Any = inspect.unwrap(function)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception as error:  # evaluating an annotation can raise anything
        raise ConfigurationError(
            f"tool {name!r} has an annotation that cannot be read ({error}); "
            "define its types at module level"
        ) from error


def _struct(parameters: list[inspect.Parameter], hints: dict[str, Any], name: str) -> type[Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters:
        where = f"parameter {parameter.name!r} of tool {name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigurationError(f"{where} has no name to call it by; make it an ordinary one")
        if parameter.name not in hints:
            raise ConfigurationError(f"{where} has no annotation; add one")
        annotation = hints[parameter.name]
        if annotation is ToolContext:
            raise ConfigurationError(f"{where} is a ToolContext; put it first")
        _check(annotation, where)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            default = msgspec.field(default_factory=functools.partial(_same, parameter.default))
            fields.append((parameter.name, annotation, default))
    return msgspec.defstruct(f"{name}__arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _same(value: Any) -> Any:
    return value


def _check(annotation: Any, where: str) -> None:
    try:
        msgspec.json.schema(annotation)
        msgspec.json.Decoder(annotation)
        _refuse_odd_keys(annotation)
    except Exception as error:  # building a schema can raise anything
        reason = str(error).partition("\n")[0].removesuffix(" requires either:")
        raise ConfigurationError(
            f"{where} has an annotation that makes no schema ({reason}); use JSON-like types"
        ) from error


def _refuse_odd_keys(annotation: Any) -> None:
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is dict and arguments[0] is not str:
        raise TypeError("a JSON object has text as keys")
    for inner in arguments:
        _refuse_odd_keys(inner)


def _schema(
    arguments: type[Struct], hints: dict[str, Any], details: dict[str, str], name: str
) -> dict[str, Any]:
    (root,), components = msgspec.json.schema_components(
        (arguments,), ref_template="#/$defs/{name}"
    )
    schema: dict[str, Any] = components.pop(root["$ref"].rpartition("/")[2])
    properties: dict[str, Any] = {}
    for field in msgspec.structs.fields(arguments):
        part = schema["properties"][field.encode_name]
        text = _described(hints[field.name]) or details.get(field.name)
        if text and "description" not in part:
            part = {"description": encoding.clean(text), **part}
        if not field.required and "default" not in part:
            part = {**part, **_default(field)}
        properties[field.encode_name] = part
    closed: dict[str, Any] = {"type": "object", "properties": properties}
    if schema.get("required"):
        closed["required"] = schema["required"]
    closed["additionalProperties"] = False
    if components:
        closed["$defs"] = {key: _closed(components[key]) for key in sorted(components)}
    return closed


def _default(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    value = cast("Callable[[], Any]", field.default_factory)()
    simple = isinstance(value, str | int | Enum) or (
        isinstance(value, float) and math.isfinite(value)
    )
    return {"default": msgspec.to_builtins(value)} if simple else {}


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a component that refuses unknown keys, without the title msgspec makes up."""
    closed = {key: value for key, value in schema.items() if key != "title"}
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _described(annotation: Any) -> str | None:
    """Return the description that an `Annotated` carries, itself or as a member of a union."""
    if typing.get_origin(annotation) is Annotated:
        for extra in annotation.__metadata__:
            text = extra if isinstance(extra, str) else getattr(extra, "description", None)
            text = text or getattr(extra, "documentation", None)
            if isinstance(text, str):
                return text
    if typing.get_origin(annotation) in (Union, types.UnionType):
        for member in typing.get_args(annotation):
            if text := _described(member):
                return text
    return None


def _convert(decoded: Any, arguments: type[Struct], name: str) -> dict[str, Any]:
    try:
        try:
            made = msgspec.convert(decoded, arguments)
        except msgspec.ValidationError:
            # To JSON Schema 5.0 is an integer, to Python it is none.
            made = msgspec.convert(_whole(decoded), arguments)
    except msgspec.ValidationError as error:
        raise ContentError(
            f"the arguments for {name!r} do not fit its parameters: {error}"
        ) from error
    return {key: getattr(made, key) for key in made.__struct_fields__}


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return encoding.clean(value)
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        found = cast("dict[Any, Any]", value)
        return {_cleaned(key): _cleaned(item) for key, item in found.items()}
    return value


async def _run(call: functools.partial[Any]) -> Any:
    function = call.func
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(target):
        return await call()
    result = await _in_thread(call)
    return await result if inspect.isawaitable(result) else result


async def _in_thread(call: functools.partial[Any]) -> Any:
    """Run a synchronous call in a thread that a cancelled await leaves behind.

    Not `anyio.to_thread`: its workers are joined when the process ends, so that one function that
    hangs would keep a program from exiting. A daemon thread dies with the process.
    """
    done = anyio.Event()
    token = anyio.lowlevel.current_token()
    outcome: list[tuple[bool, Any]] = []

    def work() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:  # it is raised where the call is awaited
            outcome.append((False, error))
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits
            anyio.from_thread.run_sync(done.set, token=token)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="tool", daemon=True).start()
    await done.wait()
    fine, value = outcome[0]
    if fine:
        return value
    raise value
