"""An open-loop client: sends requests when they are due, over kept
connections, and notes what came back."""
import asyncio
import re
import socket
import time

CACHED = re.compile(rb'"cached_tokens":\s*(\d+)')
PROMPT = re.compile(rb'"prompt_tokens":\s*(\d+)')
LIMIT_S = 60


class Outcome:
    def __init__(self, request):
        self.request = request
        self.ttft_s = self.end_s = None  # from when it was due
        self.lag_s = 0.0                 # from then until it was sent
        self.status = 0
        self.cached = self.prompt_tokens = 0


class Connection(asyncio.Protocol):
    """One answer after the other, each with its head and chunks."""

    def __init__(self, pool):
        self.pool = pool
        self.transport = None
        self.outcome = None

    def connection_made(self, transport):
        self.transport = transport
        self.socket = transport.get_extra_info('socket')

    def ask(self, outcome, data, due):
        self.outcome, self.due, self.parts = outcome, due, []
        self.head = False
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        outcome.lag_s = time.perf_counter() - due
        return self.done

    def data_received(self, data):
        if not self.outcome:
            return
        now = time.perf_counter() - self.due
        # A server with Nagle's algorithm would wait 40 ms for the kernel's.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self.parts.append(data)
        if self.outcome.ttft_s is None:
            seen = b''.join(self.parts)
            if not self.head:
                self.head = b'\r\n\r\n' in seen
                if not self.head:
                    return
                self.outcome.status = int(seen[9:12])
                self.chunked = b'chunked' in seen.split(
                    b'\r\n\r\n', 1)[0].lower()
            if b'\ndata: {' in seen:
                self.outcome.ttft_s = now
        if self.over(data):
            self.finish(now)

    def over(self, data):
        if self.chunked:
            end = data if len(data) >= 7 else b''.join(self.parts[-8:])
            return end.endswith(b'\r\n0\r\n\r\n')
        head, _, body = b''.join(self.parts).partition(b'\r\n\r\n')
        length = re.search(rb'content-length: *(\d+)', head, re.I)
        return bool(length) and len(body) >= int(length[1])

    def finish(self, now):
        outcome, self.outcome = self.outcome, None
        answer = b''.join(self.parts)
        outcome.end_s = now
        if found := CACHED.findall(answer):
            outcome.cached = int(found[-1])
        if found := PROMPT.findall(answer):
            outcome.prompt_tokens = int(found[-1])
        self.pool.append(self)
        if not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, _):
        if self in self.pool:
            self.pool.remove(self)
        if self.outcome and not self.done.done():
            self.done.set_exception(ConnectionError('broken off'))


async def one(pool, port, outcome, data, due):
    loop = asyncio.get_running_loop()
    try:
        if pool:
            connection = pool.pop()
        else:
            _, connection = await loop.create_connection(
                lambda: Connection(pool), '127.0.0.1', port)
        await asyncio.wait_for(connection.ask(outcome, data, due), LIMIT_S)
    except (OSError, asyncio.TimeoutError):
        outcome.status = outcome.status or -1


async def all_of(port, requests, bodies, times_s):
    outcomes = [Outcome(r) for r in requests]
    pool, tasks = [], []
    start = time.perf_counter() + 0.2
    for i, (outcome, body, due_s) in enumerate(
            zip(outcomes, bodies, times_s)):
        wait_s = start + due_s - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        data = (b'POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n'
                b'Content-Type: application/json\r\nX-Request-Id: r%d\r\n'
                b'Content-Length: %d\r\n\r\n' % (i, len(body)) + body)
        tasks.append(asyncio.ensure_future(
            one(pool, port, outcome, data, start + due_s)))
    await asyncio.gather(*tasks)
    for connection in pool:
        connection.transport.abort()
    return outcomes, time.perf_counter() - start


def play(port, requests, speed, as_text):
    """Sends all to a port of 127.0.0.1, `speed` times as fast as their times
    say; 0: all at once. Returns their outcomes and the seconds it took."""
    bodies = [r.body(as_text) for r in requests]
    times_s = [(r.due_s - requests[0].due_s) / speed if speed else 0.0
               for r in requests]
    return asyncio.run(all_of(port, requests, bodies, times_s))
