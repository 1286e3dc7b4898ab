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
    """An answer with a status other than 200."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param

    def response(self) -> Response:
        """Return the answer."""
        error = {
            "message": self.message,
            "type": TYPES[self.status],
            "param": self.param,
            "code": self.status,
        }
        body = msgspec.json.encode({"error": error})
        headers = {"retry-after": "1"} if self.status == 503 else None
        return Response(body, self.status, headers, "application/json")
