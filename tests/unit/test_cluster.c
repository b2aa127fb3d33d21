/* A conductor's registry, stream and lead, with a Redis and a clock that this
 * test plays: commands wait here until they are answered. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop/loop.h"
#include "conductor/cluster/internal.h"
#include "conductor/core/observation/lengths.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"

#define LEASE_US 3000000
#define COMMANDS_MAX 512
#define OTHER "00000000000000ab" /* another conductor */
#define OTHER_ID 0xab
#define LEAD "9" /* the token of another one that leads */

struct command {
    struct redis_done done;
    int argc;
    char *words[16]; /* the first ones */
    size_t lens[16];
};

/* In place of base/redis. */
struct redis {
    struct redis_watch watch;
    struct redis_options options;
    struct command flight[COMMANDS_MAX];
    unsigned n;
    size_t bytes;
    bool up;
};

static int64_t now_us = 1000000;
static struct redis connections[2]; /* for commands, and the reader */
static unsigned n_connections;

int64_t clock_now_us(void)
{
    return now_us;
}

int64_t clock_wall_us(void)
{
    return now_us;
}

struct redis *redis_new(struct loop *, struct dns *, const struct redis_url *,
                        const struct redis_options *options,
                        struct redis_watch watch)
{
    struct redis *r = &connections[n_connections++];

    *r = (struct redis){.watch = watch, .options = *options};
    return r;
}

bool redis_is_up(const struct redis *r)
{
    return r->up;
}

int redis_command(struct redis *r, struct redis_done done, int argc,
                  const char *const argv[], const size_t lens[])
{
    struct command *c = &r->flight[r->n];
    size_t bytes = 0;

    if (strcmp(argv[0], "SCRIPT") == 0) /* of limits, which nobody has here */
        return 0;
    CU_ASSERT_TRUE_FATAL(r->n < COMMANDS_MAX);
    for (int i = 0; i < argc; i++)
        bytes += lens ? lens[i] : strlen(argv[i]);
    if (!r->up || r->bytes + bytes > r->options.max_bytes)
        return r->up ? -ENOBUFS : -ENOTCONN;
    *c = (struct command){.done = done, .argc = argc};
    for (int i = 0; i < argc && i < 16; i++) {
        c->lens[i] = lens ? lens[i] : strlen(argv[i]);
        c->words[i] = calloc(1, c->lens[i] + 1);
        memcpy(c->words[i], argv[i], c->lens[i]);
    }
    r->n++;
    r->bytes += bytes;
    return 0;
}

struct redis_counts redis_counts(const struct redis *)
{
    return (struct redis_counts){0};
}

const char *redis_why(const struct redis *)
{
    return "";
}

int redis_local_host(const struct redis *, char *host, size_t bytes)
{
    snprintf(host, bytes, "127.0.0.1");
    return 0;
}

static void forget(struct command *c)
{
    for (int i = 0; i < 16; i++)
        free(c->words[i]);
}

void redis_free(struct redis *r)
{
    for (unsigned i = 0; i < r->n; i++)
        forget(&r->flight[i]);
    r->n = 0;
}

/* --- answers ------------------------------------------------------------ */

static const redisReply nothing = {.type = REDIS_REPLY_NIL};
static const redisReply refusal = {.type = REDIS_REPLY_ERROR,
                                   .str = "OOM command not allowed"};

static redisReply text(const char *words)
{
    return (redisReply){.type = REDIS_REPLY_STRING,
                        .str = (char *)(uintptr_t)words,
                        .len = strlen(words)};
}

static redisReply array(redisReply **elements, size_t n)
{
    return (redisReply){
        .type = REDIS_REPLY_ARRAY, .element = elements, .elements = n};
}

/* The oldest command. */
static struct command *first_of(struct redis *r)
{
    CU_ASSERT_TRUE_FATAL(r->n > 0);
    return &r->flight[0];
}

static void answer(struct redis *r, const redisReply *reply)
{
    struct command c = *first_of(r);

    memmove(r->flight, r->flight + 1, --r->n * sizeof(c));
    r->bytes = 0;
    c.done.fn(c.done.arg, reply);
    forget(&c);
}

static redisReply number(long long n)
{
    return (redisReply){.type = REDIS_REPLY_INTEGER, .integer = n};
}

/* To a renewal: `id`'s token, and that of its lead or "", where another one
 * leads with LEAD; and OTHER, which has a lease for so many ms. */
static void answer_leases(const char *id, const char *token, const char *lead,
                          long long left_ms)
{
    redisReply parts[] = {
        text(token),           number(0),   text(*lead ? lead : LEAD),
        number(*lead != '\0'), text(id),    text("5 0 -"),
        number(3000),          text(OTHER), text("6 0 -"),
        number(left_ms)};
    redisReply *all[10];
    redisReply reply = array(all, left_ms ? 10 : 7);

    for (int i = 0; i < 10; i++)
        all[i] = &parts[i];
    CU_ASSERT_STRING_EQUAL(first_of(&connections[0])->words[0], "EVAL");
    answer(&connections[0], &reply);
}

static void answer_lease(const char *id, const char *token, const char *lead)
{
    answer_leases(id, token, lead, 0);
}

static void turn_up(struct redis *r)
{
    r->up = true;
    r->watch.fn(r->watch.arg, true);
}

static void turn_down(struct redis *r)
{
    r->up = false;
    while (r->n > 0)
        answer(r, NULL);
    r->watch.fn(r->watch.arg, false);
}

/* --- a conductor -------------------------------------------------------- */

struct rig {
    struct loop *loop;
    struct cluster *cluster;
    struct pool *pool;
    struct cluster_pool *joined;
    struct redis *redis, *reader;
    uint32_t prefill;
    unsigned n_requests; /* that are here */
};

static struct lengths lengths;

static void on_freed(void *)
{
}

static void
each(void *arg, void (*visit)(void *, const struct cluster_request *), void *to)
{
    const struct rig *r = arg;

    for (unsigned i = 0; i < r->n_requests; i++)
        visit(to, &(struct cluster_request){i + 1, r->prefill, POOL_NO_INSTANCE,
                                            NULL});
}

static struct joint_key *no_limit(void *, size_t)
{
    return NULL;
}

static unsigned n_led; /* times that it was told to lead */

static void on_leads(void *, bool leads)
{
    n_led += leads;
}

static const struct cluster_ops ops = {.limit = no_limit, .leads = on_leads};
static const struct cluster_pool_ops pool_ops = {on_freed, each};

static struct rig rig_new(void)
{
    struct pool_config config = pool_config_default;
    struct rig r = {.loop = loop_new()};

    n_connections = 0;
    config.max_instances = 2;
    config.max_waiting = 600;
    config.max_pending_blocks = 1u << 21;
    r.pool = pool_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.pool);
    r.prefill = ADDED(r.pool, .name = "p", .role = ROLE_PREFILL,
                      .kv_capacity_tokens = 10000, .block_tokens = 16,
                      .link_bytes_per_s = 1e9);
    r.cluster = cluster_new(
        r.loop, NULL,
        &(struct cluster_options){.lease_us = LEASE_US, .model = ""}, &ops,
        NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.cluster);
    r.redis = &connections[0];
    r.reader = &connections[1];
    return r;
}

static void join(struct rig *r)
{
    r->joined = cluster_join(r->cluster, "m", r->pool, &lengths, &pool_ops, r);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->joined);
}

static void rig_free(struct rig *r)
{
    cluster_leave(r->joined);
    cluster_free(r->cluster);
    pool_free(r->pool);
    loop_free(r->loop);
}

static void give(struct rig *r, uint64_t request, const uint64_t *keys,
                 size_t n)
{
    ACCEPTS(r->pool, r->prefill, .request_id = request, .predicted_us = 500,
            .ready_at_us = now_us, .arrived_us = now_us,
            .deadline_us = now_us + 900, .uncached_tokens = 48, .keys = keys,
            .n_keys = n);
}

/* --- registry ----------------------------------------------------------- */

#define RIG_TEST(test) \
    SUITE_TEST(test, struct rig, r, *r = rig_new(), rig_free(r))

/* Another one may have it once Redis says that it is over, and Redis renewed it
 * no later than its answer was sent. */
RIG_TEST(test_lead_runs_from_the_question)
{
    turn_up(r->redis);
    now_us += LEASE_US - 1;
    answer_lease(r->cluster->id, "5", "7");
    CU_ASSERT_TRUE(cluster_leads(r->cluster));
    CU_ASSERT_EQUAL(cluster_lead_token(r->cluster), 7);
    now_us += 1;
    registry_tick(r->cluster, now_us);
    CU_ASSERT_FALSE(cluster_leads(r->cluster));
    /* An answer that a stopped process reads late leads nobody. */
    registry_renew(r->cluster);
    now_us += LEASE_US;
    answer_lease(r->cluster->id, "5", "7");
    CU_ASSERT_FALSE(cluster_leads(r->cluster));
}

/* The words of the renewal under way behind its keys: id, text, lease, the
 * token of this one, the highest of a leader. */
static const char *renewal_word(const struct rig *r, int i)
{
    const struct command *c = first_of(r->redis);

    CU_ASSERT_STRING_EQUAL_FATAL(c->words[0], "EVAL");
    return c->words[3 + atoi(c->words[2]) + i];
}

/* Redis is told what tokens were heard, as the one that gave them may be gone.
 */
RIG_TEST(test_tells_its_tokens)
{
    turn_up(r->redis);
    CU_ASSERT_STRING_EQUAL(renewal_word(r, 3), "0");
    CU_ASSERT_STRING_EQUAL(renewal_word(r, 4), "0");
    answer_lease(r->cluster->id, "5", "");
    registry_renew(r->cluster);
    CU_ASSERT_STRING_EQUAL(renewal_word(r, 3), "5");
    CU_ASSERT_STRING_EQUAL(renewal_word(r, 4), LEAD);
    answer_lease(r->cluster->id, "5", "12");
    CU_ASSERT_EQUAL(cluster_lead_token(r->cluster), 12);
    registry_renew(r->cluster);
    answer_lease(r->cluster->id, "5", "");
    registry_renew(r->cluster);
    CU_ASSERT_STRING_EQUAL(renewal_word(r, 4), "12");
}

/* A leader that gets another token tells it on, and is one leader. */
RIG_TEST(test_lead_with_another_token)
{
    turn_up(r->redis);
    n_led = 0;
    for (int i = 0; i < 2; i++) {
        answer_lease(r->cluster->id, "5", i == 0 ? "7" : "12");
        registry_renew(r->cluster);
    }
    CU_ASSERT_EQUAL(cluster_lead_token(r->cluster), 12);
    CU_ASSERT_EQUAL(n_led, 2);
    CU_ASSERT_EQUAL(cluster_counts(r->cluster).led, 1);
}

/* --- telling ------------------------------------------------------------ */

static struct cluster_head head_of(const struct command *c)
{
    struct codec in = codec_reader(c->words[7], c->lens[7]);
    struct cluster_head head = {0};

    CU_ASSERT_STRING_EQUAL(c->words[0], "XADD");
    cluster_head_fields(&in, &head);
    CU_ASSERT_FALSE(in.failed);
    return head;
}

/* The kind of its first event. */
static int kind_of(const struct command *c)
{
    struct codec in = codec_reader(c->words[7], c->lens[7]);
    struct cluster_head head = {0};
    uint8_t kind = 0;

    cluster_head_fields(&in, &head);
    codec_u8(&in, &kind);
    return kind;
}

/* Of its first event. */
static uint64_t request_of(const struct command *c)
{
    struct codec in = codec_reader(c->words[7], c->lens[7]);
    struct cluster_head head = {0};
    uint8_t kind = 0;
    uint64_t request = 0;

    cluster_head_fields(&in, &head);
    codec_u8(&in, &kind);
    codec_u64(&in, &request);
    return request;
}

/* Whether a question for all is on its way. */
static bool asks(const struct rig *r)
{
    for (unsigned i = 0; i < r->redis->n; i++)
        if (kind_of(&r->redis->flight[i]) == CLUSTER_ASK)
            return true;
    return false;
}

/* With a lease, as OTHER has one, and all told and asked for. */
static void begin(struct rig *r)
{
    join(r);
    turn_up(r->redis);
    answer_leases(r->cluster->id, "5", "", 3000);
    CU_ASSERT_EQUAL_FATAL(r->redis->n, 2);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[0]), CLUSTER_RESET);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[1]), CLUSTER_ASK);
}

static void answer_all(struct rig *r)
{
    while (r->redis->n > 0)
        answer(r->redis, &nothing);
}

/* A renewal, in a third of a lease. */
static void renew(struct rig *r, const char *lead, long long left_ms)
{
    now_us += LEASE_US / 3;
    registry_tick(r->cluster, now_us);
    answer_all(r);
    registry_renew(r->cluster);
    answer_leases(r->cluster->id, "5", lead, left_ms);
}

/* A batch of another conductor with an event. */
static struct foreign_news hear(struct rig *r, struct cluster_head head,
                                enum cluster_kind kind, uint64_t request)
{
    struct cluster_event e = {.kind = kind, .request = request};
    struct foreign_news news;
    struct wire_buf batch;
    struct codec c;

    wire_buf_init(&batch, CLUSTER_BATCH_MAX);
    c = codec_writer(&batch);
    cluster_head_fields(&c, &head);
    cluster_event_fields(&c, &(struct cluster_wire){.now_us = now_us}, &e);
    news = foreign_take(r->joined->foreign, batch.data, batch.len, LEASE_US,
                        now_us);
    wire_buf_fini(&batch);
    return news;
}

/* All that it has, in the first batch of a lease. */
static struct foreign_news hear_all(struct rig *r, uint64_t owner,
                                    uint64_t token)
{
    return hear(r, (struct cluster_head){.owner = owner, .token = token},
                CLUSTER_RESET, 0);
}

/* What another one has here stays as long as its lease, which Redis tells, and
 * no longer, however often that is asked. */
RIG_TEST(test_bookings_leave_with_the_lease)
{
    begin(r);
    (void)hear_all(r, OTHER_ID, 6);
    for (int left_ms = 2000; left_ms > 0; left_ms -= 1000) {
        now_us += 1000000;
        registry_tick(r->cluster, now_us);
        CU_ASSERT_EQUAL(cluster_counts(r->cluster).foreign.owners, 1);
        while (r->redis->n > 0)
            answer(r->redis, &nothing);
        registry_renew(r->cluster);
        answer_leases(r->cluster->id, "5", "", left_ms);
        CU_ASSERT_EQUAL(cluster_counts(r->cluster).members, 2);
    }
    now_us += 1000000;
    registry_tick(r->cluster, now_us);
    CU_ASSERT_EQUAL(cluster_counts(r->cluster).foreign.owners, 0);
}

/* More conductors than have a place: that is counted. */
RIG_TEST(test_no_place)
{
    begin(r);
    for (uint64_t id = 1; id <= FOREIGN_OWNERS_MAX + 1; id++)
        (void)hear_all(r, id, 6);
    CU_ASSERT_EQUAL(cluster_counts(r->cluster).foreign.owners,
                    FOREIGN_OWNERS_MAX);
    CU_ASSERT_EQUAL(cluster_counts(r->cluster).foreign.unbooked, 1);
}

/* A lease that is refused is seen, until one is given. */
RIG_TEST(test_no_lease)
{
    begin(r);
    turn_up(r->reader);
    CU_ASSERT_TRUE(cluster_counts(r->cluster).up);
    while (r->redis->n > 0)
        answer(r->redis, &nothing);
    registry_renew(r->cluster);
    answer(r->redis, &refusal);
    CU_ASSERT_FALSE(cluster_counts(r->cluster).up);
    registry_renew(r->cluster);
    answer_lease(r->cluster->id, "5", "");
    CU_ASSERT_TRUE(cluster_counts(r->cluster).up);
}

/* Who is asked for all within the time in which it is told once at most goes on
 * telling what happens. */
RIG_TEST(test_asked_again)
{
    begin(r);
    answer(r->redis, &nothing);
    answer(r->redis, &nothing);
    r->joined->asked = true;
    tell_due(r->joined, now_us);
    CU_ASSERT_EQUAL(r->redis->n, 0);
    now_us += 1000;
    give(r, 1, NULL, 0);
    cluster_decided(r->joined, &(struct cluster_request){
                                   1, r->prefill, POOL_NO_INSTANCE, NULL});
    CU_ASSERT_EQUAL_FATAL(r->redis->n, 1);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[0]), CLUSTER_PREFILL);
    now_us += 200000;
    tell_due(r->joined, now_us);
    CU_ASSERT_EQUAL_FATAL(r->redis->n, 2);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[1]), CLUSTER_RESET);
    CU_ASSERT_FALSE(r->joined->asked);
}

/* The question for all is asked again. */
RIG_TEST(test_refused_question)
{
    begin(r);
    answer(r->redis, &nothing);
    answer(r->redis, &refusal);
    now_us += 1000000;
    tell_due(r->joined, now_us);
    CU_ASSERT_EQUAL_FATAL(r->redis->n, 2);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[0]), CLUSTER_RESET);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[1]), CLUSTER_ASK);
}

/* A batch that waits goes before that of all, and leaves no gap. */
RIG_TEST(test_numbers_without_a_gap)
{
    begin(r);
    (void)hear_all(r, OTHER_ID, 6);
    uint64_t last = head_of(&r->redis->flight[1]).number;
    answer(r->redis, &nothing);
    answer(r->redis, &nothing);
    cluster_ended(r->joined, 1); /* waits to be sent */
    r->joined->all_due = true;
    now_us += 1000000;
    tell_due(r->joined, now_us);
    CU_ASSERT_EQUAL_FATAL(r->redis->n, 2);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[0]), CLUSTER_ENDED);
    CU_ASSERT_EQUAL(head_of(&r->redis->flight[0]).number, last + 1);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[1]), CLUSTER_RESET);
    CU_ASSERT_EQUAL(head_of(&r->redis->flight[1]).number, last + 2);
}

/* More keys of prompts than fit on their way to Redis at once. */
RIG_TEST(test_all_of_many)
{
    uint64_t keys[CLUSTER_KEYS_MAX];

    join(r);
    for (r->n_requests = 0; r->n_requests < 560; r->n_requests++) {
        for (size_t i = 0; i < CLUSTER_KEYS_MAX; i++)
            keys[i] = 1 + i + r->n_requests * CLUSTER_KEYS_MAX;
        give(r, r->n_requests + 1, keys, CLUSTER_KEYS_MAX);
    }
    turn_up(r->redis);
    answer_lease(r->cluster->id, "5", "");
    CU_ASSERT_EQUAL(r->cluster->counts.untold, 0);
    CU_ASSERT_FALSE(r->joined->all_due);
    CU_ASSERT_TRUE(r->redis->n > 8);
}

/* A decision is told at once; what happens within a millisecond behind it is
 * one more batch. */
RIG_TEST(test_decisions_at_once)
{
    begin(r);
    answer(r->redis, &nothing);
    answer(r->redis, &nothing);
    give(r, 1, NULL, 0);
    give(r, 2, NULL, 0);
    now_us += 1000;
    cluster_decided(r->joined, &(struct cluster_request){
                                   1, r->prefill, POOL_NO_INSTANCE, NULL});
    CU_ASSERT_EQUAL(r->redis->n, 1);
    now_us += 999;
    cluster_decided(r->joined, &(struct cluster_request){
                                   2, r->prefill, POOL_NO_INSTANCE, NULL});
    CU_ASSERT_EQUAL(r->redis->n, 1);
    CU_ASSERT_TRUE(loop_timer_pending(&r->cluster->flush));
}

/* Each renewal asks who has a lease and has not told all, until that came: a
 * question may be lost, and so may its answer. */
RIG_TEST(test_asks_until_told)
{
    begin(r); /* asks, as nothing was ever heard of OTHER */
    for (int i = 0; i < 3; i++) {
        renew(r, "", 3000);
        CU_ASSERT_EQUAL_FATAL(r->redis->n, 1);
        CU_ASSERT_EQUAL(kind_of(&r->redis->flight[0]), CLUSTER_ASK);
        CU_ASSERT_EQUAL(request_of(&r->redis->flight[0]), OTHER_ID);
    }
    (void)hear_all(r, OTHER_ID, 6);
    renew(r, "", 3000);
    CU_ASSERT_FALSE(asks(r));
    /* A gap, and the question about it is lost. */
    CU_ASSERT_TRUE(
        hear(r, (struct cluster_head){OTHER_ID, 6, 2}, CLUSTER_ENDED, 1).gap);
    CU_ASSERT_EQUAL(cluster_counts(r->cluster).foreign.missing, 1);
    for (int i = 0; i < 3; i++) {
        renew(r, "", 3000);
        CU_ASSERT_TRUE(asks(r));
    }
    (void)hear(r, (struct cluster_head){OTHER_ID, 6, 3}, CLUSTER_RESET, 0);
    CU_ASSERT_EQUAL(cluster_counts(r->cluster).foreign.missing, 0);
    renew(r, "", 3000);
    CU_ASSERT_FALSE(asks(r));
}

/* Its lease ended here, as it was not heard of, and not in Redis: it is asked,
 * though it says nothing. */
RIG_TEST(test_asks_who_is_no_owner)
{
    begin(r);
    (void)hear_all(r, OTHER_ID, 6);
    now_us += LEASE_US;
    registry_tick(r->cluster, now_us);
    CU_ASSERT_EQUAL(cluster_counts(r->cluster).foreign.owners, 0);
    renew(r, "", 1000);
    CU_ASSERT_TRUE(asks(r));
    /* Nobody asks who has no lease. */
    renew(r, "", 0);
    CU_ASSERT_FALSE(asks(r));
}

/* An instance came: what others told of it is asked for until it came. */
RIG_TEST(test_asks_for_an_instance)
{
    begin(r);
    (void)hear_all(r, OTHER_ID, 6);
    renew(r, "", 3000);
    answer_all(r);
    cluster_joined(r->joined);
    CU_ASSERT_TRUE(asks(r));
    renew(r, "", 3000);
    CU_ASSERT_TRUE(asks(r));
    (void)hear(r, (struct cluster_head){OTHER_ID, 6, 1}, CLUSTER_RESET, 0);
    renew(r, "", 3000);
    CU_ASSERT_FALSE(asks(r));
}

/* Only who is asked answers. */
RIG_TEST(test_who_is_asked)
{
    const struct {
        uint64_t whom;
        bool answers;
    } asked[] = {{0, true}, {r->cluster->self.id, true}, {77, false}};

    begin(r);
    for (uint64_t i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(hear(r, (struct cluster_head){OTHER_ID, 6, i},
                             CLUSTER_ASK, asked[i].whom)
                            .asks,
                        asked[i].answers);
}

/* Who has nothing to tell tells that, once in each renewal: whoever missed the
 * last batch sees the gap. */
RIG_TEST(test_beat)
{
    begin(r);
    (void)hear_all(r, OTHER_ID, 6);
    uint64_t last = head_of(&r->redis->flight[1]).number;
    for (int i = 0; i < 2; i++) {
        renew(r, "", 3000);
        CU_ASSERT_EQUAL_FATAL(r->redis->n, 1);
        CU_ASSERT_EQUAL(head_of(&r->redis->flight[0]).number, ++last);
        CU_ASSERT_EQUAL(kind_of(&r->redis->flight[0]), 0); /* no event */
    }
    cluster_ended(r->joined, 1);
    tell_flush(r->joined);
    renew(r, "", 3000);
    CU_ASSERT_EQUAL(r->redis->n, 0);
}

/* What came to be priced is told. */
RIG_TEST(test_asked_is_told)
{
    begin(r);
    answer_all(r);
    cluster_asked(r->joined,
                  &(struct schedule_asked){.work = {.n_tokens = 48}});
    tell_flush(r->joined);
    CU_ASSERT_EQUAL_FATAL(r->redis->n, 1);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[0]), CLUSTER_ASKED);
}

/* --- hearing ------------------------------------------------------------ */

/* Own batches that Redis took are not heard: the stream began anew, and ends
 * before the place up to which it was read. */
RIG_TEST(test_place_beyond_the_end)
{
    redisReply none = array(NULL, 0);

    begin(r);
    turn_up(r->reader);
    answer(r->reader, &none);
    CU_ASSERT_STRING_EQUAL(r->joined->place, "0-0");
    renew(r, "", 3000);
    tell_echo(r->joined, r->joined->number - 1, now_us);
    renew(r, "", 3000);
    renew(r, "", 3000);
    CU_ASSERT_STRING_EQUAL(r->joined->place, "0-0");
    renew(r, "", 3000);
    CU_ASSERT_STRING_EQUAL(r->joined->place, "");
}

/* Another server's streams may end before the place in those of the last. */
RIG_TEST(test_reads_anew)
{
    redisReply id = text("900-0"), none = array(NULL, 0);
    redisReply *entry[] = {&id, &none};
    redisReply last = array(entry, 2);
    redisReply *entries[] = {&last};
    redisReply reply = array(entries, 1);

    begin(r);
    turn_up(r->reader);
    CU_ASSERT_STRING_EQUAL(first_of(r->reader)->words[0], "XREVRANGE");
    answer(r->reader, &reply);
    CU_ASSERT_STRING_EQUAL(first_of(r->reader)->words[0], "XREAD");
    CU_ASSERT_STRING_EQUAL(first_of(r->reader)->words[7], "900-0");
    turn_down(r->reader);
    turn_up(r->reader);
    CU_ASSERT_STRING_EQUAL(first_of(r->reader)->words[0], "XREVRANGE");
    while (r->redis->n > 0)
        answer(r->redis, &nothing);
    now_us += 1000000;
    answer(r->reader, &none);
    CU_ASSERT_STRING_EQUAL(first_of(r->reader)->words[7], "0-0");
    CU_ASSERT_EQUAL_FATAL(r->redis->n, 2);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[0]), CLUSTER_RESET);
    CU_ASSERT_EQUAL(kind_of(&r->redis->flight[1]), CLUSTER_ASK);
}

/* Every stream is kept and read, however many models there are. */
static void test_many_pools(void)
{
    enum { MANY = 70 };
    struct rig r = rig_new();
    redisReply none = array(NULL, 0);
    struct cluster_pool *pools[MANY];

    for (int i = 0; i < MANY; i++) {
        char model[16];

        snprintf(model, sizeof(model), "m%d", i);
        pools[i] =
            cluster_join(r.cluster, model, r.pool, &lengths, &pool_ops, &r);
        CU_ASSERT_PTR_NOT_NULL_FATAL(pools[i]);
    }
    turn_up(r.redis);
    CU_ASSERT_STRING_EQUAL(first_of(r.redis)->words[2], "74");
    CU_ASSERT_EQUAL(first_of(r.redis)->argc, 3 + 4 + MANY + 5);
    turn_up(r.reader);
    for (int i = 0; i < MANY; i++)
        answer(r.reader, &none);
    CU_ASSERT_STRING_EQUAL(first_of(r.reader)->words[0], "XREAD");
    CU_ASSERT_EQUAL(first_of(r.reader)->argc, 6 + 2 * MANY);
    for (int i = 0; i < MANY; i++)
        cluster_leave(pools[i]);
    rig_free(&r);
}

/* A pool that joins or leaves while the end of a stream is asked for does not
 * get the place in that stream. */
RIG_TEST(test_place_of_another)
{
    redisReply id = text("900-0"), none = array(NULL, 0);
    redisReply *entry[] = {&id, &none};
    redisReply last = array(entry, 2);
    redisReply *entries[] = {&last};
    redisReply reply = array(entries, 1);
    struct cluster_pool *other;

    begin(r);
    turn_up(r->reader);
    other = cluster_join(r->cluster, "n", r->pool, &lengths, &pool_ops, r);
    answer(r->reader, &reply);
    CU_ASSERT_STRING_EQUAL(r->joined->place, "900-0");
    CU_ASSERT_STRING_EQUAL(other->place, "");
    CU_ASSERT_STRING_EQUAL(first_of(r->reader)->words[1], other->key);
    cluster_leave(other);
    other = cluster_join(r->cluster, "o", r->pool, &lengths, &pool_ops, r);
    answer(r->reader, &reply);
    CU_ASSERT_STRING_EQUAL(other->place, "");
    answer(r->reader, &none);
    CU_ASSERT_STRING_EQUAL(other->place, "0-0");
    cluster_leave(other);
}

/* Another one has a new lease: what it has is in its first batch, or must be
 * asked for. */
RIG_TEST(test_new_lease_of_another)
{
    begin(r);
    for (uint64_t token = 6; token < 8; token++)
        CU_ASSERT_FALSE(hear_all(r, OTHER_ID, token).gap);
    CU_ASSERT_TRUE(
        hear(r, (struct cluster_head){OTHER_ID, 8, 1}, CLUSTER_ENDED, 1).gap);
}

/* How late others hear is known by hearing of it oneself. */
RIG_TEST(test_echo)
{
    redisReply none = array(NULL, 0);

    begin(r);
    turn_up(r->reader);
    answer(r->reader, &none);
    struct command *told = &r->redis->flight[0];
    redisReply id = text("1-0"), e = text("e"), key = text(r->joined->key);
    redisReply batch = text(told->words[7]);
    batch.len = told->lens[7];
    redisReply *fields[] = {&e, &batch};
    redisReply pairs = array(fields, 2);
    redisReply *entry[] = {&id, &pairs};
    redisReply one = array(entry, 2);
    redisReply *entries[] = {&one};
    redisReply list = array(entries, 1);
    redisReply *stream[] = {&key, &list};
    redisReply its = array(stream, 2);
    redisReply *streams[] = {&its};
    redisReply reply = array(streams, 1);
    now_us += 4500;
    answer(r->reader, &reply);
    CU_ASSERT_EQUAL(r->cluster->counts.echoes, 1);
    CU_ASSERT_EQUAL(r->cluster->counts.echo_us, 4500);
    answer(r->reader, &reply); /* once for each */
    CU_ASSERT_EQUAL(r->cluster->counts.echoes, 1);
}

static const struct suite_test tests[] = {
    {"a lead runs from the question", test_lead_runs_from_the_question},
    {"tells its tokens", test_tells_its_tokens},
    {"a lead with another token", test_lead_with_another_token},
    {"asks until told", test_asks_until_told},
    {"asks who is no owner", test_asks_who_is_no_owner},
    {"asks for an instance", test_asks_for_an_instance},
    {"who is asked", test_who_is_asked},
    {"beat", test_beat},
    {"what is asked is told", test_asked_is_told},
    {"a place beyond the end", test_place_beyond_the_end},
    {"bookings leave with the lease", test_bookings_leave_with_the_lease},
    {"no place", test_no_place},
    {"no lease", test_no_lease},
    {"asked again", test_asked_again},
    {"a refused question", test_refused_question},
    {"numbers without a gap", test_numbers_without_a_gap},
    {"all of many", test_all_of_many},
    {"decisions at once", test_decisions_at_once},
    {"reads anew", test_reads_anew},
    {"many pools", test_many_pools},
    {"the place of another stream", test_place_of_another},
    {"a new lease of another one", test_new_lease_of_another},
    {"echo", test_echo},
};
SUITE("cluster", tests)
