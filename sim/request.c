/* Creates requests from the trace, and describes them to core. */
#include <stdlib.h>

#include "sim/internal.h"

struct sim_request *sim_request_new(const struct sim *sim,
                                    const struct trace_request *t)
{
    uint32_t bt = sim->cluster.block_tokens;
    struct sim_request *r = calloc(1, sizeof(*r));
    size_t n = t->input_tokens / bt;

    if (!r)
        return NULL;
    if (sim->cluster.whole_prompt_reuse && t->input_tokens % bt != 0)
        n++;
    if (!sim->cluster.prefix_cache)
        n = 0;
    if (n > t->block_count)
        n = t->block_count;
    r->keys = malloc((n + 1) * sizeof(*r->keys));
    if (!r->keys) {
        free(r);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        r->keys[i] = sim_key_of(t->hash_ids[i]);
    r->n_keys = (uint32_t)n;
    r->n_tokens = t->input_tokens;
    r->n_output = t->output_tokens > 0 ? t->output_tokens : 1;
    r->max_output = cluster_max_tokens(&sim->cluster, r->n_output);
    r->record = (struct sim_record){.arrival_us = sim->now_us,
                                    .first_token_us = -1,
                                    .end_us = -1,
                                    .tbt_us = -1,
                                    .queue_us = -1,
                                    .prefill_us = -1,
                                    .predicted_ttft_us = -1,
                                    .predicted_p90_us = -1,
                                    .predicted_tbt_us = -1,
                                    .input_tokens = t->input_tokens,
                                    .output_tokens = t->output_tokens,
                                    .tenant = t->tenant,
                                    .priority = t->priority,
                                    .prefill_node = SIM_NO_NODE,
                                    .decode_node = SIM_NO_NODE};
    return r;
}

static bool ttft_only(const struct sim *sim)
{
    return sim->cluster.decode_nodes + sim->cluster.coupled_nodes == 0;
}

static double weight_of(const struct sim *sim, uint64_t tenant)
{
    return tenant > 0 && tenant <= sim->config.n_weights
               ? sim->config.weights[tenant - 1]
               : 1.0;
}

/* Draws the prediction errors of a request. */
static void draw_errors(const struct sim *sim, struct sim_request *r)
{
    const struct cluster_reality *reality = &sim->cluster.reality;
    uint64_t seed = sim->config.seed;

    r->prefill.error = noise_factor(seed, r->record.index, NOISE_PREFILL,
                                    reality->prefill_error_sigma);
    r->decode.error = noise_factor(seed, r->record.index, NOISE_DECODE,
                                   reality->decode_error_sigma);
}

void sim_request_describe(const struct sim *sim, struct sim_request *r)
{
    r->dispatch = (struct dispatch_request){
        .owner = r,
        .ask = {.request_id = r->record.index + 1,
                .keys = r->keys,
                .n_keys = r->n_keys,
                .n_tokens = r->n_tokens,
                .max_output_tokens = ttft_only(sim) ? 1 : r->max_output},
        .arrived_us = sim->now_us,
        .slo_ttft_us = sim->config.slo_ttft_us * SIM_SLOWDOWN,
        .slo_tbt_us = sim->config.slo_tbt_us * SIM_SLOWDOWN,
        .may_hold = !sim->cluster.reality.first_token_at_decode,
        .tenant = r->record.tenant,
        .weight = weight_of(sim, r->record.tenant),
        .priority = r->record.priority,
        /* reuse is not known yet */
        .passage_us =
            sim_prefill_passage_us(sim, &sim->cluster.cost, r->n_tokens, 0),
    };
    draw_errors(sim, r);
}
