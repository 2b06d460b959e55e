"""Notes in Python. They know nothing of conditions."""

import wit_world
from wit_world import exports
from componentize_py_async_support import spawn
from componentize_py_types import Ok
from wit_world.imports.wasi_http_types import (
    Fields, Method_Delete, Method_Get, Method_Head, Method_Put, Request, Response,
)

notes: dict[str, bytes] = {}


class Handler(exports.Handler):
    async def handle(self, request: Request) -> Response:
        path = request.get_path_with_query() or "/"
        match request.get_method():
            # A part must not replace the whole (RFC 9110 §14.5).
            case Method_Put() if request.get_headers().has("content-range"):
                return answer(400)
            case Method_Put():
                received = await content(request)
                if received is None:
                    return answer(400)
                notes[path] = received
                return answer(204)
            case Method_Delete():
                return answer(204 if notes.pop(path, None) is not None else 404)
            case Method_Get() | Method_Head():
                return answer(200, notes[path]) if path in notes else answer(404)
            case _:
                return answer(501)


async def content(request: Request) -> bytes | None:
    """Returns None if the client has left before the end: a part must not replace the whole."""
    done = wit_world.result_unit_wasi_http_types_error_code_future(lambda: Ok(None))[1]
    stream, trailers = Request.consume_body(request, done)
    received = bytearray()
    with stream, trailers:
        while not stream.writer_dropped:
            received += await stream.read(64 * 1024)
        end = await trailers.read()
    return bytes(received) if isinstance(end, Ok) else None


def answer(status: int, content: bytes | None = None) -> Response:
    trailers = wit_world.result_option_wasi_http_types_fields_wasi_http_types_error_code_future(lambda: Ok(None))[1]
    writer = reader = None
    if content is not None:
        writer, reader = wit_world.byte_stream()
        spawn(send(writer, content))
    response = Response.new(Fields(), reader, trailers)[0]
    response.set_status_code(status)
    return response


async def send(writer, content: bytes) -> None:
    with writer:
        await writer.write_all(content)
