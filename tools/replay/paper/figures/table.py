"""What each figure is, and what the paper says."""

from typing import Callable, NamedTuple

from shown import (bandwidth, capacity, global_caches, goodput, lru, policies,
                   prefill, ratio, replicas)


class Figure(NamedTuple):
    id: str  # names its files
    title: str
    paper: str  # what the paper states
    setup: str  # what we simulate
    header: str  # of the table, cells behind the trace's name
    notes: str  # on the method: what explains differences
    show: Callable


FIGURES = [
    Figure(
        '01',
        'Figures 1, 6 and 7: effective requests over the TBT SLO',
        'Disaggregated against coupled (vLLM) on 16 nodes, TTFT within 30 s: '
        'up to 498 % more effective requests on the conversation trace; 42 % '
        'more than vLLM with a prefix cache on tool and agent, and 40 % on '
        'synthetic, both at 200 ms.',
        'Three splits of the 16 nodes of `paper-16`, `global_cache`; the 16 '
        'nodes of `paper-16-coupled` without and with a prefix cache '
        '(`least_loaded`, `local_cache`), with whole prompts or chunks of '
        '2,048 tokens in a step. No admission, so that all systems serve the '
        'same requests. The table shows shares at 200 ms; the gain over a '
        'prefix cache without chunks at 200 ms; and the largest gain over the '
        'best coupled system at any SLO from 25 to 500 ms.',
        'speed | 8+8, 10+6, 12+4 | coupled: plain, prefix cache, chunked, both'
        ' | gain over prefix cache | largest gain over the best coupled |',
        'The gain of disaggregation depends on the load and on the cost of a '
        'decode step, and the paper gives neither. Our step is a roofline at '
        '60 % of the memory\'s rate plus 5 ms. On a coupled node every decode '
        'waits for the prefill step beside it, so the TBT includes the whole '
        'time of a chunk of 2,048 tokens behind a long prompt. If 16 nodes '
        'have time to spare, both kinds serve everything, and no gain shows.',
        capacity),
    Figure(
        '05',
        'Figure 5: mean TTFT by policy',
        'On the conversation trace random > load balancing > local cache-aware'
        ' > global cache-aware; global is 14 % below local.',
        '`reference-16` with 8, 10 and 16 nodes, at 1, 2 and 3 times the '
        'trace\'s speed. Mean TTFT in seconds.',
        'nodes | speed | random | least loaded | local | global | global to '
        'local | in order |',
        'The distance between local and global depends on the load, which the '
        'paper does not give. It is small while there is time to spare, large '
        'near saturation, and small again beyond, where only the finished work'
        ' counts.',
        policies),
    Figure(
        '08',
        'Figure 8: GPU time of prefill',
        'Against vLLM: -36 % on conversation, -53 % on tool and agent, -64 % '
        'on synthetic.',
        '`reference-16`: the time that a request\'s prefill takes on its node, '
        'without a prefix cache (`least_loaded`), with local caches '
        '(`local_cache`) and with the global cache (`global_cache`).',
        'no prefix cache | local | global | paper |',
        'In the paper\'s own formula a token costs more the further back it '
        'stands. Reused tokens are the first ones, so the time saved is less '
        'than the tokens saved.',
        prefill),
    Figure(
        '09',
        'Figure 9: hit ratio of one cache over its capacity',
        '3 M tokens reach less than half of the highest hit ratio in most '
        'cases; 50 M nearly all of it.',
        'One LRU cache; the blocks of a prompt are touched from first to last.'
        ' Hits over all blocks, and as a share of those of an infinite cache.',
        '1 M tokens | 3 M | 10 M | 30 M | 50 M | infinite |',
        'Traces are public only for some workloads. Generated ones follow the '
        'means and ratios that the paper states. The paper publishes no gaps '
        'between reuses, which decide how much a small cache keeps.',
        lru),
    Figure(
        '10',
        'Figure 10: ten nodes, global against local caches',
        '10 nodes of 3 M tokens: the hit rate is up to 2.36 times as high, '
        'prefill time is down by up to 48 %.',
        '`reference-16` with 10 nodes. Local caches with a scheduler that '
        'looks only at load, and with one that looks for hits; global caches '
        'with fetches; and one pool that every node reads at no cost. Hit '
        'ratios are in tokens; the last two columns compare global with both '
        'kinds of local.',
        'least loaded | local | global | ideal pool | hits, times as many | '
        'prefill time |',
        'The paper does not say how it places requests on its local caches, '
        'and its numbers are maxima: a number above one differs, a number '
        'below is within it. Placement by load alone is the weakest baseline; '
        'a scheduler that looks for local hits sends most requests to where '
        'their prefix is.',
        global_caches),
    Figure(
        '11',
        'Figure 11: copies of popular keys',
        'Conversation and tool and agent: the top 100 keys end up on almost '
        'every instance; synthetic: few.',
        '`reference-16`, `global_cache`: the number of nodes that hold the key'
        ' of a rank, counted every 30 s; the mean over the second half (and '
        'how often the trace asks for the key).',
        'rank 1 | 10 | 100 | 1,000 | 10,000 |',
        'A key spreads when requests for it run on nodes that do not hold it. '
        'So the number of requests for a rank bounds its copies.',
        replicas),
    Figure(
        '13',
        'Figure 13: TTFT over the network\'s bandwidth',
        'Synthetic, 24 to 400 Gbit/s: the mean is under 2 s above 100 Gbit/s, '
        'and sharply worse below.',
        '`paper-16`, `global_cache`, links shared by all transfers that cross '
        'them. Mean TTFT in seconds.',
        'speed | 24 Gbit/s | 50 | 100 | 150 | 200 | 400 | 800 |',
        '`global_cache` weighs a transfer against computing, and stops '
        'fetching over a slow link. What then hurts is the KV for decode '
        'nodes, which fills the links. TTFT here ends with the prefill: KV '
        'that must still travel afterwards counts in the first interval '
        'between tokens.',
        bandwidth),
    Figure(
        '15',
        'Figure 15: prefill or decode, 16 nodes',
        'Synthetic, TTFT within 10 s and TBT within 100 ms: best at about 1:1;'
        ' more prefill lowers TTFT and raises TBT.',
        '`paper-16` with 2 to 14 prefill nodes, `global_cache`, no admission. '
        'TTFT and TBT: means at 4, 8 and 12 prefill nodes.',
        'speed | best split | 8+8 | TTFT at 4, 8, 12 | TBT at 4, 8, 12 |',
        'Here a decode step costs the reading of weights and KV plus 5 ms. '
        'Whatever else an engine does between steps would require more decode '
        'nodes.',
        ratio),
    Figure(
        'goodput',
        'Goodput with a TTFT SLO of 30 s',
        'Not a figure of the paper. Requests that no choice can serve in time '
        'are rejected on arrival, so overload must not reduce goodput (the '
        'paper\'s section on overload asks for the same).',
        '`global_cache`, speeds 1 to 8. The table shows effective requests per'
        ' second of the trace\'s time; the largest drop below what a lower '
        'speed reached; the accepted requests that missed the SLO, at all '
        'speeds together, and by how much at most; and the prediction error of'
        ' TTFT in seconds: the largest p99 of a speed, and the maximum.',
        'cluster | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | largest drop | late, latest'
        ' | predicted off by p99, max |',
        'The prediction error is that of the TTFT at the time when the request'
        ' was accepted; requests that arrive later can change the outcome.',
        goodput),
]
