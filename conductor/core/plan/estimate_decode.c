/* Estimates of one decode on one instance. */
#include <string.h>

#include "conductor/core/plan/estimate.h"

static int64_t step_us(const struct estimate_model *model,
                       const struct pool_instance *instance, int64_t batch,
                       int64_t kv_tokens, bool *extrapolated)
{
    return cost_model_decode_step_us(estimate_cost(model, instance), batch,
                                     kv_tokens, extrapolated);
}

void estimate_decode(const struct estimate_model *model,
                     const struct pool_instance *instance, int64_t n_tokens,
                     int64_t max_output_tokens, struct decode_estimate *out)
{
    memset(out, 0, sizeof(*out));
    out->instance = instance->id;
    out->slot = instance->slot;
    out->batch = (int64_t)instance->n_decodes + instance->other_decodes + 1;
    out->kv_tokens =
        instance->decode_kv_tokens + instance->other_kv_tokens + n_tokens;
    out->room_tokens = pool_decode_room_tokens(instance);
    out->tbt_us = step_us(model, instance, out->batch, out->kv_tokens,
                          &out->extrapolated);
    if (model->step_tokens > 0)
        out->tbt_us = beside_step_us(model->step_tokens, instance, out->tbt_us);
    out->load_us = out->tbt_us;
    out->no_room = !pool_decode_has_room(instance, n_tokens, max_output_tokens);
    out->too_long = pool_too_long(instance, n_tokens, max_output_tokens);
}

/* Returns whether a ends before b; equal ends go by index. */
static bool ends_before(const struct decode_end *a, const struct decode_end *b)
{
    return a->left_tokens != b->left_tokens ? a->left_tokens < b->left_tokens
                                            : a->decode < b->decode;
}

/* Restores a heap of n, the first to end on top: moves the entry at `at` down.
 */
static void sift_down(struct decode_end *heap, size_t n, size_t at)
{
    const struct decode_end entry = heap[at];

    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && ends_before(&heap[child + 1], &heap[child]))
            child++;
        if (!ends_before(&heap[child], &entry))
            break;
        heap[at] = heap[child];
    }
    heap[at] = entry;
}

static void heap_of_ends(const struct pool_instance *instance,
                         struct decode_end *heap)
{
    for (size_t i = 0; i < instance->n_decodes; i++) {
        const struct pool_decode *d = &instance->decodes[i];
        int64_t left = d->expected_tokens - d->produced_tokens;

        heap[i] = (struct decode_end){left > 0 ? left : 0, i};
    }
    for (size_t at = instance->n_decodes / 2; at-- > 0;)
        sift_down(heap, instance->n_decodes, at);
}

int64_t estimate_decode_fits_in_us(const struct estimate_model *model,
                                   const struct pool_instance *instance,
                                   int64_t n_tokens, int64_t max_output_tokens,
                                   int64_t slo_tbt_us,
                                   struct decode_end *scratch)
{
    int64_t need_tokens = pool_kv_tokens(instance, n_tokens, max_output_tokens);
    int64_t room_tokens = pool_decode_room_tokens(instance);
    int64_t others = instance->other_decodes;
    int64_t batch = (int64_t)instance->n_decodes;
    int64_t kv_tokens = instance->decode_kv_tokens + instance->other_kv_tokens;
    int64_t today_us =
        step_us(model, instance, batch + others, kv_tokens, NULL);
    bool any_tbt = slo_tbt_us <= 0;
    bool full = pool_decode_full(instance);
    int64_t in_us = 0;

    if (pool_too_long(instance, n_tokens, max_output_tokens) ||
        (!any_tbt && step_us(model, instance, 1, n_tokens, NULL) > slo_tbt_us))
        return ESTIMATE_NEVER_US;
    heap_of_ends(instance, scratch);
    while (batch > 0) {
        if (!full && room_tokens >= need_tokens &&
            (any_tbt || step_us(model, instance, batch + others + 1,
                                kv_tokens + n_tokens, NULL) <= slo_tbt_us))
            break;
        const struct decode_end first = scratch[0];
        const struct pool_decode *decode = &instance->decodes[first.decode];

        batch--;
        scratch[0] = scratch[batch];
        sift_down(scratch, (size_t)batch, 0);
        room_tokens += pool_kv_tokens(instance, decode->prompt_tokens,
                                      decode->expected_tokens);
        kv_tokens -= decode->prompt_tokens + decode->produced_tokens;
        full = false;
        in_us = first.left_tokens * today_us;
    }
    return in_us < ESTIMATE_NEVER_US ? in_us : ESTIMATE_NEVER_US;
}
