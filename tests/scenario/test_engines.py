"""The servers that others wrote start, and do what our cases count on."""
import engines


class Llama(engines.Case):
    def test_it_counts_cached_tokens(self):
        server = engines.LlamaServer(self)
        body = {'model': engines.MODEL, 'prompt': list(range(4, 44)),
                'max_tokens': 1}
        cached = []
        for _ in range(2):
            status, reply = engines.get(server.url + '/v1/completions', body)
            self.assertEqual(status, 200, reply)
            self.assertEqual(reply['usage']['prompt_tokens'], 40)
            cached.append(
                reply['usage']['prompt_tokens_details']['cached_tokens'])
        self.assertEqual(cached, [0, 39])


class Dynamo(engines.Case):
    only_loopback = True

    def test_it_counts_cached_tokens(self):
        mocker = engines.Mocker(self)
        body = {'model': engines.MODEL, 'prompt': list(range(4, 44)),
                'max_tokens': 1}
        cached = []
        for _ in range(2):
            status, reply = engines.get(mocker.url + '/v1/completions', body)
            self.assertEqual(status, 200, reply)
            cached.append(
                reply['usage']['prompt_tokens_details']['cached_tokens'])
        self.assertEqual(cached, [0, 32])
