/* Passes, pieces and drops; weigh.c weighs copies. See replication.h. */
#include "conductor/core/replication/replication.h"

#include <math.h>
#include <stdlib.h>

#include "conductor/core/replication/internal.h"

struct replication *replication_new(struct dispatch *d, uint32_t instances,
                                    int64_t slowdown, uint64_t seed)
{
    struct replication *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->dispatch = d;
    r->slowdown = slowdown > 0 ? slowdown : 1;
    r->n_sides = instances;
    r->next_id = 1;
    r->asked = access_new(&(struct access_config){
        .max_bytes = REPLICATION_SKETCH_BYTES,
        .half_us = replication_us(r, REPLICATION_HALF_US),
        .seed = seed,
    });
    if (r->asked)
        r->keys = calloc(access_places(r->asked), sizeof(*r->keys));
    r->sides = calloc(instances, sizeof(*r->sides));
    r->order = calloc(instances, sizeof(*r->order));
    r->pieces = calloc(instances, sizeof(*r->pieces));
    if (!r->asked || !r->keys || !r->sides || !r->order || !r->pieces) {
        replication_free(r);
        return NULL;
    }
    return r;
}

void replication_free(struct replication *r)
{
    if (!r)
        return;
    access_free(r->asked);
    free(r->keys);
    free(r->sides);
    free(r->order);
    free(r->pieces);
    free(r);
}

bool replication_on(const struct replication *r)
{
    return r->dispatch->scheduler && !r->dispatch->unpredicted &&
           schedule_rules_of(r->dispatch->scheduler)->replicates > 0.0;
}

/* Updates the share of time in which each instance has a prefill. */
static void sample(struct replication *r, int64_t now_us)
{
    const struct pool *pool = schedule_pool(r->dispatch->scheduler);
    int64_t us = now_us - r->sampled_us;
    double part;

    us = us > 0 ? us : 0;
    part =
        1.0 - exp(-(double)us / (double)replication_us(r, REPLICATION_BUSY_US));
    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        const struct pool_instance *i = pool_at(pool, slot);
        struct replication_side *side = &r->sides[slot];

        if (!i)
            continue;
        if (side->id != i->id)
            *side = (struct replication_side){.id = i->id};
        side->busy_ratio += part * ((i->n_running + i->n_waiting > 0 ? 1 : 0) -
                                    side->busy_ratio);
    }
    r->sampled_us += us;
}

void replication_asked(struct replication *r,
                       const struct schedule_request *request, uint64_t tag,
                       int64_t now_us)
{
    if (!replication_on(r))
        return;
    sample(r, now_us);
    if (request->n_keys > 0)
        access_add(r->asked, request->keys, request->n_keys, request->n_tokens,
                   tag, now_us);
}

int64_t replication_due_us(const struct replication *r)
{
    return r->due_us;
}

bool replication_pass(struct replication *r, int64_t now_us)
{
    struct access_tip tips[REPLICATION_TIPS];
    size_t n;

    if (!replication_on(r) || now_us < r->due_us)
        return false;
    r->due_us = now_us + replication_us(r, REPLICATION_PASS_US);
    r->counts.passes++;
    sample(r, now_us);
    r->n_jobs = 0;
    n = access_tips(r->asked, REPLICATION_LEAST_PER_S / (double)r->slowdown,
                    now_us, tips, REPLICATION_TIPS);
    for (size_t t = 0; t < n; t++)
        replication_weigh(r, &tips[t], now_us);
    return true;
}

static struct replication_side *side_of(struct replication *r, uint32_t id)
{
    const struct pool_instance *i =
        pool_get(schedule_pool(r->dispatch->scheduler), id);

    return i && r->sides[i->slot].id == id ? &r->sides[i->slot] : NULL;
}

/* Whether no request has booked a link of the instance. */
static bool link_is_idle(const struct pool_instance *i, int64_t now_us)
{
    return i->egress_free_us <= now_us && i->ingress_free_us <= now_us;
}

/* The instance that can send most of the blocks from `has` on, of equal ones
 * the one with least to push; NULL = none can send now. */
static const struct pool_instance *find_sender(const struct replication *r,
                                               const struct schedule_look *look,
                                               uint32_t n_blocks, uint32_t has,
                                               int64_t now_us, uint32_t *sends)
{
    const struct pool_instance *best = NULL;

    *sends = has;
    for (uint32_t slot = 0; slot < pool_slots(look->pool); slot++) {
        const struct pool_instance *i = pool_at(look->pool, slot);
        uint32_t n;

        if (!i || look->stored[slot] <= has || r->sides[slot].id != i->id ||
            r->sides[slot].sends || !link_is_idle(i, now_us))
            continue;
        n = replication_sendable(look, r->keys, i, n_blocks);
        if (n > *sends || (best && n == *sends && n > has &&
                           i->push_out_bytes < best->push_out_bytes)) {
            *sends = n;
            best = i;
        }
    }
    return best;
}

/* Cuts the next piece of a job. Returns false unless both ends are free. */
static bool cut(struct replication *r, const struct replication_job *job,
                int64_t now_us, struct replication_action *a)
{
    const struct pool_instance *to, *from;
    const struct replication_side *side = side_of(r, job->to);
    struct schedule_look look;
    uint32_t has, end, most;
    double rate, blocks;

    if (!side || side->receives || side->failed_us > now_us ||
        !replication_look(r, &job->tip, &look))
        return false;
    to = pool_get(look.pool, job->to);
    has = look.stored[to->slot];
    /* Blocks that an accepted prefill will leave there need no copy. */
    if (!replication_takes(to) || !link_is_idle(to, now_us) ||
        schedule_looked(&look, to->slot) >= job->tip.n_blocks)
        return false;
    from = find_sender(r, &look, job->tip.n_blocks, has, now_us, &end);
    if (!from)
        return false;
    rate = schedule_rules_of(r->dispatch->scheduler)->replicates *
           fmin(from->link_bytes_per_s, to->link_bytes_per_s);
    blocks = rate * (double)replication_us(r, REPLICATION_PIECE_US) / 1e6 /
             replication_block_bytes(&look);
    most = blocks < 1.0 ? 1 : blocks < 65536.0 ? (uint32_t)blocks : 65536;
    if (end - has > most)
        end = has + most;
    *a = (struct replication_action){.kind = REPLICATION_COPY,
                                     .from = from->id,
                                     .to = to->id,
                                     .keys = r->keys,
                                     .key = r->keys[end - 1],
                                     .tag = job->tip.tag,
                                     .first_block = has,
                                     .end_block = end,
                                     .bytes_per_s = rate,
                                     .reason = job->reason};
    return true;
}

static void begin(struct replication *r, const struct replication_job *job,
                  struct replication_action *a)
{
    a->id = r->next_id++;
    r->pieces[r->n_pieces++] =
        (struct replication_piece){.id = a->id,
                                   .from = a->from,
                                   .to = a->to,
                                   .tip = job->tip.key,
                                   .last_key = a->key,
                                   .first_block = a->first_block,
                                   .end_block = a->end_block};
    side_of(r, a->from)->sends = true;
    side_of(r, a->to)->receives = true;
    r->counts.pieces++;
}

/* Whether another instance also has a block. */
static bool is_extra(const struct replication *r, uint32_t instance,
                     uint64_t key)
{
    static const uint64_t no_keys[1];
    const struct schedule_look look =
        schedule_look(r->dispatch->scheduler, no_keys, 0, 1, false);

    for (uint32_t slot = 0; slot < pool_slots(look.pool); slot++) {
        const struct pool_instance *i = pool_at(look.pool, slot);

        if (i && i->id != instance && pool_takes_work(i) &&
            prefix_index_tiers(look.index, slot, key) != 0)
            return true;
    }
    return false;
}

/* Whether an instance is gone, or short of memory for blocks. */
static bool is_full(const struct replication *r, uint32_t instance)
{
    static const uint64_t no_keys[1];
    const struct pool_instance *i =
        pool_get(schedule_pool(r->dispatch->scheduler), instance);
    const struct schedule_look look =
        schedule_look(r->dispatch->scheduler, no_keys, 0, 1, false);
    double held;

    if (!i)
        return true;
    held = (double)prefix_index_held(look.index, i->slot) *
           (double)look.model->block_tokens;

    return held + (double)i->decode_reserved_tokens >=
           REPLICATION_FULL * (double)i->kv_capacity_tokens;
}

static void forget_kept(struct replication *r, uint32_t k)
{
    r->kept[k] = r->kept[--r->n_kept];
}

/* Finds a copy to drop: no longer asked for, on an instance short of memory. */
static bool find_cold(struct replication *r, int64_t now_us,
                      struct replication_action *a)
{
    double cold = REPLICATION_COLD_PER_S / (double)r->slowdown;

    for (uint32_t k = 0; k < r->n_kept; k++) {
        const struct replication_kept kept = r->kept[k];

        if (now_us - kept.at_us < replication_us(r, REPLICATION_KEEP_US) ||
            access_rate(r->asked, kept.tip, now_us) >= cold ||
            !is_full(r, kept.instance))
            continue;
        forget_kept(r, k--);
        if (!side_of(r, kept.instance) ||
            !is_extra(r, kept.instance, kept.last_key))
            continue;
        *a = (struct replication_action){
            .kind = REPLICATION_DROP,
            .to = kept.instance,
            .key = kept.last_key,
            .first_block = kept.first_block,
            .end_block = kept.end_block,
            .reason = {.per_s = access_rate(r->asked, kept.tip, now_us)}};
        r->counts.dropped++;
        return true;
    }
    return false;
}

bool replication_next(struct replication *r, int64_t now_us,
                      struct replication_action *action)
{
    action->kind = REPLICATION_NONE;
    if (!replication_on(r))
        return false;
    if (find_cold(r, now_us, action))
        return true;
    for (uint32_t j = 0; j < r->n_jobs && r->n_pieces < r->n_sides; j++) {
        if (!cut(r, &r->jobs[j], now_us, action))
            continue;
        begin(r, &r->jobs[j], action);
        return true;
    }
    return false;
}

/* Remembers a copy that may be dropped later, if the table has a free place. */
static void keep(struct replication *r, const struct replication_piece *p,
                 int64_t now_us)
{
    struct replication_kept *k = r->kept;

    while (k < r->kept + r->n_kept &&
           (k->tip != p->tip || k->instance != p->to))
        k++;
    if (k == r->kept + REPLICATION_KEPT)
        return;
    if (k == r->kept + r->n_kept) {
        r->n_kept++;
        *k = (struct replication_kept){
            .tip = p->tip, .instance = p->to, .first_block = p->first_block};
    }
    if (p->first_block < k->first_block || p->first_block > k->end_block)
        k->first_block = p->first_block;
    k->end_block = p->end_block;
    k->last_key = p->last_key;
    k->at_us = now_us;
}

static void end_piece(struct replication *r, uint32_t at)
{
    struct replication_side *from = side_of(r, r->pieces[at].from);
    struct replication_side *to = side_of(r, r->pieces[at].to);

    if (from)
        from->sends = false;
    if (to)
        to->receives = false;
    r->pieces[at] = r->pieces[--r->n_pieces];
}

void replication_ended(struct replication *r, uint64_t id, uint32_t blocks,
                       int64_t now_us)
{
    uint32_t at = 0;

    while (at < r->n_pieces && r->pieces[at].id != id)
        at++;
    if (at == r->n_pieces)
        return;
    const struct replication_piece piece = r->pieces[at];
    struct replication_side *to = side_of(r, piece.to);

    end_piece(r, at);
    r->counts.blocks += blocks;
    r->counts.failed += blocks == 0;
    if (blocks == 0 && to)
        to->failed_us = now_us + replication_us(r, REPLICATION_REFUSE_US);
    if (blocks >= piece.end_block - piece.first_block)
        keep(r, &piece, now_us);
}

void replication_lost(struct replication *r, uint32_t instance)
{
    for (uint32_t at = r->n_pieces; at-- > 0;)
        if (r->pieces[at].from == instance || r->pieces[at].to == instance)
            end_piece(r, at);
    for (uint32_t k = r->n_kept; k-- > 0;)
        if (r->kept[k].instance == instance)
            forget_kept(r, k);
}

const struct replication_counts *replication_counts(const struct replication *r)
{
    return &r->counts;
}

bool replication_check(const struct replication *r)
{
    for (uint32_t p = 0; p < r->n_pieces; p++)
        for (uint32_t q = 0; q < p; q++)
            if (r->pieces[p].from == r->pieces[q].from ||
                r->pieces[p].to == r->pieces[q].to ||
                r->pieces[p].id == r->pieces[q].id)
                return false;
    for (uint32_t j = 1; j < r->n_jobs; j++)
        if (r->jobs[j - 1].us_per_byte < r->jobs[j].us_per_byte)
            return false;
    return r->n_pieces <= r->n_sides && r->n_jobs <= REPLICATION_JOBS &&
           r->n_kept <= REPLICATION_KEPT && access_check(r->asked);
}
