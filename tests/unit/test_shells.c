/*
 * The daemon's shell and the simulator's do the same with the same events.
 *
 * A script of requests runs through the simulator. Its records say when each
 * prefill began and ended and when each answer ended. The daemon's service is
 * then given the same arrivals, and those ends as frames of its workers, on
 * links and a clock that the test plays. What both did with each request is
 * compared: to which instances it went and when, or why it was refused.
 */
#include <CUnit/Basic.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conductor/core/index/block_key.h"
#include "conductor/service/setup.h"
#include "conductor/service/state.h"
#include "predictor/cost_model_json.h"
#include "sim/sim.h"
#include "tests/unit/fake_links.h"
#include "traces/random.h"

enum {
    BLOCK = 16,
    REQUESTS = 150,
    PREFILLS = 3,
    DECODES = 2,
    LINKS = PREFILLS + DECODES,
    BLOCKS_MAX = 24,
    VOCAB = 1 << 24,
    KV_BYTES = 1000,
    START_US = 1000000000,
    STEP_US = 2000,
};

struct script {
    const char *policy, *order;
    uint64_t seed;
    uint32_t mean_gap_us;
    int64_t slo_ttft_us; /* 0: none */
    uint32_t max_waiting, max_batch;
};

/* What a shell did with a request. */
struct action {
    int prefill, decode; /* -1: none */
    int64_t at_us;       /* sent; -1: refused */
    char reason[32];     /* "": sent */
};

enum event_kind { STARTED, PREFILLED, ENDED };

struct request {
    struct trace_request trace;
    uint64_t ids[BLOCKS_MAX];
    uint32_t tokens[(BLOCKS_MAX + 1) * BLOCK];
    struct sim_record record;
    struct action simulated, done;
    uint64_t attempt_id;
    uint64_t key_seed;
    bool had[ENDED + 1]; /* events that the daemon was told */
    uint32_t n_told;     /* tokens of the decode, likewise */
};

struct rig {
    struct cost_model cost;
    struct cluster cluster;
    struct request requests[REQUESTS];
    size_t n_given;
    struct event_base *base;
    struct models *models;
    struct service *service;
    struct worker_link links[LINKS];
    struct wire_buf out;
    /* DECODEs to be answered. */
    struct worker_link *announced_at[REQUESTS];
    uint64_t announced[REQUESTS];
    size_t n_announced;
};

/* Conversations share the begin of their prompts, but not under plan: what is
 * loaded while a request waits the simulator alone could say. No prompt ends
 * with a whole block, and its last token says whose it is. */
static void make_requests(struct rig *r, const struct script *script)
{
    bool plans = strcmp(script->policy, "plan") == 0;
    struct random_state state;
    int64_t at_us = 0;

    random_init(&state, script->seed);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct request *q = &r->requests[i];
        uint64_t session = random_below(&state, 6);
        uint32_t shared = random_below(&state, 12) * !plans;
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
        q->done = q->simulated = (struct action){-1, -1, -1, ""};
        at_us += 1 + (int64_t)random_below(&state, 2 * script->mean_gap_us);
    }
}

/* The simulator's side. */

static int next_request(void *arg, struct trace_request *request)
{
    struct rig *r = arg;

    if (r->n_given == REQUESTS)
        return 0;
    return trace_request_copy(request, &r->requests[r->n_given++].trace) == 0
               ? 1
               : -1;
}

static void take_record(void *arg, const struct sim_record *record)
{
    struct rig *r = arg;
    struct request *q = &r->requests[record->index];

    q->record = *record;
    if (record->prefill_node == SIM_NO_NODE) {
        snprintf(q->simulated.reason, sizeof(q->simulated.reason), "%s",
                 record->reason);
        return;
    }
    q->simulated.prefill = (int)record->prefill_node;
    if (record->decode_node != SIM_NO_NODE)
        q->simulated.decode = (int)record->decode_node;
    q->simulated.at_us =
        record->first_token_us - record->prefill_us - record->queue_us;
}

static void simulate(struct rig *r, const struct script *script)
{
    struct sim_config config = {.cluster = &r->cluster,
                                .policy = script->policy,
                                .speed = 1.0,
                                .slo_ttft_us = script->slo_ttft_us,
                                .seed = 1};
    struct sim_io io = {.next = next_request, .record = take_record, .arg = r};
    struct sim_summary summary;
    char err[SIM_ERROR_BYTES] = "";

    r->cluster = (struct cluster){
        .name = "shells",
        .layers = 4,
        .block_tokens = BLOCK,
        .kv_bytes_per_token = KV_BYTES,
        .cost = r->cost,
        .prefill_nodes = PREFILLS,
        .decode_nodes = DECODES,
        .max_waiting = script->max_waiting,
        .pipeline_stages = 1,
        .prefix_cache = true,
        .decode_kv_tokens = 100000 * BLOCK,
        .decode_max_batch = script->max_batch,
        .link_bytes_per_s = 1e6, /* computing is always faster than loading */
        .links_shared = false,   /* so that all times are whole microseconds */
        .layerwise = true,
        .cache_at = CLUSTER_CACHE_AT_SERVICE,
        .kvcache_balancing_threshold = 1.0,
    };
    snprintf(r->cluster.order, sizeof(r->cluster.order), "%s", script->order);
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = 100000 * BLOCK;
    CU_ASSERT_EQUAL_FATAL(sim_run(&config, &io, &summary, err), 0);
}

/* The daemon's side. */

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
    memcpy(&last, m.tokens + 4 * (m.n_tokens - 1), sizeof(last));
    struct request *q = &r->requests[VOCAB - 1 - last];

    q->attempt_id = h->request_id;
    q->key_seed = m.key_seed;
    q->done.prefill = link->number;
    q->done.at_us = fake_now_us - START_US;
    CU_ASSERT_EQUAL(m.n_sources, 0);
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
        (void)event_base_loop(r->base, EVLOOP_NONBLOCK);
        while (r->n_announced > 0) {
            r->n_announced--;
            msg_empty_pack(&r->out, FRAME_DECODE_READY,
                           r->announced[r->n_announced]);
            CU_ASSERT_EQUAL(
                fake_link_deliver(r->announced_at[r->n_announced], &r->out), 0);
        }
        (void)event_base_loop(r->base, EVLOOP_NONBLOCK);
    } while (r->n_announced > 0);
}

static void join(struct rig *r, int i)
{
    bool prefills = i < PREFILLS;
    struct msg_hello hello = {
        .kind = PROTO_PEER_WORKER,
        .role = prefills ? PROTO_ROLE_PREFILL : PROTO_ROLE_DECODE,
        .capabilities = PROTO_CAP_ALL,
        .fingerprint = 7,
        .block_tokens = BLOCK,
        .window_tokens = 10000,
        .vocab = VOCAB,
        .kv_capacity_blocks = 100000,
        .kv_bytes_per_token = KV_BYTES,
        .layers = 4,
        .max_batch = (uint32_t)r->cluster.decode_max_batch,
        .peer_port = 1};
    struct msg_status status = {.kv_used_blocks = 0};

    snprintf(hello.name, sizeof(hello.name), "%c%d", prefills ? 'p' : 'd',
             prefills ? i : i - PREFILLS);
    snprintf(hello.model, sizeof(hello.model), "shells");
    r->links[i].number = i;
    CU_ASSERT_EQUAL_FATAL(fake_link_join(&r->links[i], &hello), 0);
    msg_status_pack(&r->out, 0, &status);
    CU_ASSERT_EQUAL_FATAL(fake_link_deliver(&r->links[i], &r->out), 0);
}

static void start_daemon(struct rig *r, const struct script *script)
{
    char path[] = "/tmp/test-shells-XXXXXX";
    char err[CONFIG_ERROR_MAX] = "";
    struct config config;
    int fd = mkstemp(path);

    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    CU_ASSERT_EQUAL_FATAL(
        cost_model_save_file(&r->cost, path, err, sizeof(err)), 0);
    config_defaults(&config);
    snprintf(config.model, sizeof(config.model), "shells");
    snprintf(config.policy, sizeof(config.policy), "%s", script->policy);
    /* Transfers of the simulation don't meet on links, and core knows it. */
    if (strcmp(script->policy, "plan") == 0)
        snprintf(config.policy_options, sizeof(config.policy_options),
                 "links=0");
    snprintf(config.queue_order, sizeof(config.queue_order), "%s",
             script->order);
    snprintf(config.cost_model, sizeof(config.cost_model), "%s", path);
    config.block_tokens = BLOCK;
    config.max_queue_per_instance = script->max_waiting;
    config.link_mbps = 8;
    config.slo_ttft_ms = config.slo_tbt_ms = 0;
    fake_now_us = START_US;
    fake_links_watch(on_sent, r);
    wire_buf_init(&r->out, FRAME_PAYLOAD_MAX_BYTES);
    r->base = event_base_new();
    r->models = models_new(r->base, &config, err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->models);
    r->service = models_first(r->models);
    unlink(path);
    event_del(r->service->tick); /* real time has no part in this */
    for (int i = 0; i < LINKS; i++)
        join(r, i);
    run(r);
}

static void stop_daemon(struct rig *r)
{
    models_free(r->models);
    event_base_free(r->base);
    wire_buf_fini(&r->out);
}

static void tell_prefilled(struct rig *r, struct request *q)
{
    struct worker_link *link = &r->links[q->done.prefill];
    uint64_t keys[BLOCKS_MAX];
    struct msg_blocks_stored stored = {.tier = TIER_DEVICE,
                                       .keys = (const uint8_t *)keys};
    uint32_t local = q->record.local_tokens;
    struct msg_prefill_done m = {.first_token = 1,
                                 .local_tokens = local,
                                 .computed_tokens =
                                     q->trace.input_tokens - local,
                                 .queue_us = (uint64_t)q->record.queue_us,
                                 .prefill_us = (uint64_t)q->record.prefill_us,
                                 .load_mode = PROTO_LOAD_COMPUTE};

    stored.n = (uint32_t)block_keys_compute(q->tokens, q->trace.input_tokens,
                                            BLOCK, q->key_seed, keys);
    msg_blocks_stored_pack(&r->out, 0, &stored);
    msg_prefill_done_pack(&r->out, q->attempt_id, &m);
    CU_ASSERT_EQUAL(fake_link_deliver(link, &r->out), 0);
}

/* The tokens of the decode up to a time, packed: a step takes STEP_US. */
static void pack_tokens(struct rig *r, struct request *q, int64_t at_us)
{
    uint32_t n = q->trace.output_tokens;

    while (q->n_told + 1 < n &&
           q->record.end_us - (int64_t)(n - 2 - q->n_told) * STEP_US <= at_us) {
        struct msg_token token = {q->attempt_id, ++q->n_told, 1};

        msg_tokens_pack(&r->out, &token, 1);
    }
}

/* The tokens that have come by now, but for those of answers that end. */
static void tell_tokens(struct rig *r, int64_t at_us)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        struct request *q = &r->requests[i];

        if (!q->had[PREFILLED] || q->had[ENDED] || q->record.end_us <= at_us ||
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

    pack_tokens(r, q, q->record.end_us);
    msg_done_pack(&r->out, q->attempt_id, &done);
    CU_ASSERT_EQUAL(fake_link_deliver(&r->links[at], &r->out), 0);
}

static int64_t time_of(const struct request *q, enum event_kind kind)
{
    switch (kind) {
    case STARTED:
        return q->record.first_token_us - q->record.prefill_us;
    case PREFILLED:
        return q->record.first_token_us;
    case ENDED:
        break;
    }
    return q->record.end_us;
}

/* What happens now to a request that the daemon has sent, and comes next. */
static bool tell(struct rig *r, struct request *q, int64_t at_us)
{
    struct msg_prefill_started started = {.queue_us =
                                              (uint64_t)q->record.queue_us};
    int kind = STARTED;

    while (kind <= ENDED && q->had[kind])
        kind++;
    if (kind > ENDED || q->done.at_us < 0 || q->simulated.at_us < 0 ||
        time_of(q, (enum event_kind)kind) != at_us)
        return false;
    q->had[kind] = true;
    if (kind == STARTED) {
        msg_prefill_started_pack(&r->out, q->attempt_id, &started);
        CU_ASSERT_EQUAL(fake_link_deliver(&r->links[q->done.prefill], &r->out),
                        0);
    } else if (kind == PREFILLED) {
        tell_prefilled(r, q);
    } else {
        tell_ended(r, q);
    }
    return true;
}

/* All that happens at a time, and what follows at the same time. Returns
 * whether there was anything. */
static void tell_all(struct rig *r, int64_t at_us)
{
    bool any = true;

    tell_tokens(r, at_us);
    while (any) {
        any = false;
        for (size_t i = 0; i < REQUESTS; i++)
            while (tell(r, &r->requests[i], at_us))
                any = true;
        run(r);
    }
}

static int64_t earliest_after(const struct rig *r, int64_t at_us)
{
    int64_t next_us = INT64_MAX;

    for (size_t i = 0; i < REQUESTS; i++) {
        const struct request *q = &r->requests[i];

        for (int kind = STARTED; kind <= ENDED; kind++) {
            int64_t us =
                q->simulated.at_us < 0 ? -1 : time_of(q, (enum event_kind)kind);

            if (us > at_us && us < next_us)
                next_us = us;
        }
        if (q->trace.arrival_us > at_us && q->trace.arrival_us < next_us)
            next_us = q->trace.arrival_us;
    }
    return next_us;
}

static void play(struct rig *r, const struct script *script)
{
    for (int64_t at_us = 0; at_us != INT64_MAX;
         at_us = earliest_after(r, at_us)) {
        fake_now_us = START_US + at_us;
        tell_all(r, at_us);
        for (size_t i = 0; i < REQUESTS; i++) {
            struct request *q = &r->requests[i];
            struct service_request_params params = {
                .tokens = q->tokens,
                .n_tokens = q->trace.input_tokens,
                .max_tokens = q->trace.output_tokens,
                .arrived_us = fake_now_us,
                .slo_ttft_us = script->slo_ttft_us};

            if (q->trace.arrival_us != at_us)
                continue;
            CU_ASSERT_PTR_NOT_NULL_FATAL(
                service_submit(r->service, &params, &reply_ops, q));
            run(r);
            tell_all(r, at_us);
        }
    }
}

static struct {
    size_t sent, waited, refused;
} seen;

/* The first request with which they did not do the same; its line goes out. */
static void compare(const struct rig *r, const struct script *script)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        const struct action *a = &r->requests[i].simulated;
        const struct action *b = &r->requests[i].done;

        seen.sent += a->at_us >= 0;
        seen.waited += a->at_us > r->requests[i].trace.arrival_us;
        seen.refused += a->at_us < 0;
        if (a->prefill == b->prefill && a->decode == b->decode &&
            a->at_us == b->at_us && strcmp(a->reason, b->reason) == 0)
            continue;
        printf("\n%s seed %llu, request %zu of %lld: simulated %d %d at %lld "
               "%s, served %d %d at %lld %s\n",
               script->policy, (unsigned long long)script->seed, i,
               (long long)r->requests[i].trace.arrival_us, a->prefill,
               a->decode, (long long)a->at_us, a->reason, b->prefill, b->decode,
               (long long)b->at_us, b->reason);
        CU_FAIL("the shells differ");
        return;
    }
}

static struct rig *new_rig(void)
{
    static struct rig r;

    memset(&r, 0, sizeof(r));
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

    make_requests(r, script);
    simulate(r, script);
    start_daemon(r, script);
    play(r, script);
    compare(r, script);
    stop_daemon(r);
}

static void run_scripts(int64_t slo_ttft_us, uint32_t max_waiting,
                        uint32_t max_batch, uint32_t mean_gap_us)
{
    static const char *const policies[] = {"local_cache", "least_loaded",
                                           "plan"};

    memset(&seen, 0, sizeof(seen));
    for (uint64_t n = 0; n < 12; n++)
        run_script(&(struct script){
            .policy = policies[n % 3],
            .order = n % 2 ? "fifo" : "uncached_first",
            .seed = 1 + n,
            .mean_gap_us = mean_gap_us,
            .slo_ttft_us = slo_ttft_us,
            .max_waiting = max_waiting,
            .max_batch = max_batch,
        });
    printf("%zu sent, %zu of them later, %zu refused ", seen.sent, seen.waited,
           seen.refused);
}

/* Room for all: only choices. */
static void test_choices(void)
{
    run_scripts(0, 100, 100, 6000);
    CU_ASSERT_EQUAL(seen.sent, 12 * REQUESTS);
    CU_ASSERT_EQUAL(seen.waited, 0);
}

/* Queues and batches are full: waiting requests are sent when room appears, in
 * order.
 */
static void test_waiting(void)
{
    run_scripts(0, 2, 6, 4000);
    CU_ASSERT_EQUAL(seen.sent, 12 * REQUESTS);
    CU_ASSERT(seen.waited > REQUESTS);
}

static void test_slo(void)
{
    run_scripts(40000, 100, 100, 2500);
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
        (void)event_base_loop(r->base, EVLOOP_ONCE);
    }
    CU_ASSERT_EQUAL(before, (uint64_t)LINKS * KEYS);
    for (uint32_t i = 0; i < LINKS; i++)
        wire_buf_fini(&frames[i]);
    stop_daemon(r);
}

int main(void)
{
    CU_pSuite suite;

    CU_initialize_registry();
    suite = CU_add_suite("shells", NULL, NULL);
    CU_add_test(suite, "choices", test_choices);
    CU_add_test(suite, "frames of all at once", test_frames_of_all_at_once);
    CU_add_test(suite, "empty frames", test_empty_frames);
    CU_add_test(suite, "large frames", test_large_frames);
    CU_add_test(suite, "waiting", test_waiting);
    CU_add_test(suite, "SLO", test_slo);
    CU_add_test(suite, "SLO and waiting", test_slo_and_waiting);
    CU_basic_run_tests();
    return CU_get_number_of_failures() ? 1 : 0;
}
