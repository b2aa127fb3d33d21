"""The status page and its events: what they show, to whom, and how they end."""
import json
import os
import signal
import threading
import unittest

import browser
from harness import Api, Case, wait_until

KEY = 'k' * 40


def events(response, names):
    """The next event of each name."""
    got = {}
    name = None
    for line in response:
        if line.startswith(b'event: '):
            name = line[7:].strip().decode()
        elif line.startswith(b'data: '):
            got[name] = json.loads(line[6:])
            if set(names) <= set(got):
                return got
    raise AssertionError(f'the stream ended with {set(got)}')


class Watched(Case):
    def watched(self, prefill=2, **config):
        path = self.write('admin.key', KEY)
        os.chmod(path, 0o600)
        cluster = self.cluster(
            prefill=prefill, engine='timed', kv_blocks=200,
            config={'admin_listen': '127.0.0.1:0', 'admin_key_file': path,
                    **config})
        return cluster, Api(cluster.ports['admin'])


class Views(Watched):
    def test_what_they_say(self):
        cluster, admin = self.watched()
        named = {'Authorization': f'Bearer {KEY}'}
        for path in 'events', 'overview', 'history', 'decisions':
            self.assertEqual(
                admin.get('/admin/' + path).status, 401)
            self.assertEqual(
                cluster.api.get('/admin/' + path).status, 404)
        for path in '/', '/admin', '/admin/':
            reply = admin.get(path).ok()
            self.assertIn("script-src 'sha256-",
                          reply.headers['Content-Security-Policy'])
            self.assertEqual(cluster.api.get(path).status, 404)
        for _ in range(2):
            self.assertEqual(cluster.api.complete(
                'p' * 64, headers={'x-slo-ttft-ms': '60000'}).status, 200)
        self.assertEqual(cluster.api.post(
            '/v1/completions', {'prompt': 'q' * 64},
            {'x-slo-ttft-ms': '0.001'}).status, 429)
        connection, response = admin.open('GET', '/admin/events',
                                          headers=named)
        got = events(response, ('overview', 'instances', 'decisions',
                                'history/5m', 'history', 'history/24h'))
        connection.close()
        for view in 'instances', 'history/5m', 'history', 'history/24h':
            whole = admin.get('/admin/' + view, headers=named).body
            self.assertEqual(set(whole), set(got[view]))
        overview = got['overview']
        self.assertEqual(overview['requests'], {
            'in_flight': 0, 'completed': 2, 'rejected': 1, 'failed': 0,
            'cancelled': 0, 'invalid': 0, 'retries': 0})
        self.assertEqual(overview['rejections'], {
            'slo_ttft': 1, 'slo_tbt': 0, 'price': 0, 'share': 0, 'no_room': 0,
            'link': 0, 'tickets': 0})
        self.assertEqual(overview['tokens'] | {'output': 8}, {
            'prompt': 128, 'local': 48, 'fetched': 0, 'disk': 0, 'shared': 0,
            'computed': 80, 'output': 8})
        self.assertEqual(overview['pools']['prefill']['ready'], 2)
        minute = overview['last_minute']
        self.assertEqual((minute['in_time'], minute['rejected'],
                          minute['reused_tokens']), (2, 1, 48))
        for kind in 'mean', 'p50', 'p90', 'p99':
            self.assertGreater(minute[f'ttft_{kind}_ms'], 0)
        self.assertEqual(overview['promises'], {'kept': 2, 'late': 0})
        self.assertEqual((minute['promises_kept'], minute['promises_late']),
                         (2, 0))
        self.assertGreater(minute['predicted_p50_ms'], 0)
        for span, step_s, points in (('history/5m', 5, 60),
                                     ('history', 10, 360),
                                     ('history/24h', 240, 360)):
            history = got[span]
            self.assertEqual(history['step_s'], step_s)
            self.assertEqual(len(history['in_time']), points)
            for key, n in (('in_time', 2), ('rejected', 1), ('late', 0),
                           ('promises_kept', 2), ('promises_late', 0),
                           ('prompt_tokens', 128), ('reused_tokens', 48)):
                self.assertEqual(sum(history[key]), n, key)
            # The two answers may be in two steps.
            p99 = [v for v in history['ttft_p99_ms'] if v]
            self.assertIn(len(p99), (1, 2))
            if len(p99) == 1:
                self.assertEqual(p99[0], minute['ttft_p99_ms'])
            self.assertLessEqual(min(p99), minute['ttft_p99_ms'])
            self.assertLessEqual(minute['ttft_p99_ms'], max(p99) * 1.1)
        decisions = got['decisions']['decisions']
        self.assertEqual([d['state'] for d in decisions],
                         ['rejected', 'completed', 'completed'])
        self.assertEqual([len(d['candidates']) for d in decisions], [2] * 3)
        refused = got['decisions']['refused']
        self.assertEqual(refused, decisions[:1])
        self.assertEqual(refused[0]['verdict'], 'reject_slo_ttft')
        self.assertGreater(refused[0]['candidates'][0]['ttft_ms'],
                           refused[0]['slo_ttft_ms'])
        one = admin.get('/admin/explain/' +
                        decisions[1]['request_id'], headers=named).body
        self.assertEqual(one, decisions[1])

    def test_refused_ones_stay(self):
        """The last four of them, however many others came after them."""
        cluster = self.cluster(engine='timed', kv_blocks=200,
                               config={'explain_requests': 2})
        ids = []
        for _ in range(5):
            reply = cluster.api.complete('q' * 64,
                                         headers={'x-slo-ttft-ms': '0.001'})
            self.assertEqual(reply.status, 429)
            ids.insert(0, reply.headers['x-conductor-request-id'])
            for _ in range(3):
                self.assertEqual(cluster.api.complete('p' * 64).status, 200)
        got = cluster.api.get('/admin/decisions').body
        self.assertEqual([d['request_id'] for d in got['refused']], ids[:4])
        self.assertFalse(set(ids) & {d['request_id'] for d in got['decisions']})

    def test_a_promise_that_is_late(self):
        """A prefill that takes longer than its cost model says."""
        cluster = self.cluster(engine='timed', kv_blocks=200,
                               cost={'prefill': (50000, 0, 0, 0)})
        worker = cluster.workers['p0'].child.pid
        os.kill(worker, signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (worker, signal.SIGCONT)).start()
        self.assertEqual(cluster.api.complete(
            'p' * 64, headers={'x-slo-ttft-ms': '300'}).status, 200)
        overview = cluster.api.get('/admin/overview').body
        self.assertEqual(overview['promises'], {'kept': 0, 'late': 1})
        self.assertEqual(overview['last_minute']['promises_late'], 1)
        self.assertEqual(sum(cluster.api.get('/admin/history/24h').body[
            'promises_late']), 1)

    def test_a_viewer_does_not_keep_it_from_its_end(self):
        cluster = self.cluster(engine='timed', kv_blocks=200)
        connection, response = cluster.api.open('GET', '/admin/events')
        events(response, ('overview',))
        cluster.conductor.child.terminate()
        self.assertEqual(cluster.conductor.wait(), 0)
        response.read()
        connection.close()


@unittest.skipUnless(browser.AVAILABLE, browser.MISSING)
class Page(Watched):
    """In Chromium. CONDUCTOR_PICTURES: a folder for pictures of it."""

    def picture(self, window, name):
        folder = os.environ.get('CONDUCTOR_PICTURES')
        if folder:
            window.picture(os.path.join(folder, name))

    def look(self, width, height, name):
        markup = '<img src=x onerror=alert(1)>'
        cluster, _ = self.watched(slo_ttft_ms=1000, engines=[
            {'name': '<img>e', 'url': 'http://127.0.0.1:9', 'model': markup}])
        evil = '<img>p2'
        cluster.start_worker(evil, 'prefill', engine='timed', kv_blocks=200)
        cluster.wait_ready(3, 1)
        for i in range(8):
            self.assertEqual(cluster.api.post('/v1/completions', {
                'model': 'tiny', 'prompt': 'p' * (64 + 32 * i)},
                {'x-request-id': markup, 'x-session-id': markup}).status, 200)
        self.assertEqual(cluster.api.complete(
            'q' * 64, headers={'x-slo-ttft-ms': '0.001'}).status, 429)
        window = browser.Browser(self, width, height)
        window.open(f'http://127.0.0.1:{cluster.ports["admin"]}/')
        window.wait_for('The key of admin_key_file')
        self.enter(window, 'wrong')
        window.wait_for('That is not the key.')
        self.enter(window, KEY)
        window.wait_for('ready: tiny', f'not ready: {markup}', 'p0', 'd0',
                        evil, '<img>e', 'TTFT mean',
                        'in time (goodput)', 'cached, since the start',
                        'promises kept', 'slo_ttft_exceeded',
                        'behind all accepted work, limit 0')
        self.assertEqual(window.text('#refused'), '')
        window.run('[...document.querySelectorAll("#decisions details")].find('
                   'd => d.innerText.includes("completed")).open = true')
        window.wait_for('chosen')
        self.assertEqual(window.run('return document.title'), 'Conductor')
        self.assertEqual(window.run(
            'return document.querySelectorAll("img").length'), 0)
        self.assertNotIn(KEY, window.run('return location.href'))
        self.assertEqual(window.run('return innerWidth'), width)
        self.assertLessEqual(window.run(
            'return document.documentElement.scrollWidth'), width)
        for span in 'history/24h', 'history', 'history/5m':
            window.run(f'document.querySelector("[value=\\"{span}\\"]").click()')
            paths = window.run(
                'return [...document.querySelectorAll("section > svg .line")]'
                '.map(p => p.getAttribute("d"))')
            self.assertEqual(len(paths), 11)
            self.assertRegex(paths[0], r'^M[0-9.]+ [0-9.]+')
            # A point without neighbours has its line's mark.
            self.assertEqual(window.run(
                'return [...document.querySelectorAll("section > svg .line")]'
                '.flatMap(p => (p.getAttribute("d").match('
                '/M[0-9.]+ [0-9.]+(?=M|h|$)/g) || []).filter('
                'm => !p.parentNode.querySelector(`.mark[transform='
                '"translate(${m.slice(1)})"]`))).length'), 0)
            # No label is cut, and none is a long fraction.
            self.assertEqual(window.run(
                'return [...document.querySelectorAll("section > svg")].flatMap('
                's => [...s.querySelectorAll("text")].filter(t => {'
                'const a = s.getBoundingClientRect(),'
                ' b = t.getBoundingClientRect();'
                'return b.left < a.left - 1 || b.right > a.right + 1 ||'
                ' t.textContent.length > 9;}).map(t => t.textContent))'), [])
        kept = window.text('#decisions details[open] summary')
        for _ in range(9):  # an opened one stays when others come
            self.assertEqual(cluster.api.complete('r' * 64).status, 200)
        wait_until('newer ones are shown', lambda: kept != window.text(
            '#decisions summary'))
        self.assertIn(kept.split()[-1], window.text('#decisions'))
        self.assertEqual([c for c in window.complaints() if '401' not in c],
                         [])
        self.picture(window, name)
        return cluster, window

    def enter(self, window, key):
        window.run(f'document.querySelector("#key").value = {json.dumps(key)};'
                   'document.querySelector("#ask button").click()')

    def test_on_a_desktop(self):
        cluster, window = self.look(1200, 1400, 'desktop.png')
        # A page that is loaded again has the key still.
        window.ask('POST', '/refresh')
        window.wait_for('ready: tiny')
        cluster.conductor.kill()
        window.wait_for('trying again')
        cluster.config.update(admin_listen=f'127.0.0.1:{cluster.ports["admin"]}')
        cluster.start_conductor()
        wait_until('it is back', lambda: 'trying again' not in window.text())

    def test_on_a_phone(self):
        self.look(375, 1600, 'phone.png')
