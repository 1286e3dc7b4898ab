"""What clients are told that is wrong, in the shape of OpenAI's API as vLLM has it."""

from __future__ import annotations

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
    """An answer with a status other than 200; with `retry_after_s` it says when to ask again."""

    def __init__(
        self, status: int, message: str, param: str | None = None, retry_after_s: int | None = None
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
        headers = None if self._retry_after_s is None else {"retry-after": str(self._retry_after_s)}
        return Response(body, self.status, headers, "application/json")
