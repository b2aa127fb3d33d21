"""Engines of others, stand-ins, that fail in their answers; what tells of
them."""
import json
import os
import ssl
import subprocess
import threading
import time
import unittest

from harness import free_ports, settings
from name_server import NameServer
from pair_stand_in import D, P, Nixl
from scene import Skipped, fault
from stand_in import chunk, event, reply, stream_head

PART = 'engine'


def usual(s):
    return lambda request, send: s.engines[0].complete(request, send)


class Sometimes:
    """Serves as `bad` does while it is on, else as usual."""

    def __init__(self, s, bad):
        self.s, self.bad, self.on, self.n = s, bad, False, 0
        self.go_on = threading.Event()
        s.cleanup(self.go_on.set)

    def __call__(self, request, send):
        if not self.on:
            return self.s.engines[0].complete(request, send)
        self.n += 1
        return self.bad(request, send, self)


def one_is_bad(s, bad, times=3):
    """e0 does so some times, beside e1 that is well."""
    sometimes = Sometimes(s, bad)
    s.of_engines(sometimes, None)
    s.until_states(e0='ready', e1='ready')
    s.load()
    with s.hits('e0'):
        sometimes.on = True
        s.until('it was bad', lambda: sometimes.n >= times)
        s.more()
        sometimes.on = False
        sometimes.go_on.set()
    s.until_states(e0='ready', e1='ready')
    s.more()


@fault(PART, 'answers 500 to all')
def answers_500(s):
    one_is_bad(s, lambda _, send, bad: send(reply(500, {'error': {}})))


@fault(PART, 'hangs before the head of its answer')
def hangs_before_head(s):
    def hang(_, send, bad):
        bad.go_on.wait(60 * settings.scale)
        return 'close'
    one_is_bad(s, hang, 1)


@fault(PART, 'closes before the head of its answer')
def closes_before_head(s):
    one_is_bad(s, lambda _, send, bad: 'reset')


def streams(request):
    return json.loads(request.body).get('stream')


def begin(request, send):
    """The head, and one event of a stream or half of a whole answer."""
    text = event({'id': request.answer_id(), 'choices': [{'text': 'a'}]})
    if streams(request):
        send(stream_head() + chunk(text))
    else:
        send(reply(200, {'id': request.answer_id(), 'choices': [
            {'text': 'abcd'}]})[:-10])


@fault(PART, 'hangs in the middle of its answer', broken=True)
def hangs_in_the_middle(s):
    def hang(request, send, bad):
        begin(request, send)
        bad.go_on.wait(60 * settings.scale)
        return 'close'
    one_is_bad(s, hang, 1)


@fault(PART, 'closes in the middle of its answer', broken=True)
def closes_in_the_middle(s):
    def close(request, send, bad):
        begin(request, send)
        time.sleep(0.05)
        return 'reset'
    one_is_bad(s, close, 3)


@fault(PART, 'sends what is no HTTP')
def sends_garbage(s):
    one_is_bad(s, lambda _, send, bad: send(os.urandom(3000)) or 'close')


@fault(PART, 'sends a head without an end')
def endless_head(s):
    def endless(_, send, bad):
        send(b'HTTP/1.1 200 OK\r\n')
        for i in range(20000):
            send(b'X-More-%d: %s\r\n' % (i, b'y' * 100))
        return 'close'
    one_is_bad(s, endless)


@fault(PART, 'sends garbage in the middle of its stream', broken=True)
def garbage_in_the_middle(s):
    def garbage(request, send, bad):
        begin(request, send)
        time.sleep(0.05)
        send(b'zzz\r\n' + os.urandom(100))
        return 'close'
    one_is_bad(s, garbage)


@fault(PART, 'its process is gone, and comes back', broken=True)
def process_gone(s):
    s.of_engines(None, None)
    s.until_states(e0='ready', e1='ready')
    s.load()
    with s.hits('e0'):
        s.engines[0].stop()
        s.until_states(e0='suspect')
        s.more()
        s.engines[0] = s.engines[0].restart()
        s.engines[0].models = None
    s.until_states(e0='ready', e1='ready')
    s.more()


@fault(PART, 'both engines are gone, and come back', refused=True,
       broken=True)
def both_gone(s):
    s.of_engines(None, None)
    s.until_states(e0='ready', e1='ready')
    s.load()
    with s.hits('e0', 'e1'):
        for engine in s.engines:
            engine.stop()
        s.until_states(e0='suspect', e1='suspect')
        for i, engine in enumerate(s.engines):
            s.engines[i] = engine.restart()
            s.engines[i].models = None
    s.until_states(e0='ready', e1='ready')
    s.more()


@fault(PART, 'the name of its host is not found any more (SERVFAIL), and then '
             'is again')
def name_lost(s):
    names = NameServer('engines.test', ['127.0.0.1'])
    s.cleanup(names.stop)
    engine = s.add_engine(called='engines.test')
    other = s.add_engine()
    s.of_engines(entries=[
        {'name': 'e0', 'model': 'm', 'dns': True,
         'url': f'http://engines.test:{engine.port}'},
        {'name': 'e1', 'url': other.url, 'model': 'm'}], config={
            'engine_dns_ms': 100,
            'name_server': f'127.0.0.1:{names.port}'})
    s.until('both are ready', lambda: s.town.api.instances()[0] == 2)
    s.load()
    with s.hits():
        names.addresses = None
        asked = names.asked
        s.until('it was asked', lambda: names.asked > asked + 3)
        s.more()
    s.assertEqual(s.town.api.instances()[0], 2)
    names.addresses = ['127.0.0.1']
    s.more()


@fault(PART, 'engines_file vanishes, and comes back as nonsense')
def file_vanishes(s):
    engines = [s.add_engine(), s.add_engine()]
    path = s.write('engines.json', json.dumps({'engines': [
        {'name': f'e{i}', 'url': e.url, 'model': 'm'}
        for i, e in enumerate(engines)]}))
    s.of_engines(config={'engines_file': path, 'engines': []})
    s.until_states(e0='ready', e1='ready')
    s.load()
    with s.hits():
        os.remove(path)
        s.more()
        s.write('engines.json', '{"engines": [')
        s.until('it says so', lambda: 'engines.json' in
                s.town.conductor.log())
        s.more()
    s.until_states(e0='ready', e1='ready')


@fault(PART, 'has a certificate of another name')
def other_certificate(s):
    for name, called in (('good', 'localhost'), ('bad', 'elsewhere')):
        subprocess.run([
            'openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
            'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj',
            f'/CN={called}', '-addext', f'subjectAltName=DNS:{called}',
            '-keyout', os.path.join(s.folder, name + '.key'), '-out',
            os.path.join(s.folder, name + '.pem')], check=True,
            capture_output=True)

    def context(name):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(os.path.join(s.folder, name + '.pem'),
                            os.path.join(s.folder, name + '.key'))
        return tls
    bad = s.add_engine(called='localhost', tls=context('bad'))
    good = s.add_engine(called='localhost', tls=context('good'))
    s.of_engines(entries=[
        {'name': f'e{i}', 'url': e.url, 'model': 'm',
         'tls_ca_file': os.path.join(s.folder, f'{name}.pem')}
        for i, (e, name) in enumerate(((bad, 'bad'), (good, 'good')))])
    s.until_states(e1='ready')
    with s.hits():
        s.load()
        s.more()
    s.assertEqual(bad.requests, [])


@fault(PART, 'its KV events are lost for a while, and replayed')
def events_lost(s):
    try:
        from publisher import Engine as Cache, Publisher
    except unittest.SkipTest as e:
        raise Skipped(str(e)) from e
    cache = Cache(1, 16)
    ports = [free_ports(), free_ports()]
    events = Publisher(*ports)
    s.cleanup(events.stop)
    fields = {'kind': 'vllm', 'block_tokens': 16}
    for _ in range(2):
        s.add_engine().models = [{'id': 'm', 'object': 'model'}]
    s.of_engines(entries=[
        {'name': 'e0', 'url': s.engines[0].url, 'model': 'm', **fields,
         'kv_events': f'tcp://127.0.0.1:{ports[0]}',
         'kv_replay': f'tcp://127.0.0.1:{ports[1]}'},
        {'name': 'e1', 'url': s.engines[1].url, 'model': 'm', **fields}])
    s.until_states(e0='ready', e1='ready')
    events.wait_subscribed()
    s.load()

    def held():
        return s.town.api.listed()[0]['blocks']
    # What requests may have left there counts, too, until it tells of its
    # blocks: it gets none meanwhile, and has ended those that it had.
    s.town.api.post('/admin/instances/e0/drain')
    s.until('it has no request', lambda:
        s.town.api.listed()[0]['exchanges'] == 0)
    with s.hits():
        for i in range(60):
            events.publish(cache.step(), lose=i % 3 == 1)
        events.publish(cache.step())
        s.until('all of them are known, and no others', lambda: held() == len(
            {h for h, _ in cache.cache.copies}))
        s.town.api.post('/admin/instances/e0/undrain')
        s.more()


def pair(s, prefill=None, decode=None):
    """Two prefill engines e0, e1 and two decode engines e2, e3."""
    nixl = Nixl()
    serves = [prefill(nixl) if prefill else nixl.prefill, nixl.prefill,
              decode(nixl) if decode else nixl.decode, nixl.decode]
    for serve in serves:
        engine = s.add_engine(serve)
        engine.models = [{'id': 'm', 'object': 'model'}]
        engine.metrics = 'vllm:num_requests_waiting 0\n'
    s.of_engines(config={'engine_tokenize_ms': 0}, entries=[
        {'name': f'e{i}', 'url': e.url, 'model': 'm', 'kind': 'vllm',
         'role': P if i < 2 else D, 'kv_connector': 'nixl'}
        for i, e in enumerate(s.engines)])
    s.until_states(e0='ready', e1='ready', e2='ready', e3='ready')
    return nixl


@fault(PART, 'the conductor stops for 2 s in front of it')
def conductor_stopped_before_engines(s):
    s.of_engines(None, None)
    s.until_states(e0='ready', e1='ready')
    s.load()
    with s.hits(), s.stopped('conductor'):
        time.sleep(2)
    s.more()


@fault(PART, 'the prefill engine of a pair dies, and comes back')
def pair_prefill_gone(s):
    pair(s)
    s.load()
    with s.hits('e0'):
        s.engines[0].stop()
        s.until_states(e0='suspect')
        s.more()
        s.engines[0] = s.engines[0].restart()
        s.engines[0].metrics = 'vllm:num_requests_waiting 0\n'
    s.until_states(e0='ready')
    s.more()


@fault(PART, 'the decode engine of a pair dies, and comes back', broken=True)
def pair_decode_gone(s):
    pair(s)
    s.load()
    with s.hits('e2'):
        s.engines[2].stop()
        s.until_states(e2='suspect')
        s.more()
        s.engines[2] = s.engines[2].restart()
        s.engines[2].metrics = 'vllm:num_requests_waiting 0\n'
    s.until_states(e2='ready')
    s.more()
