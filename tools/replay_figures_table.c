/* What each figure is, what the paper says, and where we differ. */
#include "tools/replay_figures.h"

static const struct figure figures[] = {
    {.id = "01",
     .title = "Figures 1, 6 and 7: effective requests over the TBT SLO",
     .paper =
         "Disaggregated against coupled (vLLM) on 16 nodes, TTFT within 30 s: "
         "up to 498 % more effective requests on the conversation trace; 42 % "
         "more than vLLM with a prefix cache on tool and agent, and 40 % on "
         "synthetic, both at 200 ms.",
     .setup =
         "16 nodes of `paper-16` split in three ways, `global_cache`; 16 of "
         "`paper-16-coupled` without and with prefix cache (`least_loaded`, "
         "`local_cache`), whole prompts or chunks of 2,048 tokens a step. No "
         "admission, so that all systems serve the same. Shares at 200 ms; the "
         "gain over a prefix cache without chunks at 200 ms; the largest gain "
         "over the best coupled one at any SLO from 25 to 500 ms.",
     .header = "speed | 8+8, 10+6, 12+4 | coupled: plain, prefix cache, "
               "chunked, both | gain over prefix cache | largest gain over the "
               "best coupled |",
     .differs =
         "The picture is the paper's, and so are the sizes where the load is "
         "high: a coupled node makes every decode wait for prefills, so it "
         "needs a loose TBT SLO, and a decode node does not. How much that is "
         "depends on the load and on what a decode step costs, neither of "
         "which the paper gives; our step is a roofline at 60 % of the "
         "memory's rate plus 5 ms. At speed 1 our 16 nodes have time to spare, "
         "and the gains are below the paper's (least of all on synthetic, "
         "which our generator sends at 1 request a second). Chunks hardly help "
         "our coupled nodes: a chunk of 2,048 tokens behind a long prompt "
         "still takes several times the SLO. The split matters more than "
         "disaggregation itself: with 8 + 8 nodes the conversation trace at "
         "twice its speed has too few prefill nodes, and nearly nothing is "
         "effective.",
     .run = figure_capacity},
    {.id = "05",
     .title = "Figure 5: mean TTFT by policy",
     .paper = "On the conversation trace random > load balancing > local "
              "cache-aware > global cache-aware; global is 14 % below local.",
     .setup = "`reference-16` with 8, 10 and 16 nodes, at 1, 2 and 3 times the "
              "trace's speed. Mean TTFT in seconds.",
     .header = "nodes | speed | random | least loaded | local | global | "
               "global to local | in order |",
     .differs = "The order is the paper's everywhere. The distance between "
                "local and global is not one number: on the public trace it is "
                "7 % with 16 nodes at the trace's speed, 16 % with 8, several "
                "times near saturation, and small again beyond, where nothing "
                "but work done counts. 14 % is what a cluster shows at one "
                "load, which the paper does not give.",
     .run = figure_policies},
    {.id = "08",
     .title = "Figure 8: GPU time of prefill",
     .paper = "Against vLLM: -36 % on conversation, -53 % on tool and agent, "
              "-64 % on synthetic.",
     .setup =
         "`reference-16`: time that a request's prefill takes on its node, "
         "without a prefix cache (`least_loaded`), with local caches "
         "(`local_cache`) and with the global one (`global_cache`).",
     .header = "no prefix cache | local | global | paper |",
     .differs =
         "Agrees within three points. Part of it is luck: in the paper's own "
         "formula a token costs more the further back it stands, and reused "
         "tokens are the first, so time saved is a little less than tokens "
         "saved (35 % of the time for 37 % of the tokens of the public trace).",
     .run = figure_prefill},
    {.id = "09",
     .title = "Figure 9: hit ratio of one cache over its capacity",
     .paper = "3 M tokens reach less than half of the highest hit ratio in "
              "most cases; 50 M nearly all of it.",
     .setup = "One LRU cache, blocks touched first to last; hits over all "
              "blocks, and as a share of an infinite cache's.",
     .header = "1 M tokens | 3 M | 10 M | 30 M | 50 M | infinite |",
     .differs =
         "Agrees on the public conversation trace: 37 % of the maximum with 3 "
         "M tokens, 99 % with 50 M. The generated tool-and-agent and synthetic "
         "traces do not: 3 M tokens reach 95 and 76 % of their maximum. Our "
         "generator keeps two dozen tool prompts and recent documents popular, "
         "which fit into any cache; the paper publishes no gaps between reuses "
         "for these two, only means and ratios, so its own traces may well be "
         "more spread out in time.",
     .run = figure_lru},
    {.id = "10",
     .title = "Figure 10: ten nodes, global against local caches",
     .paper = "10 nodes of 3 M tokens: the hit rate is up to 2.36 times as "
              "high, prefill time is down by up to 48 %.",
     .setup =
         "`reference-16` with 10 nodes. Local caches with a scheduler that "
         "only looks at load, and with one that looks for hits; global "
         "with fetches; and one pool that every node reads at no cost. "
         "Hit ratio in tokens; ratios and times of global against both "
         "kinds of local.",
     .header = "least loaded | local | global | ideal pool | hits, times as "
               "many | prefill time |",
     .differs = "The paper does not say how requests are placed on its local "
                "caches. Against placement by load alone our hit ratio gains "
                "1.3 to 4 times and time falls by up to 47 % (synthetic: 2.25 "
                "times and 47 %, next to the paper's maxima of 2.36 and 48 %). "
                "Against a scheduler that looks for local hits the gain is "
                "small, 1.04 to 1.19 times, as it brings most requests to "
                "where their prefix is. The conversation traces gain more hits "
                "than the paper's maximum and less time: what load alone hits "
                "there is little but the block that all prompts share.",
     .run = figure_global},
    {.id = "11",
     .title = "Figure 11: copies of popular keys",
     .paper = "Conversation and tool and agent: the top 100 keys end up on "
              "almost every instance; synthetic: few.",
     .setup = "`reference-16`, `global_cache`: nodes that hold the key of a "
              "rank, counted every 30 s; mean over the second half (and how "
              "often the trace asks for the key).",
     .header = "rank 1 | 10 | 100 | 1,000 | 10,000 |",
     .differs =
         "Tool and agent and synthetic agree. The public conversation trace "
         "does not, and says why: behind the one block that all prompts share, "
         "the key of rank 10 is asked for 43 times in the hour and that of "
         "rank 100 only 21 times. A key spreads when requests for it run on "
         "other nodes; so few neither can nor need bring it to 16. What the "
         "paper states for conversation does not follow from its public trace.",
     .run = figure_replicas},
    {.id = "13",
     .title = "Figure 13: TTFT over the network's bandwidth",
     .paper = "Synthetic, 24 to 400 Gbit/s: the mean is under 2 s above 100 "
              "Gbit/s, and sharply worse below.",
     .setup = "`paper-16`, `global_cache`, links shared by what crosses them. "
              "Mean TTFT in seconds.",
     .header = "speed | 24 Gbit/s | 50 | 100 | 150 | 200 | 400 | 800 |",
     .differs = "The same shape. Above 100 Gbit/s nothing changes, as in the "
                "paper. Below, it is flatter where there is load to spare "
                "(half as much again at 24 Gbit/s on the public trace at its "
                "own speed, little on our synthetic trace, which comes at 1 "
                "request a second) and sharp where there is not: six times as "
                "much at 1.5 times the speed. `global_cache` weighs a transfer "
                "against computing and stops fetching over a slow link; what "
                "hurts is then the KV for decode nodes, which fills the links. "
                "TTFT here is the end of prefill: what KV still has to travel "
                "after that counts in the first interval between tokens.",
     .run = figure_bandwidth},
    {.id = "15",
     .title = "Figure 15: prefill or decode, 16 nodes",
     .paper =
         "Synthetic, TTFT within 10 s and TBT within 100 ms: best at about "
         "1:1; more prefill lowers TTFT and raises TBT.",
     .setup = "`paper-16` with 2 to 14 prefill nodes, `global_cache`, no "
              "admission. TTFT and TBT: means at 4, 8 and 12 prefill nodes.",
     .header =
         "speed | best split | 8+8 | TTFT at 4, 8, 12 | TBT at 4, 8, 12 |",
     .differs =
         "The directions are the paper's: more prefill nodes lower TTFT and "
         "raise TBT. On synthetic the best split is next to 1:1 as in the "
         "paper, but in the middle of a long flat stretch. The conversation "
         "and tool-and-agent traces want more prefill nodes the faster they "
         "come, up to 13 + 3 (at four times the speed no split of 16 nodes "
         "serves them), since their prompts are long and a decode step costs "
         "here only what reading weights and KV costs; what else an engine "
         "does between steps would move the best towards 1:1.",
     .run = figure_ratio},
    {.id = "goodput",
     .title = "Goodput with a TTFT SLO of 30 s",
     .paper = "Not a figure of the paper: requests that no choice can serve in "
              "time are rejected on arrival, so overload must not take goodput "
              "away (the paper's section on overload asks for the same).",
     .setup = "`global_cache`, speeds 1 to 8. Effective requests per second of "
              "the trace's time; the largest drop below what a lower speed "
              "reached; accepted requests that missed the SLO at all speeds "
              "together, and by how much at most; the prediction error of "
              "TTFT in seconds, the largest p99 of a speed and the maximum.",
     .header = "cluster | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | largest drop | "
               "late, latest | predicted off by p99, max |",
     .differs = "Nothing to compare with.",
     .run = figure_goodput},
};

const struct figure *figure_at(size_t i)
{
    return i < sizeof figures / sizeof figures[0] ? &figures[i] : NULL;
}
