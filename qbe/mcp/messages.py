"""Lines of standard input that are no messages of the protocol, which the library would pass over."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError


class AnsweredErrors:
    """A stream of messages, in which what is none is answered with an error of JSON-RPC and left out."""

    def __init__(self, messages: Any, answers: Any) -> None:
        self._messages, self._answers = messages, answers

    def __getattr__(self, name: str) -> Any:
        """What else the stream has, such as ``aclose``."""
        return getattr(self._messages, name)

    async def receive(self) -> Any:
        """The next message; raises `anyio.EndOfStream` at the end."""
        while isinstance(item := await self._messages.receive(), Exception):
            await self._answers.send(SessionMessage(refusal(item)))
        return item

    def __aiter__(self) -> AnsweredErrors:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> AnsweredErrors:
        await self._messages.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._messages.__aexit__(*error)


def refusal(error: Exception) -> JSONRPCError:
    """The answer to a line that could not be read, whose number is not known (JSON-RPC 2.0, section 5.1).

    >>> refusal(ValueError("no message")).error.code
    -32600
    """
    is_json = not isinstance(error, ValidationError) or error.errors()[0]["type"] != "json_invalid"
    code, expected = (INVALID_REQUEST, "a message of JSON-RPC 2.0") if is_json else (PARSE_ERROR, "JSON")
    message = f"expected {expected} in one line, found what cannot be read as such"
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=message))
