"""Instances whose work costs differently: each is predicted by its own cost
model."""
import json
import os

from harness import Case, Cluster, cost_model_json, wait_until
from test_forward import EngineCase

PROMPT = list(range(1, 301)) * 2


def candidates(api, reply):
    """By name, of a request that was just answered."""
    told = api.explain(reply)
    return {c['instance']: c for c in told['candidates']}, told


def costs_of(api):
    """By name, what GET /admin/instances says."""
    told = api.listed()
    return {i['name']: i['cost_model'] for i in told}


class Workers(Case):
    def begin(self, **config):
        cluster = Cluster(self, {'policy': 'plan', **config},
                          {'prefill': (0, 1000, 0, 0)})
        self.write('quick.json', cost_model_json(prefill=(0, 10, 0, 0)))
        return cluster

    def test_each_by_its_own(self):
        """A worker that is said to be 100 times as fast gets the prompt. The
        paths are relative to the configuration."""
        cluster = self.begin(worker_costs=[
            {'workers': 'quick-*', 'cost_model': 'quick.json'},
            {'workers': 'quick-1', 'cost_model': 'cost.json'}])
        cluster.start_conductor()
        for name in 'plain', 'quick-1', 'quick-2':
            cluster.start_worker(name, 'both')
        cluster.wait_ready(3, 3)
        self.assertEqual(costs_of(cluster.api), {
            'plain': 'cost.json', 'quick-1': 'quick.json',
            'quick-2': 'quick.json'})
        got = cluster.api.post('/v1/completions', {
            'prompt': PROMPT, 'max_tokens': 2}).ok()
        each, told = candidates(cluster.api, got)
        self.assertTrue(told['prefill'].startswith('quick-'), told)
        self.assertEqual(told['predicted']['cost_model'], 'quick.json')
        self.assertEqual(told['predicted']['prefill_ms'], 6)
        for name, (file, ms) in {
                'plain': ('cost.json', 600), 'quick-1': ('quick.json', 6),
                'quick-2': ('quick.json', 6)}.items():
            self.assertEqual(each[name]['cost_model'], file)
            self.assertEqual(each[name]['prefill_ms'], ms)

    def refused(self, words, **config):
        self.check_config({**self.begin().config, **config}, 2, words)

    def test_refused(self):
        good = {'workers': 'w', 'cost_model': 'quick.json'}
        for entry, words in (
                ({'workers': 'a*b'}, 'workers: "a*b": must be printable ASCII'),
                ({'workers': ''}, 'workers: ""'),
                ({'worker': 'w'}, 'worker: no such field'),
                ({'cost_model': 7}, 'cost_model: 7: must be'),
                ({'cost_model': 'no.json'}, 'cost_model: cost model'),
                ({'cost_model': 'c.json'}, 'cost_model: cost model')):
            self.refused('worker_costs[1].' + words,
                         worker_costs=[good, {**good, **entry}])
        other = {**json.loads(cost_model_json()), 'model': 'other'}
        self.write('other.json', json.dumps(other))
        self.refused('worker_costs[0].cost_model: "', worker_costs=[
            {**good, 'cost_model': 'other.json'}])
        self.refused('worker_costs: "x": must be an array',
                     worker_costs='x')
        self.refused('worker_costs: needs cost_model', worker_costs=[good],
                     cost_model='', policy='random')
        self.refused('worker_costs: is for native workers', worker_costs=[good],
                     worker_listen='', cost_model='', engines=[
                         {'name': 'e', 'url': 'http://h', 'model': 'm'}])


class Engines(EngineCase):
    def cost(self, name, us_a_token):
        cost = json.loads(cost_model_json(prefill=(0, us_a_token, 0, 0)))
        return self.write(name, json.dumps({**cost, 'model': 'm'}))

    def test_each_by_its_own(self):
        """Engines of one model with different costs; one that has none has the
        first one's. Others come with the watched file."""
        slow, quick = self.cost('slow.json', 1000), self.cost('quick.json', 10)
        path = self.write('engines.json', '{"engines": []}')
        cluster = self.engines(None, None, None, config={
            'policy': 'plan', 'engines': [], 'engines_file': path})
        entries = [{'name': f'e{i}', 'url': e.url, 'model': 'm',
                    'cost_model': cost}
                   for i, (e, cost) in enumerate(zip(self.all, (
                       slow, quick, '')))]

        def write(entries):
            os.replace(self.write('engines.next', json.dumps({'engines': [
                {k: v for k, v in e.items() if v} for e in entries]})), path)

        def told(**costs):
            return costs_of(cluster.api) == costs and \
                cluster.api.instances()[0] == len(costs)
        write(entries)
        wait_until('each has its own', lambda: told(
            e0='slow.json', e1='quick.json', e2='slow.json'))
        got = self.post(cluster, {'prompt': PROMPT})
        each, why = candidates(cluster.api, got)
        self.assertEqual((why['prefill'], why['cost']), ('e1', 'file'))
        self.assertEqual(why['predicted']['cost_model'], 'quick.json')
        self.assertEqual(
            {name: (c['cost_model'], c['prefill_ms'])
             for name, c in each.items()},
            {'e0': ('slow.json', 600), 'e1': ('quick.json', 6),
             'e2': ('slow.json', 600)})
        # The model's costs change, and with them whose are its own.
        entries[0]['cost_model'] = quick
        entries[2]['cost_model'] = slow
        write(entries)
        wait_until('they have changed', lambda: told(
            e0='quick.json', e1='quick.json', e2='slow.json'))
        got = self.post(cluster, {'prompt': [7, *PROMPT]})
        each, why = candidates(cluster.api, got)
        self.assertEqual({name: c['cost_model'] for name, c in each.items()},
                         {'e0': 'quick.json', 'e1': 'quick.json',
                          'e2': 'slow.json'})
        self.assertIn(why['prefill'], ('e0', 'e1'))
