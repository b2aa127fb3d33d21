/*
 * Whichever allocation fails, a module does its work, or says that it is out of
 * memory and leaves none behind. malloc(), calloc(), realloc(), mmap() and
 * free() of the code under test come here (`scarce_wraps` in meson.build);
 * libraries keep the true ones.
 */
#include <CUnit/Basic.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "conductor/config/config.h"
#include "conductor/core/index/predicted.h"
#include "conductor/core/index/prefix_index.h"
#include "conductor/json/text_buf.h"
#include "conductor/link/events/map/block_map.h"
#include "conductor/service/engine_request/token_cache.h"
#include "conductor/service/history/history.h"
#include "proto/message.h"
#include "sim/sim.h"
#include "tests/unit/prefix_check.h"
#include "traces/generate.h"

static long n_left = -1; /* allocations before one fails; negative = none */
static long n_live;      /* allocated and not freed */

static bool fails(void)
{
    return n_left >= 0 && n_left-- == 0;
}

static void *count(void *memory)
{
    n_live += memory ? 1 : 0;
    return memory;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
void __real_free(void *memory);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : count(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : count(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t n)
{
    if (fails())
        return NULL;
    return old ? __real_realloc(old, n) : count(__real_realloc(old, n));
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    return fails() ? MAP_FAILED : __real_mmap(at, n, prot, flags, fd, from);
}

void __wrap_free(void *memory)
{
    n_live -= memory ? 1 : 0;
    __real_free(memory);
}

/* Runs once() with each allocation failing in turn, until none fails. It
 * returns whether it did its work. */
static void each(bool (*once)(void))
{
    long at = 0;

    for (bool all = false; !all; at++) {
        long live = n_live;

        n_left = at;
        bool did = once();
        all = n_left >= 0;
        n_left = -1;
        CU_ASSERT(did || !all);
        CU_ASSERT_EQUAL_FATAL(n_live, live);
    }
    CU_ASSERT(at > 1);
    printf("%ld allocations ", at - 1);
}

static void gone(void *, uint64_t)
{
}

static bool index_once(void)
{
    const struct prefix_index_config config = {
        .max_instances = 4, .max_bytes = 1 << 18, .grows = true, .seed = 3};
    struct prefix_index *index = prefix_index_new(&config);
    struct predicted *p = predicted_new(8, 5);
    struct prefix_match match;
    uint64_t keys[64];
    size_t had;
    bool did = index && p && prefix_match_init(&match, 4) == 0;

    for (uint64_t k = 0; k < 64; k++)
        keys[k] = 1000 + k;
    if (did) {
        did = prefix_index_stored(index, 1, TIER_HOST, 0, keys, 64) == 0;
        prefix_index_match(index, keys, 64, &match);
        CU_ASSERT(!did || match.blocks[1] == 64);
        CU_ASSERT(prefix_index_check(index) || n_left < 0);
        predicted_use(p, keys, 20, &had, gone, NULL);
        did = predicted_resize(p, 4, gone, NULL) == 0 && did;
        prefix_match_fini(&match);
    }
    predicted_free(p);
    prefix_index_free(index);
    return did;
}

static void test_index(void)
{
    each(index_once);
}

static void stored(void *, enum block_tier, uint64_t, const uint64_t *, size_t)
{
}

static void removed(void *, enum block_tier, const uint64_t *, size_t)
{
}

/* An engine with blocks of 4 tokens in an index with blocks of 8. */
static bool events_once(void)
{
    static const struct kv_map_sink sink = {.stored = stored,
                                            .removed = removed};
    struct kv_map *map =
        kv_map_new(&(struct kv_map_config){.model = "m",
                                           .block_tokens = 8,
                                           .engine_tokens = 4,
                                           .max_blocks = 1000,
                                           .max_waiting_bytes = 4000,
                                           .seed = 7},
                   &sink, NULL);
    uint64_t hashes[16];
    uint32_t tokens[64] = {0};
    struct kv_event events[3] = {
        {.kind = KV_STORED, .groups = 1, .n_hashes = 8, .n_tokens = 32},
        /* Its parent is not known. */
        {.kind = KV_STORED,
         .groups = 1,
         .has_parent = true,
         .parent = 99,
         .n_hashes = 8,
         .n_tokens = 32},
        {.kind = KV_REMOVED, .groups = 1, .n_hashes = 4}};
    const struct kv_batch batch = {.events = events, .n_events = 3};

    if (!map)
        return false;
    for (uint32_t i = 0; i < 16; i++)
        hashes[i] = 100 + i;
    for (size_t i = 0; i < 3; i++) {
        events[i].hashes = i == 1 ? hashes + 8 : hashes;
        events[i].tokens = tokens;
        events[i].block_size = 4;
    }
    kv_map_begin(map, 0, &batch);
    while (kv_map_work(map, 1000))
        ;
    CU_ASSERT(kv_map_check(map));
    kv_map_free(map);
    return true;
}

static void test_events(void)
{
    each(events_once);
}

static bool message_once(void)
{
    const struct msg_error m = {.code = PROTO_E_BUSY, .text = "busy"};
    struct text_buf text;
    struct wire_buf buf;

    wire_buf_init(&buf, 4096);
    text_buf_init(&text, 4096);
    for (int i = 0; i < 10; i++) {
        msg_error_pack(&buf, 0, &m);
        text_buf_json_str(&text,
                          "a \"quoted\" text that is longer than a word");
    }
    bool did = !buf.failed && !text.error;
    wire_buf_fini(&buf);
    text_buf_fini(&text);
    return did;
}

static void test_messages(void)
{
    each(message_once);
}

/* What is kept of requests may be less, and what is kept is right. */
static bool kept_once(void)
{
    struct token_cache *cache = token_cache_new(1 << 16);
    struct history *history = history_new();
    const uint32_t tokens[20] = {7, 8, 9};
    bool did = cache && history;
    size_t n = 0;

    if (did) {
        token_cache_add(cache, "a text", 6, tokens, 20);
        const uint32_t *found = token_cache_find(cache, "a text", 6, &n);
        CU_ASSERT(!found || (n == 20 && found[2] == 9));
        history_prompt(history, 100, 50, 40, 1000000);
    }
    history_free(history);
    token_cache_free(cache);
    return did;
}

static void test_kept(void)
{
    each(kept_once);
}

static bool config_once(void)
{
    static const char given[] =
        "{\"worker_listen\": \"127.0.0.1:1\", \"cost_model\": \"c\", "
        "\"engines\": [{\"name\": \"a\", \"url\": \"http://h:1\", "
        "\"model\": \"m\", \"aliases\": [\"n\", \"o\"]}], "
        "\"stores\": [{\"name\": \"s\", \"model\": \"m\", "
        "\"kv_events\": \"tcp://h:2\", \"tokens_per_s\": 3}], "
        "\"worker_costs\": [{\"workers\": \"w*\", \"cost_model\": \"d\"}]}";
    char err[CONFIG_ERROR_MAX];
    struct config c;

    config_defaults(&c);
    if (config_parse(&c, given, strlen(given), err)) {
        CU_ASSERT_PTR_NOT_NULL(strstr(err, "memory"));
        return false;
    }
    config_fini(&c);
    return true;
}

static void test_config(void)
{
    each(config_once);
}

static int n_asked;

static int next_request(void *arg, struct trace_request *request)
{
    return n_asked++ == 40                      ? 0
           : trace_generator_next(arg, request) ? -ENOMEM
                                                : 1;
}

static void take_record(void *, const struct sim_record *)
{
}

static const struct {
    const char *file;
    uint32_t conductors;
    struct policy_setting settings[2];
} worlds[] = {
    {"paper-16-disk", 1, {{"replicate", 0.5}, {"switch_roles", 1}}},
    {"paper-16-coupled", 2, {{"preempt", 1}, {"lend", 3}}},
    {"reference-16", 1, {{"shares", 1}, {"price", 1}}},
};
static size_t world;

/* Pool, index, scheduler, plans, transfers and decodes of a whole cluster. */
static bool sim_once(void)
{
    static struct cluster cluster;
    static struct sim_summary summary;
    char path[1024], err[CLUSTER_ERROR_BYTES + SIM_ERROR_BYTES] = "";
    struct trace_generator *generator = NULL;
    const char *folder = getenv("CONDUCTOR_CLUSTERS");
    bool did = false;

    n_asked = 0;
    snprintf(path, sizeof(path), "%s/%s.json", folder ? folder : ".",
             worlds[world].file);
    if (cluster_load_file(path, &cluster, err))
        return false;
    for (unsigned t = 0; t < BLOCK_TIERS; t++) /* small: all are used */
        if (cluster.tiers[t].capacity_tokens > 0 && cluster.coupled_nodes == 0)
            cluster.tiers[t].capacity_tokens = 20000;
    const struct sim_config config = {.cluster = &cluster,
                                      .policy = "plan",
                                      .speed = 4,
                                      .seed = 1,
                                      .conductors = worlds[world].conductors,
                                      .settings = worlds[world].settings,
                                      .n_settings = 2};
    if (trace_generator_new("conversation", 1, 12, &generator) == 0) {
        int rc = sim_run(&config,
                         &(struct sim_io){.next = next_request,
                                          .record = take_record,
                                          .arg = generator},
                         &summary, err);

        did = rc == 0;
        CU_ASSERT(did || rc == -ENOMEM);
    }
    trace_generator_free(generator);
    return did;
}

static void test_sim(void)
{
    for (world = 0; world < sizeof(worlds) / sizeof(worlds[0]); world++)
        each(sim_once);
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite s = CU_add_suite("scarce", NULL, NULL);
    CU_add_test(s, "index", test_index);
    CU_add_test(s, "KV events", test_events);
    CU_add_test(s, "messages", test_messages);
    CU_add_test(s, "what is kept of requests", test_kept);
    CU_add_test(s, "configuration", test_config);
    CU_add_test(s, "simulation", test_sim);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed > 0;
}
