"""A receiver of spans, by OTLP over HTTP in JSON, that takes nothing else: each
batch is checked against the names and types of opentelemetry/proto/trace/v1 in
the mapping to JSON that OTLP has (ids in hexadecimal, 64 bits as text)."""
import http.server
import json
import re
import threading


def hex_id(digits):
    return lambda v: re.fullmatch('[0-9a-f]{%d}' % digits, v) and int(v, 16)


def is_text(v):
    return isinstance(v, str)


def is_64_bits(v):
    return isinstance(v, str) and re.fullmatch('-?[0-9]+', v)


VALUES = {'stringValue': is_text, 'intValue': is_64_bits,
          'doubleValue': lambda v: isinstance(v, (int, float)),
          'boolValue': lambda v: isinstance(v, bool)}


def check(value, fields, needed=()):
    """An object with these fields alone."""
    assert isinstance(value, dict), value
    assert set(needed) <= set(value), (needed, value)
    for name, content in value.items():
        assert name in fields, f'{name}: unknown'
        assert fields[name](content) is not False, (name, content)
        assert fields[name](content) is not None, (name, content)
    return True


def list_of(item):
    return lambda v: isinstance(v, list) and all(item(i) for i in v)


def attribute(v):
    assert len(v['value']) == 1, v
    return check(v, {'key': is_text, 'value': lambda x: check(x, VALUES)},
                 ('key', 'value'))


def attributes(v):
    keys = [a['key'] for a in v]
    assert len(keys) == len(set(keys)), keys
    return list_of(attribute)(v)


def status(v):
    return check(v, {'code': lambda c: c in (0, 1, 2), 'message': is_text})


def span(v):
    assert int(v['startTimeUnixNano']) <= int(v['endTimeUnixNano']), v
    return check(
        v, {'traceId': hex_id(32), 'spanId': hex_id(16),
            'parentSpanId': hex_id(16), 'name': lambda n: n and is_text(n),
            'kind': lambda k: k in (1, 2, 3), 'startTimeUnixNano': is_64_bits,
            'endTimeUnixNano': is_64_bits, 'attributes': attributes,
            'status': status},
        ('traceId', 'spanId', 'name', 'kind', 'startTimeUnixNano',
         'endTimeUnixNano'))


def request(v):
    scope = {'scope': lambda s: check(s, {'name': is_text, 'version': is_text}),
             'spans': list_of(span)}
    resource = {
        'resource': lambda r: check(r, {'attributes': attributes}),
        'scopeSpans': list_of(lambda s: check(s, scope, scope))}
    return check(v, {'resourceSpans': list_of(
        lambda r: check(r, resource, resource))}, ('resourceSpans',))


def unique(pairs):
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), names
    return dict(pairs)


class Receiver:
    """Answers 200, unless `answers` has others: (status, headers, body), the
    next one first; None: no answer at all; a function of the handler."""

    def __init__(self, case, port=0):
        self.spans, self.faults, self.batches = [], [], []
        self.answers, self.seen = [], 0
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_POST(self):
                receiver.take(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', port),
                                                      Handler)
        self.server.daemon_threads = True
        self.url = f'http://127.0.0.1:{self.server.server_port}/v1/traces'
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        case.addCleanup(self.close)

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def take(self, handler):
        body = handler.rfile.read(int(handler.headers['Content-Length']))
        code, headers, reply = 200, {}, b'{}'
        self.seen += 1
        if self.answers:
            answer = self.answers.pop(0)
            if answer is None:
                handler.close_connection = True
                return
            if callable(answer):
                answer(handler)
                return
            code, headers, reply = answer
        try:
            assert handler.path == '/v1/traces', handler.path
            assert handler.headers['Content-Type'] == 'application/json'
            batch = json.loads(body, object_pairs_hook=unique)
            request(batch)
            if code == 200:
                self.batches.append(body)
                for r in batch['resourceSpans']:
                    for s in r['scopeSpans']:
                        self.spans += s['spans']
        except (AssertionError, KeyError, ValueError) as e:
            self.faults.append(f'{type(e).__name__}: {e}')
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header('Content-Type', 'application/json')
        handler.send_header('Content-Length', str(len(reply)))
        handler.end_headers()
        handler.wfile.write(reply)


def attributes_of(one):
    return {a['key']: next(iter(a['value'].values()))
            for a in one['attributes']}
