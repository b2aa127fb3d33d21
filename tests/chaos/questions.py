"""Prompts that share prefixes, and the answers that are right.

A question's right answer comes from a cluster of one worker that computes
each prompt in a cache of its own, so that nothing is reused.
"""
import collections
import concurrent.futures

OUTPUT_TOKENS = 8
PROMPT_TOKENS = 2000
PRINTABLE = 32, 127
VOCABULARY = 0, 512
HOT = 60  # prompts that most questions are about at one time

Question = collections.namedtuple('Question', 'index tokens answer')


def random_prompts(rng, count):
    """Branches of trees: most prompts go on from a random cut of an earlier
    one, at the edge of a block or within it. A tree's tokens are either
    printable ASCII, so that the prompt may be sent as text, or any."""
    prompts = []
    for _ in range(count):
        prefix, alphabet = [], rng.choice((PRINTABLE, VOCABULARY))
        if prompts and rng.random() < 0.9:
            earlier, alphabet = rng.choice(prompts[-HOT:])
            prefix = earlier[:rng.randint(1, len(earlier))]
        new = [rng.randrange(*alphabet) for _ in range(rng.randint(1, 500))]
        prompts.append(((prefix + new)[:PROMPT_TOKENS], alphabet))
    return [tokens for tokens, _ in prompts]


def cold_answers(case, prompts, clients, n_tokens=OUTPUT_TOKENS, **cluster):
    """The answer to each prompt from a lone worker that reuses nothing."""
    oracle = case.cluster(prefill=0, decode=0, both=1, **cluster)

    def ask(i):
        reply = oracle.api.complete(prompts[i], n_tokens, temperature=0,
                                    cache_salt=f'cold {i}')
        case.assertEqual(reply.status, 200, reply.body)
        usage = reply.body['usage']
        case.assertEqual(usage['prompt_tokens_details']['cached_tokens'], 0)
        return reply.body['choices'][0]['text']

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(ask, range(len(prompts))))
    for process in oracle.processes():
        case.stop(process)
    case.assertGreater(len(set(answers)), len(prompts) // 4,
                       'the answers tell nothing')
    return answers


def spoil(answers, count):
    """Makes the first `count` answers wrong, to see that it is noticed."""
    for i in range(count):
        last = answers[i][-1]
        answers[i] = answers[i][:-1] + ('a' if last != 'a' else 'b')


def questions(rng, prompts, answers, count):
    """Generates what to ask: a hot set that moves on through the prompts, and
    now and then any of them."""
    for n in range(count):
        i = rng.randrange(len(prompts))
        if rng.random() < 0.7:
            at = n * len(prompts) // count
            i = (at + rng.randrange(HOT)) % len(prompts)
        yield Question(i, prompts[i], answers[i])


def sendable(rng, tokens):
    """The prompt as a client sends it: token ids, or the same as text."""
    if rng.random() < 0.5 and all(t in range(*PRINTABLE) for t in tokens):
        return ''.join(map(chr, tokens))
    return tokens
