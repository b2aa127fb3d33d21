/* The requests that decode on instances, or will. Invariants are at the top of
 * pool.c. */
#include <errno.h>
#include <string.h>

#include "conductor/core/pool/internal.h"
#include "conductor/core/pool/pool.h"

/* A decode that reaches its expected length is expected to grow by
 * 1 / OUTGROWN_PART of its length. */
#define OUTGROWN_PART 2

struct pool_decode *pool_find_decode(const struct pool_slot *slot,
                                     uint64_t request_id)
{
    for (size_t i = 0; i < slot->view.n_decodes; i++)
        if (slot->decodes[i].request_id == request_id)
            return &slot->decodes[i];
    return NULL;
}

/* A request's decode and the slot it is on. Returns 0; -ESTALE; -ENOENT. */
static int get_decode(const struct pool *pool, uint32_t id, uint64_t request_id,
                      struct pool_slot **slot, struct pool_decode **decode)
{
    *slot = pool_slot_of(pool, id);
    if (!*slot)
        return -ESTALE;
    *decode = pool_find_decode(*slot, request_id);
    return !*decode ? -ENOENT : 0;
}

int pool_book_push(struct pool *pool, const struct pool_push *push, uint32_t id,
                   uint64_t request_id)
{
    struct pool_slot *sender = pool_slot_of(pool, push->from);
    struct pool_slot *receiver = pool_slot_of(pool, id);
    struct pool_decode *decode;

    if (!sender || !receiver)
        return -ESTALE;
    if (push->bytes < 0)
        return -EINVAL;
    decode = pool_find_decode(receiver, request_id);
    if (!decode || decode->started)
        return -ENOENT;
    if (decode->push_from != POOL_NO_INSTANCE)
        return -EEXIST;
    decode->push_from = push->from;
    decode->push_bytes = push->bytes;
    decode->push_due_us = push->due_us;
    sender->view.push_out_bytes += push->bytes;
    sender->view.n_pushes_out++;
    receiver->view.push_in_bytes += push->bytes;
    receiver->view.n_pushes_in++;
    return 0;
}

void pool_unbook_push(struct pool *pool, struct pool_slot *slot,
                      struct pool_decode *decode)
{
    struct pool_slot *sender = pool_slot_of(pool, decode->push_from);

    if (decode->push_from == POOL_NO_INSTANCE)
        return;
    if (sender) { /* else the sum is gone with its instance */
        sender->view.push_out_bytes -= decode->push_bytes;
        sender->view.n_pushes_out--;
    }
    slot->view.push_in_bytes -= decode->push_bytes;
    slot->view.n_pushes_in--;
    decode->push_from = POOL_NO_INSTANCE;
    decode->push_bytes = 0;
}

/* Sets decodes_here of a request's running prefill, if there is one. */
static void set_decodes_here(struct pool_slot *slot, uint64_t request_id,
                             bool decodes_here)
{
    size_t i = pool_index_of(slot->running, slot->view.n_running, request_id);
    struct pool_prefill *p;

    if (i == POOL_NOT_FOUND)
        return;
    p = &slot->running[i];
    slot->view.running_kv_tokens -= pool_prefill_kv_tokens(slot, p);
    p->decodes_here = decodes_here;
    slot->view.running_kv_tokens += pool_prefill_kv_tokens(slot, p);
}

static int accept(struct pool_slot *slot,
                  const struct pool_decode_request *request, size_t most)
{
    if (!slot)
        return -ESTALE;
    if (request->prompt_tokens < 0 || request->expected_tokens < 0 ||
        request->expected_tokens > request->max_output_tokens)
        return -EINVAL;
    if (pool_find_decode(slot, request->request_id))
        return -EEXIST;
    if (slot->view.n_decodes >= most)
        return -ENOSPC;
    slot->decodes[slot->view.n_decodes++] = (struct pool_decode){
        .request_id = request->request_id,
        .prompt_tokens = request->prompt_tokens,
        .max_output_tokens = request->max_output_tokens,
        .expected_tokens = request->expected_tokens,
        .comes_us = request->comes_us,
        .prefill = request->prefill,
        .prefill_us = request->prefill_us,
    };
    set_decodes_here(slot, request->request_id, true);
    slot->view.decode_kv_tokens += request->prompt_tokens;
    slot->view.decode_reserved_tokens += pool_kv_tokens(
        &slot->view, request->prompt_tokens, request->expected_tokens);
    return 0;
}

int pool_decode_accept(struct pool *pool, uint32_t id, uint64_t request_id,
                       int64_t prompt_tokens, int64_t max_output_tokens)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    return accept(slot,
                  &(struct pool_decode_request){
                      .request_id = request_id,
                      .prompt_tokens = prompt_tokens,
                      .max_output_tokens = max_output_tokens,
                      .expected_tokens = max_output_tokens,
                  },
                  slot ? slot->view.max_decodes : 0);
}

int pool_decode_expect(struct pool *pool, uint32_t id,
                       const struct pool_decode_request *request)
{
    struct pool_slot *slot = pool_slot_of(pool, id);
    size_t most = slot ? slot->view.max_decodes * POOL_DECODES_AHEAD : 0;

    return accept(slot, request,
                  most < pool->config.max_decodes ? most
                                                  : pool->config.max_decodes);
}

int pool_decode_likely(struct pool *pool, uint32_t id, uint64_t request_id,
                       int64_t likely_tokens)
{
    struct pool_slot *slot;
    struct pool_decode *decode;
    int error = get_decode(pool, id, request_id, &slot, &decode);

    if (error < 0)
        return error;
    decode->likely_tokens = likely_tokens;
    decode->before = slot->view.accepted;
    decode->before_seq = pool->next_seq;
    return 0;
}

/* Stores a decode's produced tokens, and raises its expected length if it is
 * reached. */
static void set_produced(struct pool_slot *slot, struct pool_decode *d,
                         int64_t produced_tokens)
{
    struct pool_instance *view = &slot->view;
    int64_t longer = produced_tokens + produced_tokens / OUTGROWN_PART + 1;

    view->decode_kv_tokens += produced_tokens - d->produced_tokens;
    d->produced_tokens = produced_tokens;
    if (produced_tokens < d->expected_tokens ||
        d->expected_tokens >= d->max_output_tokens)
        return;
    view->decode_reserved_tokens -=
        pool_kv_tokens(view, d->prompt_tokens, d->expected_tokens);
    d->expected_tokens =
        longer < d->max_output_tokens ? longer : d->max_output_tokens;
    view->decode_reserved_tokens +=
        pool_kv_tokens(view, d->prompt_tokens, d->expected_tokens);
}

int pool_decode_comes(struct pool *pool, uint32_t id, uint64_t request_id,
                      int64_t now_us)
{
    struct pool_slot *slot;
    struct pool_decode *decode;
    int error = get_decode(pool, id, request_id, &slot, &decode);

    if (error < 0)
        return error;
    decode->comes_us = now_us;
    decode->coming = true;
    return 0;
}

int pool_decode_started(struct pool *pool, uint32_t id, uint64_t request_id)
{
    struct pool_slot *slot;
    struct pool_decode *decode;
    int error = get_decode(pool, id, request_id, &slot, &decode);

    if (error < 0)
        return error;
    decode->started = true;
    pool_unbook_push(pool, slot, decode);
    return 0;
}

int pool_decode_progress(struct pool *pool, uint32_t id, uint64_t request_id,
                         int64_t produced_tokens)
{
    struct pool_slot *slot;
    struct pool_decode *decode;
    int error = get_decode(pool, id, request_id, &slot, &decode);

    if (error < 0)
        return error;
    if (produced_tokens < 0)
        return -EINVAL;
    set_produced(slot, decode, produced_tokens);
    return 0;
}

int pool_decode_advance(struct pool *pool, uint32_t id, int64_t more_tokens)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    if (more_tokens < 0)
        return -EINVAL;
    for (size_t i = 0; i < slot->view.n_decodes; i++) {
        struct pool_decode *d = &slot->decodes[i];

        if (d->started)
            set_produced(slot, d, d->produced_tokens + more_tokens);
    }
    return 0;
}

int pool_decode_done(struct pool *pool, uint32_t id, uint64_t request_id)
{
    struct pool_slot *slot;
    struct pool_decode *decode;
    int error = get_decode(pool, id, request_id, &slot, &decode);

    if (error < 0)
        return error;
    struct pool_instance *view = &slot->view;

    pool_unbook_push(pool, slot, decode);
    view->decode_kv_tokens -= decode->prompt_tokens + decode->produced_tokens;
    view->decode_reserved_tokens -=
        pool_kv_tokens(view, decode->prompt_tokens, decode->expected_tokens);
    set_decodes_here(slot, request_id, false);
    size_t behind = view->n_decodes - (size_t)(decode - slot->decodes) - 1;

    memmove(decode, decode + 1, behind * sizeof(*decode));
    view->n_decodes--;
    CHECK(&pool->broken, view->decode_kv_tokens >= 0);
    CHECK(&pool->broken, view->decode_reserved_tokens >= 0);
    CHECK(&pool->broken, view->n_decodes > 0 || view->decode_kv_tokens == 0);
    return 0;
}

void pool_await(struct pool *pool, uint32_t id, int64_t tokens)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (slot)
        slot->view.awaited_tokens += tokens;
}

void pool_await_none(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_slots; i++)
        pool->slots[i].view.awaited_tokens = 0;
}
