"""The second part of tests/engines/run: Conductor in front of one real SGLang.

What vLLM's cases ask of any engine is asked again; the rest is SGLang's own:
its way to empty a cache, its counters, /generate.
"""
import http.client
import importlib.metadata
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, 'tests', 'scenario'),
                os.path.join(ROOT, 'tests', 'lib')]

import engines  # noqa: E402
import vllm_cases  # noqa: E402
from harness import wait_until  # noqa: E402
from sglang_engine import Sglang  # noqa: E402
from vllm_cases import ids  # noqa: E402
from vllm_engine import BLOCK_TOKENS, BLOCKS  # noqa: E402


class Sglangs(vllm_cases.Behind):
    """Conductor in front of one SGLang."""

    def reset(self):
        """Empties the cache. SGLang does so only while it is idle."""
        engine = self.shared[0]
        wait_until('it flushes its cache', lambda: engines.get(
            engine.url + '/flush_cache', {})[0] == 200)
        wait_until('it tells that it is empty',
                   lambda: not engine.recount().copies)
        self.settle()

    def test_it_starts(self):
        engine = self.shared[0]
        wait_until('its blocks are known', lambda: self.metric(
            'engine_kv_blocks', engine) == BLOCKS)
        self.assertNotIn('block_tokens is', self.cluster.conductor.log())
        models = self.api.get('/v1/models').body['data']
        self.assertEqual([m['id'] for m in models], [engines.MODEL])

    def test_hits(self):
        """Conversations that grow, one request at a time, of more pages than
        there are: every prediction is what SGLang then tells."""
        self.reset()
        talks = [ids(self.rng, self.rng.randrange(31, 300)) for _ in range(16)]
        said = []
        for _ in range(64):
            talk = self.rng.choice(talks)
            _, predicted, told = self.ask(talk)
            said.append((len(talk), predicted, told))
            talk += ids(self.rng, self.rng.choice((0, 32, 50)))
        wrong = [s for s in said if s[1] != s[2]]
        removed = self.api.metric('block_events_total', event='removed')
        self.note(f'{len(said)} requests, {sum(s[2] for s in said)} tokens '
                  f'told, {len(wrong)} predictions off, {removed:.0f} blocks '
                  'evicted')
        self.assertEqual(wrong, [])
        self.assertGreater(removed, 50)
        self.assertIndexIsRight()

    def test_texts_are_known_by_their_tokens(self):
        text = 'It was the best of times, it was the worst of times. '
        chat = [{'role': 'system', 'content': 'Answer in verse. ' * 8}]
        n = 0
        for turn in range(4):
            text += f'And in the year {self.rng.random()} more came. ' * 3
            chat.append({'role': 'user', 'content': text[-120:]})
            for prompt, path in ((text, '/v1/completions'),
                                 (chat, '/v1/chat/completions')):
                _, predicted, told = self.ask(prompt, path=path)
                self.assertEqual((predicted, told > 0), (told, turn > 0), path)
                n += told
            chat.append({'role': 'assistant', 'content': 'So it was.'})
        failed = self.api.metric('tokenized_total', result='failed')
        self.assertEqual(failed, 0)
        self.note(f'{n} tokens predicted and told')

    def test_generate(self):
        """SGLang's own way to ask passes through."""
        got = self.api.post('/generate', {
            'input_ids': ids(self.rng, 70),
            'sampling_params': {'max_new_tokens': 3}}).ok()
        self.assertEqual(got.body['meta_info']['prompt_tokens'], 70)

    def test_errors_are_the_engines_own(self):
        for more in ({'max_tokens': -1}, {'prompt': ids(self.rng, 2500)}):
            body = {'model': engines.MODEL, 'prompt': 'A text', **more}
            got, _ = vllm_cases.exchange(self.api.port, '/v1/completions', body)
            want, _ = vllm_cases.exchange(self.shared[0].port,
                                          '/v1/completions', body)
            self.assertEqual(got, want)
            self.assertGreaterEqual(got[0], 400)

    def test_what_others_ask_is_known(self):
        prompt = ids(self.rng, 200)
        self.direct(self.shared[0], prompt)
        self.wait_told(self.shared[0], prompt)
        self.assertEqual(self.ask(prompt + [7])[1:], (192, 192))

    def test_an_emptied_cache_is_known(self):
        prompt = ids(self.rng, 200)
        self.ask(prompt)
        self.reset()
        self.assertEqual(self.ask(prompt)[1:], (0, 0))

    def test_conductor_restarts(self):
        prompts = [ids(self.rng, 130) for _ in range(4)]
        for prompt in prompts:
            self.ask(prompt)
        self.stop(self.cluster.conductor)
        self.start_conductor()
        for prompt in prompts:
            self.assertEqual(self.ask(prompt + [9])[1:], (128, 128))
        self.assertIndexIsRight()

    def test_clients_leave(self):
        """Their work ends on the engine, too."""
        for stream in False, True:
            self.begin(stream, ids(self.rng, 64)).close()
        wait_until('nothing runs on the engine', lambda: self.shared[
            0].metric('sglang:num_running_reqs') == 0)
        self.assertEqual(self.api.metric('requests_in_flight'), 0)
        self.assertEqual(self.ask(ids(self.rng, 40))[1:], (0, 0))

    begin = vllm_cases.Vllms.begin

    def test_killed_and_restarted(self):
        """Alone, it is missed: 503. Its second life begins empty."""
        engine, prompt = self.shared[0], ids(self.rng, 130)
        self.ask(prompt)
        self.begin(True, prompt + [9])
        engine.process.kill()
        with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
            self.stream.read()
        wait_until('it gets no work', lambda: self.api.instances()[0] == 0)
        got = self.api.post('/v1/completions', {
            'model': engines.MODEL, 'prompt': prompt, 'max_tokens': 1})
        self.assertEqual(got.status, 503, got.body)
        began = time.monotonic()
        engine.start()
        engine.wait_ready()
        self.note(f'restarted in {time.monotonic() - began:.0f} s')
        wait_until('it is back', lambda: self.api.instances()[0] == 1)
        self.assertEqual(self.metric('instance_blocks', engine), 0)
        self.direct(engine, prompt)
        wait_until('it tells of the prompt',
                   lambda: engine.recount().leading(prompt) == 4)
        self.learn(engine)
        self.assertEqual(self.ask(prompt + [9])[1:], (128, 128))
        self.assertIndexIsRight()


def start(folder):
    """One SGLang, which binds the address of its events where that can be
    kept from other machines."""
    model = os.path.join(folder, 'model')
    subprocess.run(
        [sys.executable, os.path.join(HERE, 'model.py'), model], check=True)
    alone = engines.enter_loopback()
    version = importlib.metadata.version('sglang')
    print(f'== SGLang {version}: {BLOCKS} pages of {BLOCK_TOKENS} tokens; it '
          f'{"binds" if alone else "connects to"} the address of its events',
          flush=True)
    vllm_cases.Behind.shared.append(Sglang(folder, model, 'sglang0', alone))


if __name__ == '__main__':
    sys.exit(vllm_cases.main(start, Sglangs))
