"""Instances that an operator drains, and lets go again."""
import json
import os
import signal
import threading

from harness import (Case, cost_model_json, mostly_waits, program, total,
                     wait_until)
from test_failures import in_background
from test_instances import InstanceCase


def change(cluster, name, how, headers=None):
    return cluster.api.post(f'/admin/instances/{name}/{how}', headers=headers)


def states(cluster):
    return InstanceCase.states(cluster)


class Clients:
    """Of a case: they ask all the time."""

    def load(self, cluster, n=6):
        """n clients ask until the returned function is called, which returns
        what was not 200; heard[i] are the (prefill, decode, client) of
        answers."""
        heard, wrong, stop = [], [], threading.Event()

        def client(i):
            k = 0
            while not stop.is_set():
                k += 1
                reply = cluster.api.complete(f'client {i} asks {k} ' * 4)
                if reply.status != 200:
                    wrong.append(reply.body)
                else:
                    heard.append((reply.headers['x-conductor-prefill'],
                                  reply.headers['x-conductor-decode'], i))
        threads = [threading.Thread(target=client, args=(i,))
                   for i in range(n)]
        for thread in threads:
            thread.start()

        def end():
            stop.set()
            for thread in threads:
                thread.join()
            return wrong
        self.addCleanup(stop.set)
        return heard, end

    def each_is_answered(self, heard, n=6):
        """All of n clients: what they are answered from now on, they had
        asked for in the meantime. Returns how many answers there are."""
        begin = len(heard)
        wait_until('each client is answered', lambda: len(
            {client for _, _, client in heard[begin:]}) == n)
        return len(heard)


class Workers(Clients, Case):
    @mostly_waits
    def test_none_goes_there_under_load(self):
        """A prefill and a decode worker in turn: once it has ended what it
        had, nothing comes while it drains, and work comes again after it."""
        cluster = self.cluster(prefill=2, decode=2, cost={
            'prefill': (10000, 0, 0, 0), 'decode': (5000, 5000, 0)},
            engine='timed', config={'policy': 'random',
                                    'policy_options': {}})
        heard, end = self.load(cluster)
        for name, place in (('p1', 0), ('d1', 1)):
            wait_until(f'{name} has work',
                       lambda: name in [h[place] for h in heard])
            reply = change(cluster, name, 'drain')
            self.assertEqual((reply.status, reply.body),
                             (200, {'name': name, 'state': 'draining',
                                    'drained': True}))
            self.assertEqual(change(cluster, name, 'drain').status, 200)
            self.assertEqual(states(cluster)[name], 'draining')
            self.assertEqual(cluster.api.health()['instances']['draining'], 1)

            def idle():
                i, = [i for i in cluster.api.listed()
                    if i['name'] == name]
                return i['prefills'] == i['decodes'] == 0
            wait_until(f'{name} has ended its work', idle)
            # An answer of its own may still be on its way to its client.
            before = self.each_is_answered(heard)
            wait_until('more requests pass', lambda:
                       len(heard) > before + 30)
            self.assertNotIn(name, [h[place] for h in heard[before:]])
            metrics = cluster.api.metrics()
            label = f'{{instance="{name}"}}'
            self.assertEqual(
                (metrics[f'conductor_instance_ready{label}'],
                 metrics[f'conductor_instance_draining{label}']), (0, 1))
            reply = change(cluster, name, 'undrain')
            self.assertEqual((reply.status, reply.body),
                             (200, {'name': name, 'state': 'ready'}))
            before = len(heard)
            wait_until(f'{name} has work again', lambda:
                       name in [h[place] for h in heard[before:]])
        self.assertEqual(end(), [])

    def test_the_only_one(self):
        """As where none is ready; work goes on where it is let go."""
        cluster = self.cluster()
        self.assertEqual(change(cluster, 'd0', 'drain').status, 200)
        self.assertEqual(cluster.api.instances(), (1, 0))
        self.assertEqual(cluster.api.get('/ready').status, 503)
        self.assertError(cluster.api.complete('hello'), 503, 'decode')
        self.assertEqual(change(cluster, 'd0', 'undrain').status, 200)
        self.assertEqual(cluster.api.complete('hello').status, 200)

    def test_a_stream_goes_on(self):
        cluster = self.cluster(cost={'decode': (5000, 5000, 0)}, engine='timed')
        events = cluster.api.stream('/v1/completions', {
            'prompt': 'p' * 40, 'max_tokens': 50})
        got = [next(events)]
        for name in 'p0', 'd0':
            self.assertEqual(change(cluster, name, 'drain').status, 200)
        got += events
        self.assertEqual(got[-1], '[DONE]')
        self.assertFalse([e for e in got[:-1] if 'error' in e])

    def test_who_comes_back_is_still_drained(self):
        cluster = self.cluster(prefill=2)
        self.assertEqual(change(cluster, 'p1', 'drain').status, 200)
        cluster.workers['p1'].kill()
        wait_until('p1 is gone', lambda: 'p1' not in states(cluster))
        cluster.start_worker('p1', 'prefill')
        wait_until('p1 is back', lambda:
                   states(cluster).get('p1') == 'draining')
        self.assertEqual(
            cluster.api.post('/admin/reload').status, 200)
        self.assertEqual(states(cluster)['p1'], 'draining')
        self.assertEqual(change(cluster, 'p1', 'undrain').body['state'],
                         'ready')
        # One that is gone can be let go, once.
        self.assertEqual(change(cluster, 'p1', 'drain').status, 200)
        cluster.workers['p1'].kill()
        wait_until('p1 is gone', lambda: 'p1' not in states(cluster))
        self.assertEqual(change(cluster, 'p1', 'undrain').body,
                         {'name': 'p1', 'state': 'gone'})
        self.assertError(change(cluster, 'p1', 'undrain'), 404, '"p1"')

    def test_who_may_and_which(self):
        key = 'k' * 32
        path = self.write('admin.key', key)
        os.chmod(path, 0o600)
        cluster = self.cluster(config={'admin_key_file': path})
        headers = {'Authorization': f'Bearer {key}'}
        self.assertEqual(change(cluster, 'p0', 'drain').status, 401)
        self.assertEqual(states(cluster)['p0'], 'ready')
        for name, how, words in (('p9', 'drain', '"p9"'),
                                 ('p9', 'undrain', '"p9"'),
                                 ('p' * 70, 'drain', 'no instance'),
                                 ('p0', 'dry', '/drain')):
            self.assertError(change(cluster, name, how, headers), 404, words)
        self.assertEqual(cluster.api.get(
            '/admin/instances/p0/drain').status, 405)


SLOW = {'prefill': (600000, 0, 0, 0), 'decode': (40000, 0, 0)}


class Work(Case):
    """What becomes of the requests of a worker that is drained, or told to
    end."""

    def ask(self, cluster, n, tokens=4):
        return [in_background(lambda i=i: cluster.api.complete(
            f'{i} is another prompt', tokens)) for i in range(n)]

    def served_by(self, answers, which):
        """Who did; all answers are right."""
        names = []
        for answer in answers:
            reply = answer().ok()
            names.append(reply.headers['x-conductor-' + which])
        return names

    def number(self, cluster, name, field):
        one, = [i for i in cluster.api.listed() if i['name'] == name]
        return one[field]

    @mostly_waits
    def test_what_waits_goes_elsewhere(self):
        """A prefill worker in front of a queue is drained: what runs there
        ends, the rest is served by one that comes after."""
        cluster = self.cluster(engine='timed', cost=SLOW,
                               config={'policy': 'random'})
        answers = self.ask(cluster, 6)
        wait_until('they wait', lambda: self.number(
            cluster, 'p0', 'prefills') > 4)
        cluster.start_worker('p1', 'prefill', engine='timed')
        cluster.wait_ready(2, 1)
        self.assertEqual(change(cluster, 'p0', 'drain').status, 200)
        names = self.served_by(answers, 'prefill')
        self.assertGreater(names.count('p1'), 3, names)
        self.assertEqual(cluster.api.metric('retries_total'), 0)

    @mostly_waits
    def test_a_worker_that_is_told_to_end(self):
        """It ends what runs, gives away what waits, and gets nothing more; the
        same with a decode worker."""
        for name, which in ('p0', 'prefill'), ('d0', 'decode'):
            cluster = self.cluster(prefill=1, decode=1, engine='timed',
                                   cost=SLOW, config={'policy': 'random'})
            worker = cluster.workers[name]
            # What it is asked meanwhile it has not ended.
            worker.child.send_signal(signal.SIGSTOP)
            answers = self.ask(cluster, 5, tokens=30)
            stream = in_background(lambda c=cluster: list(c.api.stream(
                '/v1/completions', {'prompt': 'a stream', 'max_tokens': 30})))
            wait_until('it has all', lambda c=cluster, n=name, w=which:
                       self.number(c, n, w + 's') == 6)
            cluster.start_worker(name[0] + '1', which, engine='timed')
            cluster.wait_ready(*((2, 1) if name == 'p0' else (1, 2)))
            worker.killed = True  # wait_ready() need not mind
            worker.child.terminate()
            worker.child.send_signal(signal.SIGCONT)
            wait_until('it gets no more work', lambda c=cluster:
                       c.api.instances() == (1, 1))
            names = self.served_by(answers + self.ask(cluster, 2), which)
            self.assertEqual(names[-2:], [name[0] + '1'] * 2)
            events = stream()
            self.assertEqual(events[-1], '[DONE]')
            self.assertFalse([e for e in events[:-1] if 'error' in e])
            self.assertEqual(worker.wait(), 0)
            self.assertEqual(
                cluster.api.metric('retries_total'), 0)
            self.assertRegex(cluster.conductor.log(),
                             f'worker {name} .* left\n')

    @mostly_waits
    def test_its_limit(self):
        """A decode that goes on for too long is done elsewhere, if nobody has
        seen a token of it; a stream ends with an error."""
        cluster = self.cluster(engine='timed', cost=SLOW)
        # Longer than all that follows, and soon done by d1.
        whole = self.ask(cluster, 1, tokens=2000)[0]
        stream = cluster.api.stream('/v1/completions', {
            'prompt': 'a stream', 'max_tokens': 2000})
        next(stream)
        wait_until('both decode', lambda: self.number(
            cluster, 'd0', 'decodes') == 2)
        wait_until('tokens come', lambda: total(
            cluster.api.metrics(), 'conductor_output_tokens_total') > 6)
        cluster.start_worker(
            'd1', 'decode', engine='timed',
            cost_model=self.write('fast.json', cost_model_json()))
        cluster.wait_ready(1, 2)
        self.assertError(change(cluster, 'd0', 'drain?limit_ms=x'), 400,
                         'limit_ms')
        self.assertError(change(cluster, 'd0', 'drain?limit_ms=0'), 400,
                         'limit_ms')
        self.assertEqual(
            change(cluster, 'd0', 'drain?limit_ms=200').status, 200)
        self.assertIn('drained', list(stream)[-2]['error']['message'])
        self.assertEqual(whole().headers['x-conductor-decode'], 'd1')
        self.assertEqual(self.number(cluster, 'd0', 'decodes'), 0)

    def test_who_leaves_is_not_drained(self):
        """No operator has drained it, and no undrain would help."""
        cluster = self.cluster(engine='timed', cost=SLOW)
        stream = cluster.api.stream('/v1/completions', {
            'prompt': 'a stream', 'max_tokens': 2000})
        next(stream)
        worker = cluster.workers['d0']
        worker.killed = True
        worker.child.terminate()
        one = wait_until('it leaves', lambda: [
            i for i in cluster.api.listed()
            if (i['name'], i['state']) == ('d0', 'draining')])[0]
        self.assertNotIn('drained', one)
        self.assertEqual(one['decodes'], 1)
        worker.child.terminate()
        worker.wait()

    @mostly_waits
    def test_its_own_limit(self):
        cluster = self.cluster(prefill=1, decode=0, engine='timed', cost=SLOW)
        cluster.start_worker('d0', 'decode', engine='timed', drain_ms=300)
        cluster.wait_ready(1, 1)
        stream = cluster.api.stream('/v1/completions', {
            'prompt': 'a stream', 'max_tokens': 2000})
        next(stream)
        cluster.workers['d0'].child.terminate()
        self.assertEqual(cluster.workers['d0'].wait(), 0)
        self.assertIn('error', list(stream)[-2])
        self.assertIn('--drain-ms', cluster.workers['d0'].log())


class Engines(InstanceCase):
    def test_an_engine(self):
        a, b = self.engine(), self.engine()
        cluster = self.conductor(engines=[self.entry('a', a),
                                          self.entry('b', b)])
        self.wait_states(cluster, a='ready', b='ready')
        self.assertEqual(change(cluster, 'a', 'drain').body,
                         {'name': 'a', 'state': 'draining', 'drained': True})
        for _ in range(6):
            self.assertEqual(self.ask(cluster).headers[
                'x-conductor-prefill'], 'b')
        # Its probes go on: one that fails meanwhile is not made ready.
        a.stop()
        self.wait_states(cluster, a='suspect', b='ready')
        ctl = [program('tools', 'conductorctl'), '--address',
               f'127.0.0.1:{cluster.ports["http"]}']
        self.assertEqual(self.run_program(*ctl, 'drain', 'a')[:2],
                         (0, 'a: suspect,drained\n'))
        rows = [line.split() for line in self.run_program(
            *ctl, 'instances')[1].splitlines()[1:]]
        self.assertEqual({(row[0], row[4]) for row in rows},
                         {('a', 'suspect,drained'), ('b', 'ready')})
        self.assertEqual(change(cluster, 'a', 'undrain').body['state'],
                         'suspect')
        self.assertEqual(self.ask(cluster).headers['x-conductor-prefill'],
                         'b')
        self.assertEqual(change(cluster, 'b', 'drain').status, 200)
        self.assertEqual(self.ask(cluster).status, 503)

    def test_one_that_a_reload_begins_anew(self):
        """Another URL is another engine of the name."""
        a, b = self.engine(), self.engine()
        cluster = self.conductor(engines=[self.entry('a', a)])
        self.wait_states(cluster, a='ready')
        self.assertEqual(change(cluster, 'a', 'drain').status, 200)
        cluster.config['engines'] = [self.entry('a', b)]
        self.write('conductor.json', json.dumps(cluster.config))
        self.assertEqual(cluster.api.post(
            '/admin/reload').body['taken'], ['engines'])
        wait_until('the new one drains', lambda: [
            i['url'] for i in cluster.api.listed()
            if i['state'] == 'draining'] == [b.url])
        self.assertEqual(change(cluster, 'a', 'undrain').body['state'],
                         'ready')
        self.assertEqual(self.ask(cluster).status, 200)
