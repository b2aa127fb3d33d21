/* The slices of one path over its rails: ops, and the life of slices. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/engine/rdma/spread_internal.h"

static bool config_is_good(const struct spread_config *c, uint32_t n_rails)
{
    return n_rails >= 1 && n_rails <= SPREAD_RAILS_MAX && c->slice_bytes > 0 &&
           c->credits >= 1 && c->credits <= 4096 && c->ops_max > 0 &&
           c->slices_max > 0 && c->retry_first_us > 0 &&
           c->retry_longest_us >= c->retry_first_us && c->stall_us > 0;
}

int spread_new(const struct spread_config *config, uint32_t n_rails,
               struct spread **out)
{
    if (!config_is_good(config, n_rails))
        return -EINVAL;
    struct spread *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->n_slots = n_rails * config->credits;
    s->slots = calloc(s->n_slots, sizeof(*s->slots));
    if (!s->slots)
        goto free_s;
    s->config = *config;
    s->n_rails = n_rails;
    TAILQ_INIT(&s->ready);
    TAILQ_INIT(&s->others);
    TAILQ_INIT(&s->ended);
    for (uint32_t i = s->n_slots; i-- > 0;) {
        s->slots[i].index = i;
        s->slots[i].next = s->free;
        s->free = &s->slots[i];
    }
    for (uint32_t i = 0; i < n_rails; i++)
        s->rails[i].bytes_per_s = 1e9;
    *out = s;
    return 0;
free_s:
    free(s);
    return -ENOMEM;
}

static void free_ops(struct op_list *list)
{
    struct spread_op *op;

    while ((op = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, op, link);
        free(op);
    }
}

void spread_free(struct spread *s)
{
    if (!s)
        return;
    free_ops(&s->ready);
    free_ops(&s->others);
    free_ops(&s->ended);
    free(s->slots);
    free(s);
}

/* Returns the op `op_id` if it has not ended, or NULL. */
static struct spread_op *find(const struct spread *s, uint64_t op_id)
{
    struct spread_op *op;

    TAILQ_FOREACH(op, &s->ready, link)
    if (op->id == op_id)
        return op;
    TAILQ_FOREACH(op, &s->others, link)
    if (op->id == op_id)
        return op;
    return NULL;
}

static int check_op(const struct spread *s, uint64_t op_id,
                    const struct transport_slice *slices, uint32_t n)
{
    if (n == 0)
        return -EINVAL;
    if (n > s->config.slices_max)
        return -EMSGSIZE;
    for (uint32_t i = 0; i < n; i++)
        if (slices[i].bytes == 0)
            return -EINVAL;
    if (find(s, op_id))
        return -EEXIST;
    return s->n_ops == s->config.ops_max ? -ENOBUFS : 0;
}

int spread_add(struct spread *s, uint64_t op_id, uint64_t grant, bool held,
               const struct transport_slice *slices, uint32_t n, int64_t now_us)
{
    int rc = check_op(s, op_id, slices, n);
    struct spread_op *op;

    if (rc < 0)
        return rc;
    op = calloc(1, sizeof(*op) + n * sizeof(*slices));
    if (!op)
        return -ENOMEM;
    op->id = op_id;
    op->grant = grant;
    op->held = held;
    op->n = n;
    memcpy(op->slices, slices, n * sizeof(*slices));
    if (s->n_ops++ == 0)
        s->progress_us = now_us;
    TAILQ_INSERT_TAIL(held ? &s->others : &s->ready, op, link);
    return 0;
}

/* Ends the op if it has nothing to cut and no slice in a slot. */
static void settle(struct spread *s, struct spread_op *op)
{
    if (op->over || !spread_is_cut(op) || op->slots > 0)
        return;
    TAILQ_REMOVE(&s->others, op, link);
    op->over = true;
    TAILQ_INSERT_TAIL(&s->ended, op, link);
    s->n_ops--;
}

/* Takes the op out of the turns: it only waits for its slices. */
static void leave_ready(struct spread *s, struct spread_op *op)
{
    TAILQ_REMOVE(&s->ready, op, link);
    TAILQ_INSERT_TAIL(&s->others, op, link);
}

static void free_slot(struct spread *s, struct spread_slice *slice)
{
    struct spread_op *op = slice->op;

    slice->op = NULL;
    slice->next = s->free;
    s->free = slice;
    op->slots--;
    settle(s, op);
}

/* Drops the op's slices that wait to be sent again. */
static void drop_again(struct spread *s, const struct spread_op *op)
{
    struct spread_slice **at = &s->again, *slice;

    s->again_tail = &s->again;
    while ((slice = *at)) {
        if (slice->op != op) {
            at = &slice->next;
            continue;
        }
        *at = slice->next;
        s->n_again--;
        free_slot(s, slice);
    }
    s->again_tail = at;
}

/* Ends the op with rc as soon as its slices under way are back. */
static void end(struct spread *s, struct spread_op *op, int rc)
{
    if (op->rc != 0)
        return;
    if (!op->held && !spread_is_cut(op))
        leave_ready(s, op);
    op->rc = rc;
    op->held = false;
    op->slots++; /* so that it does not end inside drop_again() */
    drop_again(s, op);
    op->slots--;
    settle(s, op);
}

void spread_allow(struct spread *s, uint64_t grant)
{
    struct spread_op *op, *next;

    for (op = TAILQ_FIRST(&s->others); op; op = next) {
        next = TAILQ_NEXT(op, link);
        if (!op->held || op->grant != grant)
            continue;
        op->held = false;
        TAILQ_REMOVE(&s->others, op, link);
        TAILQ_INSERT_TAIL(&s->ready, op, link);
    }
}

/* Ends the ops under *grant; NULL = all ops. */
static void end_those(struct spread *s, const uint64_t *grant, int rc)
{
    struct op_list *lists[] = {&s->ready, &s->others};

    for (int i = 0; i < 2; i++) {
        struct spread_op *op, *next;

        for (op = TAILQ_FIRST(lists[i]); op; op = next) {
            next = TAILQ_NEXT(op, link);
            if (!grant || op->grant == *grant)
                end(s, op, rc);
        }
    }
}

void spread_deny(struct spread *s, uint64_t grant, int rc)
{
    end_those(s, &grant, rc);
}

void spread_fail(struct spread *s, int rc)
{
    end_those(s, NULL, rc);
}

void spread_cancel(struct spread *s, uint64_t op_id)
{
    struct spread_op *op = find(s, op_id);

    if (op)
        end(s, op, -ECANCELED);
}

bool spread_uses(const struct spread *s, uint64_t grant)
{
    const struct spread_op *op;

    TAILQ_FOREACH(op, &s->ready, link)
    if (op->grant == grant)
        return true;
    TAILQ_FOREACH(op, &s->others, link)
    if (op->grant == grant)
        return true;
    return false;
}

/* Cuts the next slice off the op that has the turn. */
static struct spread_slice *cut(struct spread *s)
{
    struct spread_op *op = TAILQ_FIRST(&s->ready);
    const struct transport_slice *of = &op->slices[op->next];
    struct spread_slice *slice = s->free;
    uint64_t left = of->bytes - op->at;

    s->free = slice->next;
    slice->op = op;
    slice->local = (uint8_t *)of->local + op->at;
    slice->region = of->region;
    slice->offset = of->offset + op->at;
    slice->bytes =
        left < s->config.slice_bytes ? (uint32_t)left : s->config.slice_bytes;
    op->slots++;
    op->at += slice->bytes;
    if (op->at == of->bytes) {
        op->next++;
        op->at = 0;
    }
    TAILQ_REMOVE(&s->ready, op, link);
    TAILQ_INSERT_TAIL(spread_is_cut(op) ? &s->others : &s->ready, op, link);
    return slice;
}

static struct spread_slice *take_again(struct spread *s)
{
    struct spread_slice *slice = s->again;

    s->again = slice->next;
    if (!s->again)
        s->again_tail = &s->again;
    s->n_again--;
    return slice;
}

struct spread_slice *spread_next(struct spread *s, int64_t now_us)
{
    if (!spread_has_unsent(s)) {
        spread_unmeasured(s);
        return NULL;
    }
    /* A slot is free, under way on a rail, or waits to be sent again. */
    bool old = s->n_again > 0;
    if (!old && !s->free)
        return NULL;
    uint32_t rail = spread_pick(s);
    if (rail == SPREAD_NONE)
        return NULL;
    struct spread_slice *slice = old ? take_again(s) : cut(s);
    slice->next = NULL;
    slice->rail = rail;
    spread_rail_begin(s, slice, now_us);
    return slice;
}

void spread_moved(struct spread *s, struct spread_slice *slice, int64_t now_us)
{
    s->progress_us = now_us;
    spread_rail_end(s, slice, now_us);
    free_slot(s, slice);
}

void spread_lost(struct spread *s, struct spread_slice *slice)
{
    struct spread_op *op = slice->op;

    spread_rail_end(s, slice, INT64_MIN);
    if (op->rc != 0) {
        free_slot(s, slice);
        return;
    }
    if (!s->again)
        s->again_tail = &s->again;
    slice->next = NULL;
    *s->again_tail = slice;
    s->again_tail = &slice->next;
    s->n_again++;
}

struct spread_slice *spread_slice_at(struct spread *s, uint32_t index)
{
    struct spread_slice *slice;

    if (index >= s->n_slots)
        return NULL;
    slice = &s->slots[index];
    return slice->op && slice->rail != SPREAD_NONE ? slice : NULL;
}

bool spread_ended(struct spread *s, uint64_t *op_id, int *rc)
{
    struct spread_op *op = TAILQ_FIRST(&s->ended);

    if (!op)
        return false;
    *op_id = op->id;
    *rc = op->rc;
    TAILQ_REMOVE(&s->ended, op, link);
    free(op);
    return true;
}

bool spread_is_idle(const struct spread *s)
{
    return s->n_ops == 0 && TAILQ_EMPTY(&s->ended);
}

bool spread_stalled(const struct spread *s, int64_t now_us)
{
    return s->n_ops > 0 && now_us - s->progress_us >= s->config.stall_us;
}
