"""llama.cpp's server behind the conductor: an engine that others wrote."""

import engines
from harness import Cluster, total, wait_until


class Llama(engines.Case):
    def behind(self, n, config=None, **fields):
        """Conductor in front of n servers; returns both."""
        servers = [engines.LlamaServer(self, f'llama{i}') for i in range(n)]
        cluster = Cluster(self)
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 100,
            'engines': [{'name': f'e{i}', 'url': s.url, 'model': engines.MODEL,
                         **fields} for i, s in enumerate(servers)],
            **(config or {})}
        cluster.start_conductor()
        wait_until('all are ready', lambda: cluster.api.instances()[0] == n)
        return cluster, servers

    def ask(self, cluster, body, path='/v1/completions'):
        got = cluster.api.post(path, {
            'model': engines.MODEL, 'max_tokens': 8, 'temperature': 0, **body})
        self.assertEqual(got.status, 200, got.body)
        return got

    def test_the_same_answer_as_without(self):
        cluster, servers = self.behind(1)
        for path, body in (
                ('/v1/completions', {'prompt': list(range(4, 60))}),
                ('/v1/completions', {'prompt': 'A text.', 'stop': ['~~']}),
                ('/v1/chat/completions',
                 {'messages': [{'role': 'user', 'content': 'Hi'}]})):
            whole = {'model': engines.MODEL, 'max_tokens': 8,
                     'temperature': 0, **body}
            status, direct = engines.get(servers[0].url + path, whole)
            self.assertEqual(status, 200, direct)
            got = self.ask(cluster, body, path).body
            self.assertEqual(got['choices'], direct['choices'])
            self.assertEqual(got['usage']['completion_tokens'],
                             direct['usage']['completion_tokens'])

    def test_streams(self):
        # Whether a comment comes in front is a matter of chance.
        cluster, _ = self.behind(1, config={'keepalive_ms': 1})
        events = list(cluster.api.stream('/v1/completions', {
            'prompt': list(range(4, 60)), 'max_tokens': 8, 'temperature': 0}))
        self.assertEqual(events[-1], '[DONE]')
        self.assertGreater(len(events), 3)
        whole = self.ask(cluster, {'prompt': list(range(4, 60))}).body
        self.assertEqual(
            ''.join(e['choices'][0]['text'] for e in events[:-1]
                    if e['choices']), whole['choices'][0]['text'])

    def test_other_paths(self):
        cluster, servers = self.behind(1)
        for path, body in (('/tokenize', {'content': 'Hi there'}),
                           ('/v1/embeddings', {'input': 'x'}),
                           ('/apply-template', {'messages': [
                               {'role': 'user', 'content': 'Hi'}]})):
            body['model'] = engines.MODEL
            status, direct = engines.get(servers[0].url + path, body)
            got = cluster.api.post(path, body)
            self.assertEqual((got.status, got.body), (status, direct))

    def test_errors_pass(self):
        cluster, servers = self.behind(1)
        body = {'model': engines.MODEL, 'prompt': {'not': 'a prompt'}}
        status, direct = engines.get(servers[0].url + '/v1/completions', body)
        got = cluster.api.post('/v1/completions', body)
        self.assertEqual((got.status, got.body), (status, direct))
        self.assertGreaterEqual(status, 400)

    def test_a_prefix_is_found_again(self):
        """The engine that had a prompt gets what goes on from it, and counts
        the tokens that it had."""
        cluster, _ = self.behind(2, block_tokens=16)
        talks = [[4 + (i * 7 + k) % 200 for k in range(96)] for i in (1, 5)]
        homes = [self.ask(cluster, {'prompt': t}).headers[
            'x-conductor-prefill'] for t in talks]
        for talk, home in zip(talks, homes):
            got = self.ask(cluster, {'prompt': talk + [9] * 16})
            self.assertEqual(got.headers['x-conductor-prefill'], home)
            cached = got.body['usage']['prompt_tokens_details'][
                'cached_tokens']
            why = cluster.api.explain(got)
            self.assertEqual(why['predicted']['used_blocks'], 6)
            self.assertGreaterEqual(cached, 96)
        metrics = cluster.api.metrics()
        told, predicted = (sum(
            metrics[f'conductor_engine_cached_tokens_total{{instance="e{i}",'
                    f'source="{source}"}}'] for i in range(2))
            for source in ('told', 'predicted'))
        self.assertEqual(predicted, 2 * 96)
        self.assertGreaterEqual(told, predicted)

    def test_killed_and_restarted(self):
        cluster, servers = self.behind(2)
        prompt = list(range(4, 100))
        home = self.ask(cluster, {'prompt': prompt}).headers[
            'x-conductor-prefill']
        server = servers[int(home[1])]
        server.process.kill()
        for _ in range(3):
            self.ask(cluster, {'prompt': prompt})
        wait_until('it gets no work', lambda: cluster.api.instances()[0] == 1)
        server.start()
        wait_until('it is back', lambda: cluster.api.instances()[0] == 2)
        self.assertEqual(total(cluster.api.metrics(),
                               'conductor_requests_in_flight'), 0)
        self.assertEqual(
            cluster.api.metric('instance_blocks', instance=home), 0)
