/*
 * The daemon's shell and the simulator's do the same with the same events.
 *
 * A script of requests runs through the simulator. What its nodes do is written
 * down as it happens: blocks that are stored and leave, prefills that begin and
 * end, answers that end. The daemon's service is then given the same arrivals,
 * and what was written down as frames of its workers, on links and a clock that
 * the test plays. What both did with each request is compared: to which
 * instances it went and when, with which plan and prediction, or why it was
 * refused.
 *
 * Not compared is what the two can't know alike; there the daemon is told what
 * the simulator knew:
 * - What a node makes of a plan that turns out otherwise. The worker forecasts
 *   (meeting_chunk()), the simulator follows the planned split
 *   (core/step/meeting.h). What such a prefill teaches is summed up by chunks
 *   there, and in one sum in the daemon.
 * - When links teach their rate: at the end of each source's load in the
 *   simulator, with PREFILL_DONE, for one source alone, in the daemon.
 * - When a decode has begun: with its batch's step in the simulator, with its
 *   first token in the daemon.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/loop/loop.h"
#include "conductor/core/index/block_key.h"
#include "conductor/service/internal.h"
#include "conductor/service/setup.h"
#include "predictor/cost_model_json.h"
#include "sim/internal.h"
#include "sim/load.h"
#include "sim/sim.h"
#include "tests/unit/fake_links.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

enum {
    BLOCK = 16,
    CHUNK = 2 * BLOCK,
    REQUESTS = 150,
    PREFILLS = 3,
    DECODES = 2,
    LINKS = PREFILLS + DECODES,
    BLOCKS_MAX = 24,
    VOCAB = 1 << 24,
    IDS = 1000 + REQUESTS * BLOCKS_MAX,
    EVENTS_MAX = 20 * REQUESTS,
    KEYS_MAX = 100 * REQUESTS,
    LINK_MBPS = 8000,
    LINK_BYTES_PER_US = LINK_MBPS / 8,
    START_US = 1000000000,
    SCRIPTS = 24,
    STEP_US = 2000,
    PIECES = 2 * REQUESTS,
};

struct script {
    const char *policy, *order;
    uint64_t seed;
    uint32_t mean_gap_us;
    int64_t slo_ttft_us; /* 0: none */
    uint32_t max_waiting, max_batch;
    uint32_t kv_bytes; /* a token: computing one takes as long as sending
                          100,000 */
    bool links_shared;
    uint32_t blocks; /* that a prefill node has memory for */
    bool preempt, warm;
};

struct piece {
    uint32_t instance, from_block, to_block;
};

/* What a shell computed of a refused prompt. Its events are those of request
 * REQUESTS + its number. */
struct warmed {
    int64_t at_us;
    uint32_t slot, from_block, end_block;
    uint64_t first_key, last_key; /* the daemon's */
    /* As it ended in the simulator, and as the daemon sent it. */
    struct sim_record record;
    int64_t engine_us, observed_us;
    uint64_t attempt_id;
};

/* What a shell did with a request. Times are the simulator's slow ones. */
struct action {
    int prefill, decode; /* -1: none */
    int64_t at_us;       /* sent; -1: refused */
    int64_t predicted_us;
    uint32_t local_blocks, split_block, cached_blocks, n_pieces;
    enum load_mode mode;
    struct piece pieces[LOAD_PLAN_PIECES_MAX];
    char reason[32]; /* "": sent */
};

enum event_kind { STORED, REMOVED, LEARNED, STARTED, PREFILLED, JOINED, ENDED };

/* What a node did. */
struct event {
    enum event_kind kind;
    int64_t at_us;
    uint32_t request; /* STARTED, PREFILLED, JOINED, ENDED */
    uint32_t node;    /* STORED, REMOVED, of keys[first .. first + n - 1] */
    enum block_tier tier;
    uint64_t parent;
    size_t first, n;
    struct observation_load load; /* LEARNED */
};

struct request {
    struct trace_request trace;
    uint64_t ids[BLOCKS_MAX];
    uint32_t tokens[(BLOCKS_MAX + 1) * BLOCK];
    struct sim_record record; /* in slow time */
    int64_t engine_us;        /* of its prefill */
    enum load_mode mode;
    int64_t observed_us; /* what its prefill taught */
    struct action simulated, done;
    struct action *now; /* of these, of the shell that runs */
    uint64_t attempt_id;
    bool prefilled, ended; /* as the daemon was told */
    uint32_t n_told;       /* tokens of the decode, likewise */
};

struct rig {
    struct cost_model cost;
    struct cluster cluster;
    struct request requests[REQUESTS];
    size_t n_given;
    const struct sim *sim; /* NULL while the daemon runs */
    bool breaks;           /* an invariant, in the simulator */
    bool links_shared;
    uint32_t kv_bytes;
    uint32_t blocks;
    struct event events[EVENTS_MAX];
    size_t n_events, n_told;
    uint64_t keys[KEYS_MAX]; /* the simulator's */
    size_t n_keys;
    uint64_t key_of_id[IDS]; /* the daemon's */
    struct loop *loop;
    struct models *models;
    struct service *service;
    struct worker_link links[LINKS];
    struct wire_buf out;
    /* DECODEs to be answered. */
    struct worker_link *announced_at[REQUESTS];
    uint64_t announced[REQUESTS];
    size_t n_announced;
    struct warmed simulated[PIECES], served[PIECES];
    size_t n_simulated, n_served;
};

static struct rig *the_rig;

/* The daemon's keys of a request's blocks. */
static void learn_keys(struct rig *r, const struct request *q)
{
    uint64_t keys[BLOCKS_MAX], seed = block_key_seed("shells", "", "");
    size_t n =
        block_keys_compute(q->tokens, q->trace.input_tokens, BLOCK, seed, keys);

    for (size_t b = 0; b < n; b++)
        r->key_of_id[q->ids[b]] = keys[b];
}

/* Conversations share the begin of their prompts. No prompt ends with a whole
 * block, and its last token says whose it is. */
static void make_requests(struct rig *r, const struct script *script)
{
    struct random_state state;
    int64_t at_us = 0;

    random_init(&state, script->seed);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct request *q = &r->requests[i];
        uint64_t session = random_below(&state, 6);
        uint32_t shared = random_below(&state, 12);
        uint32_t n = 1 + shared + random_below(&state, 11);

        for (uint32_t b = 0; b < n; b++)
            q->ids[b] =
                b < shared ? 1 + session * 100 + b : 1000 + i * BLOCKS_MAX + b;
        q->trace = (struct trace_request){.arrival_us = at_us,
                                          .input_tokens = n * BLOCK + 5,
                                          .output_tokens =
                                              1 + random_below(&state, 40),
                                          .block_count = n,
                                          .hash_ids = q->ids};
        for (uint32_t t = 0; t < n * BLOCK; t++)
            q->tokens[t] = (uint32_t)(q->ids[t / BLOCK] * BLOCK + t % BLOCK);
        for (uint32_t t = n * BLOCK; t < n * BLOCK + 5; t++)
            q->tokens[t] = VOCAB - 1 - i;
        q->done = q->simulated =
            (struct action){.prefill = -1, .decode = -1, .at_us = -1};
        learn_keys(r, q);
        at_us += 1 + (int64_t)random_below(&state, 2 * script->mean_gap_us);
    }
}

/* Whose work it is, by the id that the simulator's pool knows it by: pieces of
 * refused prompts come behind all requests. */
static uint64_t number_of(uint64_t request_id)
{
    const struct rig *r = the_rig;

    for (size_t k = 0; k < r->n_simulated; k++)
        if (r->simulated[k].attempt_id == request_id)
            return REQUESTS + k;
    return request_id - 1;
}

static uint64_t daemon_key(const struct rig *r, uint64_t key)
{
    for (size_t id = 0; id < IDS; id++)
        if (sim_key_of(id) == key)
            return r->key_of_id[id];
    return 0; /* none: in front of the first block */
}

/* What stands between the shells and core: the linker has both call these. */

void __real_warm_init(struct warm *, struct dispatch *, int64_t);
void __wrap_warm_init(struct warm *, struct dispatch *, int64_t);
void __wrap_warm_init(struct warm *w, struct dispatch *d, int64_t slowdown)
{
    (void)slowdown; /* both live in slow time */
    __real_warm_init(w, d, SIM_SLOWDOWN);
}

int __real_warm_begin(struct warm *, struct warm_job *,
                      const struct warm_piece *, uint64_t, int64_t);
int __wrap_warm_begin(struct warm *, struct warm_job *,
                      const struct warm_piece *, uint64_t, int64_t);
int __wrap_warm_begin(struct warm *w, struct warm_job *job,
                      const struct warm_piece *piece, uint64_t request_id,
                      int64_t now_us)
{
    struct rig *r = the_rig;
    size_t *n = r->sim ? &r->n_simulated : &r->n_served;
    struct warmed *warmed = &(r->sim ? r->simulated : r->served)[*n];
    uint64_t first = job->keys[0], last = job->keys[piece->end_block - 1];

    CU_ASSERT_FATAL(*n < PIECES);
    *warmed =
        (struct warmed){.at_us = r->sim ? now_us : now_us - START_US,
                        .slot = piece->slot,
                        .from_block = piece->from_block,
                        .end_block = piece->end_block,
                        .first_key = r->sim ? daemon_key(r, first) : first,
                        .last_key = r->sim ? daemon_key(r, last) : last,
                        .attempt_id = request_id};
    ++*n;
    return __real_warm_begin(w, job, piece, request_id, now_us);
}

int __real_sim_init(struct sim *, const struct sim_config *,
                    const struct sim_io *, char *);
int __wrap_sim_init(struct sim *, const struct sim_config *,
                    const struct sim_io *, char *);
int __wrap_sim_init(struct sim *sim, const struct sim_config *config,
                    const struct sim_io *io, char *err)
{
    the_rig->sim = sim;
    return __real_sim_init(sim, config, io, err);
}

/* The daemon lives in the simulator's slow time. */
struct pool *__real_pool_new(const struct pool_config *);
struct pool *__wrap_pool_new(const struct pool_config *);
struct pool *__wrap_pool_new(const struct pool_config *config)
{
    struct pool_config slow = *config;

    if (!the_rig->sim) {
        slow.correction_tau_us *= SIM_SLOWDOWN;
        slow.patience_us *= SIM_SLOWDOWN;
    }
    return __real_pool_new(&slow);
}

/* Where links are not shared in the simulation, core is told so. */
struct scheduler *__real_scheduler_new(const struct schedule_config *,
                                       const struct estimate_model *,
                                       struct pool *, struct prefix_index *);
struct scheduler *__wrap_scheduler_new(const struct schedule_config *,
                                       const struct estimate_model *,
                                       struct pool *, struct prefix_index *);
struct scheduler *__wrap_scheduler_new(const struct schedule_config *config,
                                       const struct estimate_model *model,
                                       struct pool *pool,
                                       struct prefix_index *index)
{
    struct estimate_model slow = *model;

    slow.simulated.slowdown = SIM_SLOWDOWN;
    slow.simulated.links_unshared = !the_rig->links_shared;
    return __real_scheduler_new(config, &slow, pool, index);
}

static void note_order(struct action *a, const struct dispatch_order *order,
                       int64_t now_us)
{
    const struct schedule_decision *d = &order->decision;

    if (order->action != DISPATCH_SEND)
        return;
    a->at_us = now_us;
    a->predicted_us = order->forecast.ttft_us;
    a->local_blocks = d->chosen.local_blocks;
    a->cached_blocks = d->chosen.used_blocks;
    if (!d->chosen.planned)
        return;
    a->mode = d->plan.mode;
    a->split_block = d->plan.split_block;
    a->cached_blocks = d->plan.cached_blocks;
    a->n_pieces = d->plan.n_pieces;
    for (uint32_t i = 0; i < a->n_pieces; i++) {
        const struct load_piece *piece = &d->plan.pieces[i];

        a->pieces[i] = (struct piece){d->sources[piece->source].instance,
                                      piece->from_block, piece->to_block};
    }
}

/* The request that a shell asks for. */
static struct request *request_of(const struct dispatch_request *asked)
{
    if (!the_rig->sim)
        return ((struct service_request *)asked->owner)->arg;
    return &the_rig
                ->requests[((struct sim_request *)asked->owner)->record.index];
}

static int64_t since_start_us(int64_t now_us)
{
    return the_rig->sim ? now_us : now_us - START_US;
}

void __real_dispatch_place(struct dispatch *, struct dispatch_request *,
                           int64_t, struct dispatch_order *);
void __wrap_dispatch_place(struct dispatch *, struct dispatch_request *,
                           int64_t, struct dispatch_order *);
void __wrap_dispatch_place(struct dispatch *d, struct dispatch_request *asked,
                           int64_t now_us, struct dispatch_order *order)
{
    __real_dispatch_place(d, asked, now_us, order);
    note_order(request_of(asked)->now, order, since_start_us(now_us));
}

struct dispatch_request *__real_dispatch_next(struct dispatch *, int64_t,
                                              struct dispatch_order *);
struct dispatch_request *__wrap_dispatch_next(struct dispatch *, int64_t,
                                              struct dispatch_order *);
struct dispatch_request *__wrap_dispatch_next(struct dispatch *d,
                                              int64_t now_us,
                                              struct dispatch_order *order)
{
    struct dispatch_request *next = __real_dispatch_next(d, now_us, order);

    if (next)
        note_order(request_of(next)->now, order, since_start_us(now_us));
    return next;
}

static struct event *new_event(enum event_kind kind, uint64_t request)
{
    struct rig *r = the_rig;

    CU_ASSERT_FATAL(r->n_events < EVENTS_MAX);
    r->events[r->n_events] = (struct event){
        .kind = kind, .at_us = r->sim->now_us, .request = (uint32_t)request};
    return &r->events[r->n_events++];
}

static void note_blocks(enum event_kind kind, uint32_t node,
                        enum block_tier tier, uint64_t parent,
                        const uint64_t *keys, size_t n)
{
    struct rig *r = the_rig;
    struct event *event;

    CU_ASSERT_FATAL(r->n_keys + n <= KEYS_MAX);
    event = new_event(kind, 0);
    event->node = node;
    event->tier = tier;
    event->parent = parent;
    event->first = r->n_keys;
    event->n = n;
    memcpy(r->keys + r->n_keys, keys, n * sizeof(*keys));
    r->n_keys += n;
}

int __real_prefix_index_stored(struct prefix_index *, uint32_t, enum block_tier,
                               uint64_t, const uint64_t *, size_t);
int __wrap_prefix_index_stored(struct prefix_index *, uint32_t, enum block_tier,
                               uint64_t, const uint64_t *, size_t);
int __wrap_prefix_index_stored(struct prefix_index *index, uint32_t instance,
                               enum block_tier tier, uint64_t parent,
                               const uint64_t *keys, size_t n)
{
    if (the_rig->sim && index == the_rig->sim->index)
        note_blocks(STORED, instance, tier, parent, keys, n);
    return __real_prefix_index_stored(index, instance, tier, parent, keys, n);
}

int __real_prefix_index_removed(struct prefix_index *, uint32_t,
                                enum block_tier, const uint64_t *, size_t);
int __wrap_prefix_index_removed(struct prefix_index *, uint32_t,
                                enum block_tier, const uint64_t *, size_t);
int __wrap_prefix_index_removed(struct prefix_index *index, uint32_t instance,
                                enum block_tier tier, const uint64_t *keys,
                                size_t n)
{
    if (the_rig->sim && index == the_rig->sim->index)
        note_blocks(REMOVED, instance, tier, 0, keys, n);
    return __real_prefix_index_removed(index, instance, tier, keys, n);
}

int __real_pool_prefill_started(struct pool *, uint32_t, uint64_t, int64_t);
int __wrap_pool_prefill_started(struct pool *, uint32_t, uint64_t, int64_t);
int __wrap_pool_prefill_started(struct pool *pool, uint32_t id,
                                uint64_t request_id, int64_t now_us)
{
    if (the_rig->sim)
        (void)new_event(STARTED, number_of(request_id));
    return __real_pool_prefill_started(pool, id, request_id, now_us);
}

int __real_pool_decode_started(struct pool *, uint32_t, uint64_t);
int __wrap_pool_decode_started(struct pool *, uint32_t, uint64_t);
int __wrap_pool_decode_started(struct pool *pool, uint32_t id,
                               uint64_t request_id)
{
    if (the_rig->sim)
        (void)new_event(JOINED, request_id - 1);
    return __real_pool_decode_started(pool, id, request_id);
}

void __real_observation_load(struct pool *, const struct observation_load *);
void __wrap_observation_load(struct pool *, const struct observation_load *);
void __wrap_observation_load(struct pool *pool,
                             const struct observation_load *seen)
{
    if (!the_rig->sim)
        return; /* LEARNED says it */
    new_event(LEARNED, 0)->load = *seen;
    __real_observation_load(pool, seen);
}

/* What the simulator made of the piece that the daemon sent. */
static const struct warmed *served_piece(uint64_t attempt_id)
{
    const struct rig *r = the_rig;
    size_t k = 0;

    while (k < r->n_served && r->served[k].attempt_id != attempt_id)
        k++;
    CU_ASSERT_FATAL(k < r->n_served);
    return &r->simulated[k];
}

/* What both make of a prefill's time, if it reused what was planned. */
int __real_pool_prefill_done(struct pool *, uint32_t, uint64_t, int64_t,
                             int64_t);
int __wrap_pool_prefill_done(struct pool *, uint32_t, uint64_t, int64_t,
                             int64_t);
int __wrap_pool_prefill_done(struct pool *pool, uint32_t id,
                             uint64_t request_id, int64_t us, int64_t now_us)
{
    struct rig *r = the_rig;

    if (r->sim) {
        uint64_t k = number_of(request_id);

        (void)new_event(PREFILLED, k);
        if (k < REQUESTS)
            r->requests[k].observed_us = us;
        else
            r->simulated[k - REQUESTS].observed_us = us;
    } else if (!service_request_find(r->service, request_id)) {
        CU_ASSERT_EQUAL(us, served_piece(request_id)->observed_us);
    } else {
        struct service_request *served =
            service_request_find(r->service, request_id);
        const struct request *q = served->arg;
        const struct sim_record *record = &q->record;

        if (record->local_tokens + record->fetched_tokens ==
            served->attempt.plan.cached_tokens)
            CU_ASSERT_EQUAL(q->observed_us, us);
        us = q->observed_us;
    }
    return __real_pool_prefill_done(pool, id, request_id, us, now_us);
}

void __real_sim_mark_ready(struct sim *, struct sim_request *);
void __wrap_sim_mark_ready(struct sim *, struct sim_request *);
void __wrap_sim_mark_ready(struct sim *sim, struct sim_request *request)
{
    if (request->load)
        the_rig->requests[request->record.index].mode =
            request->load->plan.mode;
    __real_sim_mark_ready(sim, request);
}

void __real_sim_end(struct sim *, struct sim_request *, enum sim_outcome,
                    const char *);
void __wrap_sim_end(struct sim *, struct sim_request *, enum sim_outcome,
                    const char *);
void __wrap_sim_end(struct sim *sim, struct sim_request *request,
                    enum sim_outcome outcome, const char *reason)
{
    struct request *q;
    const struct sim_record *record = &request->record;

    if (request->warms) {
        struct warmed *w =
            &the_rig->simulated[number_of(request->dispatch.ask.request_id) -
                                REQUESTS];

        w->record = *record;
        w->engine_us = request->prefill.engine_us;
        __real_sim_end(sim, request, outcome, reason);
        return;
    }
    q = &the_rig->requests[record->index];
    q->record = *record;
    q->record.end_us = sim->now_us;
    q->engine_us = request->prefill.engine_us;
    if (request->prefill.by_layer)
        q->mode = LOAD_MODE_LAYERWISE;
    if (outcome == SIM_COMPLETED) {
        (void)new_event(ENDED, record->index);
        q->simulated.prefill = (int)record->prefill_node;
        if (record->decode_node != SIM_NO_NODE)
            q->simulated.decode = (int)record->decode_node;
    } else {
        snprintf(q->simulated.reason, sizeof(q->simulated.reason), "%s",
                 reason);
    }
    __real_sim_end(sim, request, outcome, reason);
}

/* The simulator's side. */

static int next_request(void *arg, struct trace_request *request)
{
    struct rig *r = arg;

    if (r->n_given == REQUESTS)
        return 0;
    if (r->breaks)
        CU_ASSERT_EQUAL(pool_set_health(r->sim->views[0].pool,
                                        r->sim->nodes[0].id, HEALTH_STARTING),
                        -EPERM);
    return trace_request_copy(request, &r->requests[r->n_given++].trace) == 0
               ? 1
               : -1;
}

static void take_record(void *arg, const struct sim_record *record)
{
    (void)arg;
    (void)record; /* __wrap_sim_end() has it without rounding */
}

static void simulate(struct rig *r, const struct script *script)
{
    const struct policy_setting warm = {"warm_on_reject", script->warm};
    struct sim_config config = {.cluster = &r->cluster,
                                .policy = script->policy,
                                .speed = 1.0,
                                .slo_ttft_us = script->slo_ttft_us,
                                .settings = &warm,
                                .n_settings = 1,
                                .seed = 1};
    struct sim_io io = {.next = next_request, .record = take_record, .arg = r};
    struct sim_summary summary;
    char err[SIM_ERROR_BYTES] = "";

    r->cluster = (struct cluster){
        .name = "shells",
        .layers = 4,
        .block_tokens = BLOCK,
        .kv_bytes_per_token = script->kv_bytes,
        .cost = r->cost,
        .prefill_nodes = PREFILLS,
        .decode_nodes = DECODES,
        .max_waiting = script->max_waiting,
        .pipeline_stages = 1,
        .prefix_cache = true,
        .step_tokens = script->preempt ? CHUNK : 0,
        .decode_kv_tokens = 100000 * BLOCK,
        .decode_max_batch = script->max_batch,
        .link_bytes_per_s = LINK_BYTES_PER_US * 1e6,
        .links_shared = script->links_shared,
        .layerwise = true,
        .cache_at = CLUSTER_CACHE_AT_SERVICE,
        .kvcache_balancing_threshold = 1.0,
    };
    snprintf(r->cluster.order, sizeof(r->cluster.order), "%s", script->order);
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = script->blocks * BLOCK;
    for (size_t i = 0; i < REQUESTS; i++)
        r->requests[i].now = &r->requests[i].simulated;
    CU_ASSERT_EQUAL_FATAL(sim_run(&config, &io, &summary, err),
                          r->breaks ? -EIO : 0);
    CU_ASSERT_EQUAL(!strstr(err, "an invariant broke: health_allowed"),
                    !r->breaks);
    for (size_t i = 0; i < REQUESTS; i++)
        r->requests[i].now = &r->requests[i].done;
    r->sim = NULL;
}

/* The daemon's side. */

/* What goes out is what was decided. The lowest piece may go on below the
 * split. */
static void check_sources(const struct action *a, const struct msg_prefill *m)
{
    if (a->n_pieces == 0)
        return;
    CU_ASSERT_EQUAL_FATAL(m->n_sources, a->n_pieces);
    CU_ASSERT_EQUAL(m->load_mode, PROTO_LOAD_COMPUTE + a->mode);
    for (uint32_t i = 0; i < a->n_pieces; i++) {
        CU_ASSERT_EQUAL(m->sources[i].to_block, a->pieces[i].to_block);
        CU_ASSERT(i == 0 ? m->sources[i].from_block <= a->pieces[i].from_block
                         : m->sources[i].from_block == a->pieces[i].from_block);
    }
}

static void on_sent(void *arg, struct worker_link *link,
                    const struct frame_header *h, const uint8_t *payload)
{
    struct rig *r = arg;
    struct msg_prefill m;
    uint32_t last;

    if (h->type == FRAME_DECODE) {
        r->announced_at[r->n_announced] = link;
        r->announced[r->n_announced++] = h->request_id;
    }
    if (h->type != FRAME_PREFILL)
        return;
    CU_ASSERT_EQUAL_FATAL(msg_prefill_unpack(payload, h->length, &m), 0);
    if (m.n_tokens % BLOCK == 0) /* a piece of a refused prompt */
        return;
    memcpy(&last, m.tokens + 4 * (m.n_tokens - 1), sizeof(last));
    struct request *q = &r->requests[VOCAB - 1 - last];

    q->attempt_id = h->request_id;
    q->done.prefill = link->number;
    CU_ASSERT_EQUAL(q->done.at_us, fake_now_us - START_US);
    check_sources(&q->done, &m);
}

static void on_scheduled(void *arg, const struct service_decision *d)
{
    struct request *q = arg;

    q->done.decode = d->decode ? PREFILLS + d->decode[1] - '0' : -1;
}

static void on_token(void *arg, uint32_t token)
{
    (void)arg;
    (void)token;
}

static void on_done(void *arg, const struct service_result *result)
{
    (void)arg;
    (void)result;
}

static void on_failed(void *arg, const struct service_failure *failure)
{
    struct request *q = arg;
    const char *code = failure->code;

    if (strcmp(code, "slo_ttft_exceeded") == 0)
        code = "reject_slo_ttft";
    if (strcmp(code, "price") == 0)
        code = "reject_price";
    snprintf(q->done.reason, sizeof(q->done.reason), "%s", code);
}

static const struct service_reply_ops reply_ops = {
    .scheduled = on_scheduled,
    .token = on_token,
    .done = on_done,
    .failed = on_failed,
};

/* The loop's turn, until nothing more follows from it. */
static void run(struct rig *r)
{
    do {
        (void)loop_turn(r->loop, 0);
        while (r->n_announced > 0) {
            r->n_announced--;
            msg_empty_pack(&r->out, FRAME_DECODE_READY,
                           r->announced[r->n_announced]);
            CU_ASSERT_EQUAL(
                fake_link_deliver(r->announced_at[r->n_announced], &r->out), 0);
        }
        (void)loop_turn(r->loop, 0);
    } while (r->n_announced > 0);
}

static void join(struct rig *r, int i)
{
    bool prefills = i < PREFILLS;
    struct msg_hello hello = {
        .kind = PROTO_PEER_WORKER,
        .role = prefills ? PROTO_ROLE_PREFILL : PROTO_ROLE_DECODE,
        .fingerprint = 7,
        .block_tokens = BLOCK,
        .window_tokens = 10000,
        .vocab = VOCAB,
        .kv_capacity_blocks = prefills ? r->blocks : 100000,
        /* Room in the index: the simulator stores a chain before it tells what
         * that pushed out, a worker after it. */
        .disk_capacity_blocks = BLOCKS_MAX,
        .kv_bytes_per_token = r->kv_bytes,
        .layers = 4,
        .max_batch = (uint32_t)r->cluster.decode_max_batch,
        .peer_port = 1};
    struct msg_status status = {.kv_used_blocks = 0};

    snprintf(hello.name, sizeof(hello.name), "%c%d", prefills ? 'p' : 'd',
             prefills ? i : i - PREFILLS);
    snprintf(hello.model, sizeof(hello.model), "shells");
    r->links[i].number = i;
    CU_ASSERT_EQUAL_FATAL(fake_link_join(&r->links[i], &hello), 0);
    /* The disk is there for the index alone: the cache is what the simulated
     * node has. */
    const struct pool_instance *in = pool_at(r->service->pool, (uint32_t)i);
    ((struct pool_instance *)(uintptr_t)in)->cache_tokens =
        (int64_t)hello.kv_capacity_blocks * BLOCK;
    msg_status_pack(&r->out, 0, &status);
    CU_ASSERT_EQUAL_FATAL(fake_link_deliver(&r->links[i], &r->out), 0);
}

static void start_daemon(struct rig *r, const struct script *script)
{
    char path[] = "/tmp/test-shells-XXXXXX";
    char err[CONFIG_ERROR_MAX] = "";
    struct config config;
    struct cost_model slow = r->cost;
    int fd = mkstemp(path);

    for (size_t i = 0; i < COST_MODEL_PREFILL_TERMS; i++)
        slow.prefill[i] *= SIM_SLOWDOWN;
    for (size_t i = 0; i < COST_MODEL_DECODE_TERMS; i++)
        slow.decode[i] *= SIM_SLOWDOWN;
    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    CU_ASSERT_EQUAL_FATAL(cost_model_save_file(&slow, path, err, sizeof(err)),
                          0);
    config_defaults(&config);
    snprintf(config.model, sizeof(config.model), "shells");
    snprintf(config.policy, sizeof(config.policy), "%s", script->policy);
    snprintf(config.queue_order, sizeof(config.queue_order), "%s",
             script->order);
    snprintf(config.cost_model, sizeof(config.cost_model), "%s", path);
    config.step_tokens = script->preempt ? CHUNK : 0;
    snprintf(config.policy_options, sizeof(config.policy_options),
             "warm_on_reject=%d", script->warm);
    config.block_tokens = BLOCK;
    config.max_queue_per_instance = script->max_waiting;
    config.link_mbps = LINK_MBPS / SIM_SLOWDOWN;
    config.slo_ttft_ms = config.slo_tbt_ms = 0;
    fake_now_us = START_US;
    fake_links_watch(on_sent, r);
    wire_buf_init(&r->out, FRAME_PAYLOAD_MAX_BYTES);
    r->loop = loop_new();
    r->models = models_new(r->loop, &config, err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->models);
    r->service = models_first(r->models);
    unlink(path);
    loop_timer_stop(
        &r->service->tick.timer); /* real time has no part in this */
    for (int i = 0; i < LINKS; i++)
        join(r, i);
    run(r);
}

static void stop_daemon(struct rig *r)
{
    models_free(r->models);
    loop_free(r->loop);
    wire_buf_fini(&r->out);
}

static void tell_blocks(struct rig *r, const struct event *event)
{
    uint64_t keys[REQUESTS];

    CU_ASSERT_FATAL(event->n <= REQUESTS);
    for (size_t i = 0; i < event->n; i++)
        keys[i] = daemon_key(r, r->keys[event->first + i]);
    struct msg_blocks_stored stored = {.tier = (uint8_t)event->tier,
                                       .parent = daemon_key(r, event->parent),
                                       .n = (uint32_t)event->n,
                                       .keys = (const uint8_t *)keys};
    struct msg_blocks_removed removed = {.tier = (uint8_t)event->tier,
                                         .n = (uint32_t)event->n,
                                         .keys = (const uint8_t *)keys};

    if (event->kind == STORED)
        msg_blocks_stored_pack(&r->out, 0, &stored);
    else
        msg_blocks_removed_pack(&r->out, 0, &removed);
    CU_ASSERT_EQUAL(fake_link_deliver(&r->links[event->node], &r->out), 0);
}

static void tell_started(struct rig *r, const struct request *q)
{
    struct msg_prefill_started m = {.queue_us = (uint64_t)q->record.queue_us};

    msg_prefill_started_pack(&r->out, q->attempt_id, &m);
    CU_ASSERT_EQUAL(fake_link_deliver(&r->links[q->done.prefill], &r->out), 0);
}

static void tell_prefilled(struct rig *r, struct request *q)
{
    const struct sim_record *record = &q->record;
    bool loaded = record->fetched_tokens > 0;
    struct msg_prefill_done m = {
        .first_token = 1,
        .local_tokens = record->local_tokens,
        .fetched_tokens = record->fetched_tokens,
        .computed_tokens = record->computed_tokens,
        .queue_us = (uint64_t)record->queue_us,
        .prefill_us = (uint64_t)q->engine_us,
        .load_us = loaded, /* no matter how long: LEARNED says it */
        .load_mode = (uint8_t)(PROTO_LOAD_COMPUTE + (loaded ? q->mode : 0))};

    q->prefilled = true;
    msg_prefill_done_pack(&r->out, q->attempt_id, &m);
    CU_ASSERT_EQUAL(fake_link_deliver(&r->links[q->done.prefill], &r->out), 0);
}

/* The tokens of the decode up to a time, packed: a step takes STEP_US. */
static void pack_tokens(struct rig *r, struct request *q, int64_t at_us)
{
    uint32_t n = q->trace.output_tokens;

    while (q->n_told + 1 < n &&
           q->record.end_us -
                   (int64_t)(n - 2 - q->n_told) * STEP_US * SIM_SLOWDOWN <=
               at_us) {
        struct msg_token token = {q->attempt_id, ++q->n_told, 1};

        msg_tokens_pack(&r->out, &token, 1);
    }
}

/* The tokens that have come by now, but for those of answers that end. */
static void tell_tokens(struct rig *r, int64_t at_us)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        struct request *q = &r->requests[i];

        if (!q->prefilled || q->ended || q->record.end_us <= at_us ||
            q->done.decode < 0)
            continue;
        pack_tokens(r, q, at_us);
        if (r->out.len > 0)
            CU_ASSERT_EQUAL(
                fake_link_deliver(&r->links[q->done.decode], &r->out), 0);
    }
}

static void tell_ended(struct rig *r, struct request *q)
{
    uint32_t n = q->trace.output_tokens;
    int at = n > 1 ? q->done.decode : q->done.prefill;
    struct msg_done done = {.output_tokens = n};

    q->ended = true;
    pack_tokens(r, q, q->record.end_us);
    msg_done_pack(&r->out, q->attempt_id, &done);
    CU_ASSERT_EQUAL(fake_link_deliver(&r->links[at], &r->out), 0);
}

/* A piece begins or ends. */
static void tell_warmed(struct rig *r, enum event_kind kind, size_t k)
{
    const struct warmed *w = &r->simulated[k];
    struct msg_prefill_started started = {.queue_us =
                                              (uint64_t)w->record.queue_us};
    struct msg_prefill_done done = {.first_token = 1,
                                    .local_tokens = w->record.local_tokens,
                                    .computed_tokens =
                                        w->record.computed_tokens,
                                    .queue_us = (uint64_t)w->record.queue_us,
                                    .prefill_us = (uint64_t)w->engine_us,
                                    .load_mode = PROTO_LOAD_COMPUTE};

    if (kind == STARTED)
        msg_prefill_started_pack(&r->out, r->served[k].attempt_id, &started);
    else
        msg_prefill_done_pack(&r->out, r->served[k].attempt_id, &done);
    CU_ASSERT_EQUAL(fake_link_deliver(&r->links[w->slot], &r->out), 0);
}

/* What happens next, if it happens now and the daemon has sent its request. */
static bool tell(struct rig *r, int64_t at_us)
{
    const struct event *event = &r->events[r->n_told];
    struct request *q;

    if (r->n_told == r->n_events || event->at_us != at_us)
        return false;
    if (event->request >= REQUESTS) {
        if (event->request - REQUESTS >= r->n_served)
            return false;
        r->n_told++;
        tell_warmed(r, event->kind, event->request - REQUESTS);
        return true;
    }
    if (event->kind == STORED || event->kind == REMOVED) {
        tell_blocks(r, event);
        r->n_told++;
        return true;
    }
    q = &r->requests[event->request];
    if (event->kind != LEARNED && q->done.prefill < 0)
        return false;
    r->n_told++;
    if (event->kind == LEARNED)
        __real_observation_load(r->service->pool, &event->load);
    else if (event->kind == JOINED)
        (void)__real_pool_decode_started(
            r->service->pool,
            pool_at(r->service->pool, (uint32_t)q->done.decode)->id,
            q->attempt_id);
    else if (event->kind == STARTED)
        tell_started(r, q);
    else if (event->kind == PREFILLED)
        tell_prefilled(r, q);
    else
        tell_ended(r, q);
    return true;
}

/* All that happens at a time, and what follows at the same time. */
static void tell_all(struct rig *r, int64_t at_us)
{
    bool any = true;

    tell_tokens(r, at_us);
    while (any) {
        any = false;
        while (tell(r, at_us))
            any = true;
        run(r);
    }
}

/* When something happens next. What was due before and did not happen, because
 * the daemon sent no such request, ends the script. */
static int64_t next_after(const struct rig *r, size_t arrived)
{
    int64_t next_us = INT64_MAX;

    if (r->n_told < r->n_events)
        next_us = r->events[r->n_told].at_us;
    if (arrived < REQUESTS &&
        r->requests[arrived].trace.arrival_us * SIM_SLOWDOWN < next_us)
        next_us = r->requests[arrived].trace.arrival_us * SIM_SLOWDOWN;
    return next_us;
}

static void arrive(struct rig *r, const struct script *script,
                   struct request *q)
{
    struct service_request_params params = {
        .tokens = q->tokens,
        .n_tokens = q->trace.input_tokens,
        .max_tokens = q->trace.output_tokens,
        .arrived_us = fake_now_us,
        .slo_ttft_us = script->slo_ttft_us * SIM_SLOWDOWN};

    CU_ASSERT_PTR_NOT_NULL_FATAL(
        service_submit(r->service, &params, &reply_ops, q));
    run(r);
}

static void play(struct rig *r, const struct script *script)
{
    size_t arrived = 0;
    int64_t at_us, last_us = -1;

    while ((at_us = next_after(r, arrived)) != INT64_MAX) {
        if (at_us < last_us)
            return;
        last_us = at_us;
        fake_now_us = START_US + at_us;
        size_t told = r->n_told;
        tell_all(r, at_us);
        while (arrived < REQUESTS &&
               r->requests[arrived].trace.arrival_us * SIM_SLOWDOWN == at_us) {
            arrive(r, script, &r->requests[arrived++]);
            tell_all(r, at_us);
            told = SIZE_MAX;
        }
        if (told == r->n_told)
            return;
    }
}

static struct {
    size_t sent, waited, refused, loads, several, splits, warmed;
    uint64_t interrupted;
} seen;

static void print_action(const char *who, const struct action *a)
{
    printf("  %s: %d %d at %lld, predicted %lld, %u local, %s %u..%u", who,
           a->prefill, a->decode, (long long)a->at_us,
           (long long)a->predicted_us, a->local_blocks, load_mode_name(a->mode),
           a->split_block, a->cached_blocks);
    for (uint32_t i = 0; i < a->n_pieces; i++)
        printf(" %u:%u..%u", a->pieces[i].instance, a->pieces[i].from_block,
               a->pieces[i].to_block);
    printf(" %s\n", a->reason);
}

static bool same_pieces(const struct action *a, const struct action *b)
{
    for (uint32_t i = 0; i < a->n_pieces; i++)
        if (memcmp(&a->pieces[i], &b->pieces[i], sizeof(a->pieces[i])) != 0)
            return false;
    return a->n_pieces == b->n_pieces;
}

static bool same(const struct action *a, const struct action *b)
{
    return a->prefill == b->prefill && a->decode == b->decode &&
           a->at_us == b->at_us && a->predicted_us == b->predicted_us &&
           a->local_blocks == b->local_blocks && a->mode == b->mode &&
           a->split_block == b->split_block &&
           a->cached_blocks == b->cached_blocks && same_pieces(a, b) &&
           strcmp(a->reason, b->reason) == 0;
}

/* The first request with which they did not do the same; its line goes out. */
static void compare(const struct rig *r, const struct script *script)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        const struct request *q = &r->requests[i];
        const struct action *a = &q->simulated;

        seen.sent += a->at_us >= 0;
        seen.waited += a->at_us > q->trace.arrival_us * SIM_SLOWDOWN;
        seen.refused += a->at_us < 0;
        seen.loads += a->n_pieces > 0;
        seen.several += a->n_pieces > 1;
        seen.splits += a->mode == LOAD_MODE_BOTH;
        if (same(a, &q->done))
            continue;
        printf("\n%s %s seed %llu links %d, %u bytes, request %zu of %lld\n",
               script->policy, script->order, (unsigned long long)script->seed,
               script->links_shared, script->kv_bytes, i,
               (long long)q->trace.arrival_us);
        print_action("simulated", a);
        print_action("served", &q->done);
        CU_FAIL("the shells differ");
        return;
    }
}

/* What they computed of refused prompts, and when. The simulator begins no more
 * when its last request has ended; the daemon does not know that. */
static void compare_warmed(const struct rig *r, const struct script *script)
{
    bool equal = r->n_simulated <= r->n_served &&
                 r->n_served <= r->n_simulated + PREFILLS;

    for (size_t k = 0; equal && k < r->n_simulated; k++) {
        const struct warmed *a = &r->simulated[k], *b = &r->served[k];

        equal = a->at_us == b->at_us && a->slot == b->slot &&
                a->from_block == b->from_block &&
                a->end_block == b->end_block && a->first_key == b->first_key &&
                a->last_key == b->last_key;
        if (!equal)
            printf("\npiece %zu: %u..%u of %u at %lld, served %u..%u of %u at "
                   "%lld\n",
                   k, a->from_block, a->end_block, a->slot, (long long)a->at_us,
                   b->from_block, b->end_block, b->slot, (long long)b->at_us);
    }
    seen.warmed += r->n_simulated;
    if (equal)
        return;
    printf("\nseed %llu: %zu pieces, served %zu\n",
           (unsigned long long)script->seed, r->n_simulated, r->n_served);
    CU_FAIL("the shells warm other prompts");
}

static struct rig *new_rig(void)
{
    static struct rig r;

    memset(&r, 0, sizeof(r));
    the_rig = &r;
    r.links_shared = true;
    r.kv_bytes = 1000;
    r.blocks = 100000;
    r.cost.prefill[1] = 100;
    r.cost.prefill[0] = 300;
    r.cost.decode[0] = STEP_US;
    r.cost.range = (struct cost_model_range){1, 10000, 10000, 64, 1000000};
    snprintf(r.cost.model, sizeof(r.cost.model), "shells");
    snprintf(r.cost.engine, sizeof(r.cost.engine), "timed");
    snprintf(r.cost.machine, sizeof(r.cost.machine), "none");
    snprintf(r.cost.date, sizeof(r.cost.date), "2026-01-01");
    return &r;
}

static void run_script(const struct script *script)
{
    struct rig *r = new_rig();

    r->links_shared = script->links_shared;
    r->kv_bytes = script->kv_bytes;
    r->blocks = script->blocks;
    make_requests(r, script);
    simulate(r, script);
    start_daemon(r, script);
    play(r, script);
    compare(r, script);
    compare_warmed(r, script);
    seen.interrupted += pool_interrupted(r->service->pool);
    stop_daemon(r);
}

static void run_scripts(int64_t slo_ttft_us, uint32_t max_waiting,
                        uint32_t max_batch, uint32_t mean_gap_us)
{
    static const char *const policies[] = {"local_cache", "least_loaded",
                                           "plan"};

    /* SHELLS_SEED=N begins with another seed. */
    static uint64_t first_seed;
    const char *asked = getenv("SHELLS_SEED");

    if (first_seed == 0)
        first_seed = asked ? strtoull(asked, NULL, 10) : 1;
    memset(&seen, 0, sizeof(seen));
    for (uint64_t n = 0; n < SCRIPTS; n++)
        run_script(&(struct script){
            .policy = policies[n % 3],
            .order = n % 2 ? "fifo" : "uncached_first",
            .seed = first_seed + n,
            .mean_gap_us = mean_gap_us,
            .slo_ttft_us = slo_ttft_us,
            .max_waiting = max_waiting,
            .max_batch = max_batch,
            .kv_bytes = n % 12 < 6 ? 20000 : 70000,
            .links_shared = n % 6 < 3,
            .blocks = n % 24 < 12 ? 100000 : 120,
            .preempt = n % 6 == 2, /* plan */
            .warm = n % 6 == 5,    /* likewise */
        });
    printf("seeds %llu to %llu: %zu sent, %zu of them later, %zu refused, "
           "%zu load, %zu of them from several, %zu compute beside it, %llu "
           "interrupted, %zu pieces in the background ",
           (unsigned long long)first_seed,
           (unsigned long long)first_seed + SCRIPTS - 1, seen.sent, seen.waited,
           seen.refused, seen.loads, seen.several, seen.splits,
           (unsigned long long)seen.interrupted, seen.warmed);
    first_seed += SCRIPTS;
    CU_ASSERT(seen.loads > SCRIPTS);
    CU_ASSERT(seen.several > SCRIPTS / 2);
}

/* Room for all: only choices. */
static void test_choices(void)
{
    run_scripts(0, 100, 100, 6000);
    CU_ASSERT_EQUAL(seen.sent, SCRIPTS * REQUESTS);
    CU_ASSERT_EQUAL(seen.waited, 0);
}

/* Queues and batches are full: waiting requests are sent when room appears, in
 * order.
 */
static void test_waiting(void)
{
    run_scripts(0, 2, 6, 4000);
    CU_ASSERT_EQUAL(seen.sent, SCRIPTS * REQUESTS);
    CU_ASSERT(seen.waited > REQUESTS);
}

static void test_slo(void)
{
    run_scripts(40000, 100, 100, 2500);
    CU_ASSERT(seen.warmed > 0);
    CU_ASSERT(seen.refused > REQUESTS);
    CU_ASSERT(seen.sent > REQUESTS);
}

/* Some wait for a place, some are told that it would come too late, some wait
 * longer than they may. */
static void test_slo_and_waiting(void)
{
    run_scripts(40000, 1, 100, 2500);
    CU_ASSERT(seen.refused > REQUESTS);
    CU_ASSERT(seen.sent > REQUESTS);
    CU_ASSERT(seen.waited > 0);
}

/* Frames of many keys leave the loop to others in between. */
static void test_empty_frames(void)
{
    enum { FRAMES = 2000, A_TURN = 256 };
    struct rig *r = new_rig();
    struct msg_blocks_removed none = {.tier = TIER_HOST};

    start_daemon(r, &(struct script){
                        .policy = "plan", .order = "fifo", .max_waiting = 1});
    for (int i = 0; i < FRAMES; i++) {
        msg_blocks_removed_pack(&r->out, 0, &none);
        CU_ASSERT_EQUAL(fake_link_deliver(&r->links[0], &r->out), 0);
    }
    CU_ASSERT(r->links[0].turns >= FRAMES / A_TURN);
    stop_daemon(r);
}

static void test_large_frames(void)
{
    enum { KEYS = 65000, A_TURN = 1024 };
    static uint64_t keys[KEYS];
    struct rig *r = new_rig();
    struct msg_blocks_stored stored = {
        .tier = TIER_HOST, .n = KEYS, .keys = (const uint8_t *)keys};
    struct msg_blocks_removed removed = {
        .tier = TIER_HOST, .n = KEYS - 1, .keys = (const uint8_t *)keys};

    start_daemon(r, &(struct script){
                        .policy = "plan", .order = "fifo", .max_waiting = 1});
    for (uint32_t k = 0; k < KEYS; k++)
        keys[k] = k + 1;
    msg_blocks_stored_pack(&r->out, 0, &stored);
    CU_ASSERT_EQUAL(fake_link_deliver(&r->links[0], &r->out), 0);
    CU_ASSERT(r->links[0].turns >= KEYS / A_TURN);
    CU_ASSERT_EQUAL(prefix_index_held(r->service->index, 0), KEYS);
    CU_ASSERT_EQUAL(r->service->metrics.block_events_stored, KEYS);
    r->links[0].turns = 0;
    msg_blocks_removed_pack(&r->out, 0, &removed);
    CU_ASSERT_EQUAL(fake_link_deliver(&r->links[0], &r->out), 0);
    CU_ASSERT(r->links[0].turns >= KEYS / A_TURN);
    CU_ASSERT_EQUAL(prefix_index_held(r->service->index, 0), 1);
    stop_daemon(r);
}

/* All workers together have one budget a turn, by turns. */
static void test_frames_of_all_at_once(void)
{
    enum { KEYS = 20000, A_TURN = 1024, PART = 256 };
    static uint64_t keys[LINKS][KEYS];
    struct rig *r = new_rig();
    struct wire_buf frames[LINKS];
    uint64_t before = 0;
    bool more = true;

    start_daemon(r, &(struct script){
                        .policy = "plan", .order = "fifo", .max_waiting = 1});
    for (uint32_t i = 0; i < LINKS; i++) {
        for (uint32_t k = 0; k < KEYS; k++)
            keys[i][k] = (uint64_t)i * KEYS + k + 1;
        wire_buf_init(&frames[i], FRAME_PAYLOAD_MAX_BYTES);
        msg_blocks_stored_pack(
            &frames[i], 0,
            &(struct msg_blocks_stored){.tier = TIER_HOST,
                                        .n = KEYS,
                                        .keys = (const uint8_t *)keys[i]});
        fake_link_offer(&r->links[i], &frames[i]);
    }
    while (more) {
        uint64_t held, least = KEYS, most = 0;

        CU_ASSERT_FATAL(r->service->metrics.block_events_stored - before <=
                        A_TURN + PART);
        before = r->service->metrics.block_events_stored;
        more = false;
        for (uint32_t i = 0; i < LINKS; i++) {
            held = prefix_index_held(r->service->index, i);
            least = held < least ? held : least;
            most = held > most ? held : most;
            more |= !!r->links[i].offered;
        }
        /* The first one had the first turn for itself. */
        CU_ASSERT_FATAL(most - least <= A_TURN + 2 * PART);
        (void)loop_turn(r->loop, -1);
    }
    CU_ASSERT_EQUAL(before, (uint64_t)LINKS * KEYS);
    for (uint32_t i = 0; i < LINKS; i++)
        wire_buf_fini(&frames[i]);
    stop_daemon(r);
}

/* A broken invariant of core ends a simulation as the daemon's tick ends a
 * test. */
static void test_broken(void)
{
    const struct script script = {.policy = "plan",
                                  .order = "fifo",
                                  .seed = 1,
                                  .mean_gap_us = 6000,
                                  .max_waiting = 100,
                                  .max_batch = 100,
                                  .kv_bytes = 20000,
                                  .blocks = 100000};
    struct rig *r = new_rig();

    r->breaks = true;
    make_requests(r, &script);
    simulate(r, &script);
}

static const struct suite_test tests[] = {
    {"a broken invariant", test_broken},
    {"choices", test_choices},
    {"frames of all at once", test_frames_of_all_at_once},
    {"empty frames", test_empty_frames},
    {"large frames", test_large_frames},
    {"waiting", test_waiting},
    {"SLO", test_slo},
    {"SLO and waiting", test_slo_and_waiting},
};
SUITE("shells", tests)
