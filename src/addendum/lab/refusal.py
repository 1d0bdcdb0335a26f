"""How a provider of the lab refuses."""

from __future__ import annotations


class Refusal(Exception):
    """The provider does not take the request.

    Attributes:
        status: HTTP status.
        kind: The provider's error type.
        code: Its error code, if it gives one.
        param: The parameter concerned, where the wire names it apart from the message.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message.replace("\n", " "))
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param
