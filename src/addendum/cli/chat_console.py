"""The terminal's side of a chat: the prompt, signals, what is said around the turns.

The terminal belongs to the main thread: there, `input` has line editing and an interrupt means
what people expect. The conversation, its servers and the lab live in an event loop beside it, so
they go on while a person thinks.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from addendum.agent.results import RequestFigures, total
from addendum.agent.streaming import TurnStream
from addendum.cache.cost import Cost, price, summed
from addendum.cli.chat_approval import ask_about
from addendum.cli.chat_commands import Commands, route_line
from addendum.cli.chat_room import Room, Wanted, opened
from addendum.cli.chat_view import TurnView, figures, say, say_figures
from addendum.cli.terminal import echo
from addendum.errors import AddendumError
from addendum.lines import one_line
from addendum.log.events import AssistantMessage, UserMessage
from addendum.tell.figures import number

_SHOWN = 200
_ERROR = 1000
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def run_chat(wanted: Wanted) -> int:
    """Hold a chat until the person leaves it.

    Args:
        wanted: What the command line asks for.

    Returns:
        The exit code: 0; 1 if a line failed and nobody sat in front of it; 128 and the signal's
        number if one ended it.

    Raises:
        AddendumError: It cannot begin; the message says what to do.
    """
    if hasattr(sys.stdout, "reconfigure"):
        # A terminal that cannot show a sign shows `?`; a chat does not end for that.
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    with _told_plainly(), start_blocking_portal("asyncio") as portal:
        console = Console(portal)
        with (
            console.signals(),
            portal.wrap_async_context_manager(opened(wanted)) as room,
            console.leaving(room),
        ):
            console.talk(room)
    return console.code


class Console:
    """The main thread's side of a chat: the prompt, and what signals mean at any moment.

    An interrupt at the prompt counts; the second in a row leaves. While something runs, it stops
    that. A request to end (SIGTERM, SIGHUP) stops what runs and leaves.

    Args:
        portal: The way into the event loop.

    Attributes:
        code: The exit code.
    """

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._stop: Callable[[], None] | None = None
        self._raises = True
        self._ended_by: int | None = None
        self._interactive = sys.stdin.isatty()
        self.code = 0

    # -- signals ----------------------------------------------------------------------------

    @contextmanager
    def signals(self) -> Generator[None]:
        """Have signals mean what they mean in a chat, as long as the context lasts."""
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, *_SIGNALS)}
        for each in before:
            signal.signal(each, self._on_signal)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT:
            self._ended_by, self.code = number, 128 + number
        if self._stop is not None:
            self._stop()
        elif self._raises:
            raise KeyboardInterrupt

    # -- the conversation -------------------------------------------------------------------

    def talk(self, room: Room) -> None:
        """Read lines and answer them until the person leaves."""
        commands = Commands(
            room.session, room.resolve, lambda said: show(room, room.session.stream(said))
        )
        self._raises = False
        greet(room)
        self._load_history(room)
        interrupted = False
        while self._ended_by is None:
            if room.session.pending():
                if not self._approve(room):
                    break
                continue
            try:
                text = self._ask()
            except EOFError:
                break
            except KeyboardInterrupt:
                echo()
                if interrupted or self._ended_by is not None:
                    break
                interrupted = True
                echo("Ctrl-C once more, or Ctrl-D, leaves")
                continue
            if text in ("/quit", "/exit"):
                break
            interrupted = False
            if not text:
                continue
            if is_command(text, room.obeys_calls):
                interrupted = self._work(room, lambda text=text: commands.run(text))
            else:
                said = text[1:] if text.startswith("//") else text
                interrupted = self._work(
                    room, lambda said=said: show(room, room.session.stream(said))
                )

    @contextmanager
    def leaving(self, room: Room) -> Generator[None]:
        """Whatever ends the chat, say what it had and how it goes on, if there is who reads it."""
        try:
            yield
        except OSError:
            # The terminal is gone, and the signal that says so is on its way or here.
            if self._ended_by is None:
                raise
        finally:
            # Nothing is left to stop, and what is on its way to the store must get there.
            self._raises = False
            with contextlib.suppress(OSError):
                farewell(room)

    def _approve(self, room: Room) -> bool:
        """Ask about the calls that wait and go on with their turn; say whether that was answered.

        Whoever leaves here decides nothing: the session waits until it is opened again.
        """
        try:
            decisions = ask_about(room.session.pending(), self._read)
        except (EOFError, KeyboardInterrupt):
            echo()
            return False
        self._work(room, lambda: show(room, room.session.stream_decide(decisions)))
        return True

    def _read(self, question: str) -> str:
        try:
            self._raises = True
            if self._ended_by is not None:
                raise EOFError
            return input(question if self._interactive and sys.stdout.isatty() else "")
        finally:
            self._raises = False

    def _ask(self) -> str:
        prompt = self._interactive and sys.stdout.isatty()
        lines: list[str] = []
        try:
            self._raises = True
            if self._ended_by is not None:
                raise EOFError
            while True:
                try:
                    text = input(("> " if not lines else ". ") if prompt else "")
                except EOFError:
                    if not lines:
                        if prompt:
                            echo()
                        raise
                    break
                lines.append(text)
                if not text.endswith("\\"):
                    break
                lines[-1] = text[:-1]
        finally:
            self._raises = False
        return "\n".join(lines).strip()

    def _work(self, room: Room, work: Callable[[], Awaitable[None]]) -> bool:
        """Do something in the event loop until it is done or stopped; say whether it was stopped.

        What goes wrong in it is a line, and the chat goes on.
        """
        scope: list[anyio.CancelScope] = []
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            if scope:
                room.loop.call_soon_threadsafe(scope[0].cancel)

        async def guarded() -> None:
            with anyio.CancelScope() as own:
                scope.append(own)
                # The signal may have come before there was anything to cancel.
                if not stopped:
                    await work()

        self._stop = stop
        try:
            self._portal.call(guarded)
        except AddendumError as error:
            say(f"error: {one_line(str(error), _ERROR)}", error=True)
            if not self._interactive:
                self.code = 1
        finally:
            self._stop = None
        if stopped:
            say("stopped")
        return stopped

    def _load_history(self, room: Room) -> None:
        """Offer the person's earlier messages to the arrow keys, where there is line editing."""
        if not self._interactive:
            return
        try:
            import readline
        except ImportError:
            return
        for event in room.session.log.events:
            if isinstance(event.data, UserMessage) and "\n" not in event.data.text:
                readline.add_history(event.data.text)


def is_command(text: str, obeys_calls: bool) -> bool:
    """Say whether a line is for the chat itself and not for the model.

    Args:
        text: The line.
        obeys_calls: Whether `/call NAME JSON` is for the model.
    """
    return (
        text.startswith("/")
        and not text.startswith("//")
        and not (obeys_calls and text.startswith("/call "))
    )


async def show(room: Room, turn: TurnStream) -> None:
    """Show a turn as it runs; then its figures, also if it was stopped or failed."""
    view = TurnView()
    try:
        async with turn:
            async for event in turn:
                view.show(event)
    finally:
        view.close()
        if view.requests:
            say_figures(_figures(room, view.requests))


def _figures(room: Room, requests: list[RequestFigures]) -> str:
    now = room.session.agent.clock()
    usages = [each.usage for each in requests]
    cost = summed(price(room.session.route, usage, now) for usage in usages)
    return figures(total(usages), cost)


def greet(room: Room) -> None:
    """Say where the person is."""
    session = room.session
    say(f"session {session.id} {route_line(session)}", bold=True)
    names = session.registry.server_names
    if names:
        states = (f"{one_line(n, 40)} {'on' if session.tools.on(n) else 'off'}" for n in names)
        say(f"MCP servers: {', '.join(states)}")
    if room.wanted.lab:
        say("the lab answers: its figures are simulated by published rules")
    if room.resumed:
        said = "turn" if room.resumed == 1 else "turns"
        say(f"{number(room.resumed)} {said} so far; the last messages:")
        nodes = [node.data for node in session.log.surface.nodes]
        for kind, mark in ((UserMessage, "> "), (AssistantMessage, "  ")):
            last = next((each for each in reversed(nodes) if isinstance(each, kind)), None)
            if last is not None and last.text:
                say(f"{mark}{one_line(last.text, _SHOWN)}", dim=True)
    say("/help lists the commands")


def farewell(room: Room) -> None:
    """Say what the session cost so far, and how to go on with it."""
    session = room.session
    answers = [
        (event.time / 1000, event.data)
        for event in session.log.events
        if isinstance(event.data, AssistantMessage)
    ]
    if answers:
        costs: list[Cost | None] = []
        for at, data in answers:
            try:
                costs.append(price(room.resolve(data.route), data.usage, at))
            except AddendumError:
                costs.append(None)
        word = "request" if len(answers) == 1 else "requests"
        before = f"{number(len(answers))} {word}: "
        usage = total([data.usage for _, data in answers])
        say_figures(figures(usage, summed(costs), before))
    if waiting := len(session.pending()):
        said = "call waits" if waiting == 1 else "calls wait"
        say(f"{number(waiting)} {said} for your decision")
    if session.log.turns and room.wanted.store != "memory://":
        # In one piece, so that it can be copied; a terminal wraps it by itself.
        echo(f"go on with: {room.wanted.again(session.id)}")


@contextmanager
def _told_plainly() -> Generator[None]:
    """Have an error of ours leave as it was raised, also where a task group wrapped it."""
    try:
        yield
    except BaseExceptionGroup as group:
        told = group.subgroup((AddendumError, KeyboardInterrupt))
        while isinstance(told, BaseExceptionGroup):
            told = told.exceptions[0]
        if told is None:
            raise
        raise told from None
