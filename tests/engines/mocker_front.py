"""An HTTP front of one of Dynamo's mockers that chooses nothing, in place of
Dynamo's frontend, which pairs prefill and decode engines by itself: takes
OpenAI's completions of token ids, with SGLang's bootstrap_host, bootstrap_port
and bootstrap_room, and calls the mocker over Dynamo's request plane.

usage: mocker_front.py ENDPOINT PORT

ENDPOINT is dynamo.prefill.generate or dynamo.backend.generate; DYN_FILE_KV
says where the mocker announces itself, and it must be the only one there."""
import asyncio
import json
import sys
import uuid

from dynamo._core import Context
from dynamo.runtime import DistributedRuntime

MODEL = 'tiny'


def asked_of(body):
    """(request, context) for the mocker. Both legs of a pair must have one
    id: it follows from the room."""
    asked = {
        'token_ids': body['prompt'], 'model': MODEL,
        'stop_conditions': {'max_tokens': body.get('max_tokens', 16),
                            'ignore_eos': True},
        'sampling_options': {}, 'output_options': {}, 'eos_token_ids': [],
        'annotations': []}
    if 'bootstrap_room' not in body:
        return asked, Context()
    room = body['bootstrap_room']
    shared = uuid.uuid5(uuid.NAMESPACE_OID, str(room))
    asked['bootstrap_info'] = {
        'bootstrap_host': body['bootstrap_host'],
        'bootstrap_port': body['bootstrap_port'], 'bootstrap_room': room,
        'handoff_id': shared.bytes}
    return asked, Context(str(shared))


def head(status, kind='application/json', length=None):
    ends = (f'Content-Length: {length}' if length is not None
            else 'Transfer-Encoding: chunked')
    return (f'HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\n{ends}\r\n\r\n'
            ).encode()


def whole(status, body):
    data = json.dumps(body).encode()
    return head(status, length=len(data)) + data


def event(body):
    data = f'data: {body if isinstance(body, str) else json.dumps(body)}\n\n'
    return f'{len(data):x}\r\n{data}\r\n'.encode()


def part(tokens, finish, usage):
    made = {'id': 'x', 'object': 'text_completion', 'model': MODEL,
            'choices': [{'index': 0, 'text': ''.join(f'<{t}>' for t in tokens),
                         'finish_reason': finish}]}
    return {**made, 'usage': usage} if usage else made


class Fault(Exception):
    """What the mocker said instead of an answer."""


async def outputs(client, body, context_of):
    """(tokens, finish reason or None, usage or None) as they come."""
    asked, context = asked_of(body)
    context_of.append(context)
    # Not generate(): that leaves out an instance that failed once.
    async for item in await client.direct(
            asked, client.instance_ids()[0], context=context):
        made = item.data() if hasattr(item, 'data') else item
        if not made:
            continue
        finish = made.get('finish_reason')
        if isinstance(finish, dict):
            raise Fault(str(finish))
        yield made.get('token_ids') or [], finish, made.get('completion_usage')


async def serve_stream(client, body, out, contexts):
    begun = False
    async for tokens, finish, usage in outputs(client, body, contexts):
        if not begun:
            out.write(head(200, 'text/event-stream'))
            begun = True
        out.write(event(part(tokens, finish, usage if finish else None)))
        await out.drain()
    out.write(event('[DONE]') + b'0\r\n\r\n')


async def serve_whole(client, body, out, contexts):
    all_tokens, finish, usage = [], None, None
    async for tokens, finish, told in outputs(client, body, contexts):
        all_tokens += tokens
        usage = told or usage
    out.write(whole(200, part(all_tokens, finish, usage)))


async def answer(client, body, out, contexts):
    serve = serve_stream if body.get('stream') else serve_whole
    try:
        await serve(client, body, out, contexts)
    except asyncio.CancelledError:
        raise
    except Exception as fault:  # whatever the runtime raises
        print(f'{body.get("bootstrap_room")}: {fault}', flush=True)
        out.write(whole(503, {'error': {'message': str(fault)[:200]}}))
        out.close()


async def read_request(into):
    """(method, path, body) of a request with a length; None at the end."""
    try:
        lines = (await into.readuntil(b'\r\n\r\n')).decode().split('\r\n')
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    fields = {k.lower(): v for k, _, v in
              (line.partition(': ') for line in lines[1:])}
    data = await into.readexactly(int(fields.get('content-length', 0)))
    method, path, _ = lines[0].split(' ')
    return method, path, data


async def serve_leg(client, data, into, out):
    """Answers, and stops the mocker's work if the other side leaves. What it
    sends meanwhile is its next request: this one is not pipelined."""
    contexts = []
    work = asyncio.ensure_future(
        answer(client, json.loads(data), out, contexts))
    left = asyncio.ensure_future(into.read(1))
    await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        return True
    for context in contexts:
        context.stop_generating()
    await asyncio.wait({work}, timeout=5)
    work.cancel()
    return False


async def connected(client, into, out):
    try:
        while (request := await read_request(into)) is not None:
            method, path, data = request
            ready = bool(client.instance_ids())
            if method == 'POST' and path == '/v1/completions' and ready:
                if not await serve_leg(client, data, into, out):
                    break
            elif path == '/v1/models' and ready:
                out.write(whole(200, {'object': 'list', 'data': [
                    {'id': MODEL, 'object': 'model'}]}))
            elif path == '/health' and ready:
                out.write(whole(200, {}))
            else:
                out.write(whole(404 if ready else 503, {'error': {}}))
            await out.drain()
    except ConnectionError:
        pass
    finally:
        out.close()


async def main():
    runtime = DistributedRuntime(asyncio.get_running_loop(), 'file', 'tcp')
    client = await runtime.endpoint(sys.argv[1]).client()
    server = await asyncio.start_server(
        lambda into, out: connected(client, into, out), '127.0.0.1',
        int(sys.argv[2]))
    await server.serve_forever()


asyncio.run(main())
