"""A note in Python. It knows nothing of conditions."""

import wit_world
from wit_world import exports
from componentize_py_async_support import spawn
from componentize_py_types import Ok
from wit_world.imports.wasi_http_types import Fields, Method_Put, Request, Response

notes: dict[str, bytes] = {}


class Handler(exports.Handler):
    async def handle(self, request: Request) -> Response:
        path = request.get_path_with_query() or "/"
        method = request.get_method()
        if isinstance(method, Method_Put):
            notes[path] = await content(request)
            return answer(204)
        if path in notes:
            return answer(200, notes[path])
        return answer(404)


async def content(request: Request) -> bytes:
    done = wit_world.result_unit_wasi_http_types_error_code_future(lambda: Ok(None))[1]
    stream, trailers = Request.consume_body(request, done)
    received = bytearray()
    with stream, trailers:
        while not stream.writer_dropped:
            received += await stream.read(64 * 1024)
    return bytes(received)


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
