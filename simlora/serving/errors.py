"""What clients are told that is wrong, in the shape of OpenAI's API as vLLM has it."""

from __future__ import annotations

from math import ceil

import msgspec
from starlette.responses import Response

TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    413: "RequestEntityTooLarge",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


class ApiError(Exception):
    """An answer with a status other than 200; with 429 and 503 it says when to ask again, in whole seconds."""

    def __init__(
        self, status: int, message: str, param: str | None = None, retry_after_s: float = 1.0
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self._retry_after_s = status, message, param, retry_after_s

    def response(self) -> Response:
        """Return the answer."""
        error = {
            "message": self.message,
            "type": TYPES[self.status],
            "param": self.param,
            "code": self.status,
        }
        body = msgspec.json.encode({"error": error})
        seconds = max(ceil(self._retry_after_s), 1)
        headers = {"retry-after": str(seconds)} if self.status in (429, 503) else None
        return Response(body, self.status, headers, "application/json")
