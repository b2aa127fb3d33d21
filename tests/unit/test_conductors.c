/* What conductors tell each other: how it is written, whose it is, and when it
 * counts no more. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "conductor/cluster/event.h"
#include "conductor/cluster/foreign.h"
#include "conductor/cluster/member.h"
#include "conductor/cluster/names.h"
#include "conductor/core/observation/lengths.h"
#include "conductor/core/schedule/schedule.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/pool_check.h"
#include "tests/unit/suite.h"

#define NOW_US 5000000
#define LEASE_US 1000

struct side {
    struct pool *pool;
    struct names *names;
    uint32_t p, d;
};

/* Another owner's batch under way. */
struct teller {
    struct side side;
    struct cluster_head head;
    struct wire_buf out;
};

static struct lengths lengths;

static uint32_t add(struct pool *pool, const char *name, unsigned role)
{
    return ADDED(pool, .name = name, .role = role, .kv_capacity_tokens = 10000,
                 .block_tokens = 16, .link_bytes_per_s = 1e9);
}

static struct side side_new(bool decode_first)
{
    struct pool_config config = pool_config_default;
    struct side s;

    config.max_instances = 4;
    s.pool = pool_new(&config);
    if (decode_first)
        s.d = add(s.pool, "d", ROLE_DECODE);
    s.p = add(s.pool, "p", ROLE_PREFILL);
    if (!decode_first)
        s.d = add(s.pool, "d", ROLE_DECODE);
    s.names = names_new(s.pool);
    return s;
}

static void side_free(struct side *s)
{
    CU_ASSERT_TRUE(pool_check(s->pool));
    names_free(s->names);
    pool_free(s->pool);
}

static struct teller teller_new(uint64_t id)
{
    struct teller t = {side_new(true), {id, 10, 0}, {0}};

    wire_buf_init(&t.out, 1 << 20);
    return t;
}

static void teller_free(struct teller *t)
{
    wire_buf_fini(&t->out);
    side_free(&t->side);
}

static void put(struct teller *t, struct cluster_event e)
{
    struct codec c = codec_writer(&t->out);

    if (t->out.len == 0)
        cluster_head_fields(&c, &t->head);
    /* Its clock is another one. */
    cluster_event_fields(
        &c, &(struct cluster_wire){.names = t->side.names, .now_us = 700}, &e);
}

static struct foreign_news tell(struct teller *t, struct foreign *f)
{
    struct foreign_news news =
        foreign_take(f, t->out.data, t->out.len, LEASE_US, NOW_US);

    t->head.number++;
    wire_buf_reset(&t->out);
    return news;
}

/* A request with prefill and decode, of the teller's pool. */
static void put_request(struct teller *t, uint64_t request)
{
    const uint64_t keys[] = {request, request + 1, request + 2};
    struct cluster_event e = {.kind = CLUSTER_PREFILL, .request = request};
    struct pool *pool = t->side.pool;

    ACCEPTS(pool, t->side.p, .request_id = request, .predicted_us = 500,
            .ready_at_us = 710, .arrived_us = 700, .deadline_us = 1600,
            .uncached_tokens = 48, .cached_tokens = 16,
            .work = {48, 500, 1, 2, 3}, .keys = keys, .n_keys = 3);
    (void)pool_book(pool, &(struct pool_booking){t->side.p, POOL_INGRESS, 900},
                    t->side.p, request, 700);
    CU_ASSERT_EQUAL(
        pool_decode_expect(pool, t->side.d,
                           &(struct pool_decode_request){request, 64, 50, 20,
                                                         800, t->side.p, 500}),
        0);
    (void)pool_book_push(pool, &(struct pool_push){t->side.p, 4096, 1200},
                         t->side.d, request);
    CU_ASSERT_EQUAL(
        pool_read_prefill(pool, t->side.p, request, 700, &e.prefill), 0);
    put(t, e);
    e.kind = CLUSTER_DECODE;
    CU_ASSERT_EQUAL(pool_read_decode(pool, t->side.d, request, &e.decode), 0);
    put(t, e);
}

static const struct pool_instance *prefill_of(struct side *s)
{
    return pool_get(s->pool, s->p);
}

static const struct pool_instance *decode_of(struct side *s)
{
    return pool_get(s->pool, s->d);
}

static void is_empty(struct side *s)
{
    CU_ASSERT_TRUE(pool_is_empty(prefill_of(s)));
    CU_ASSERT_TRUE(pool_is_empty(decode_of(s)));
    CU_ASSERT_EQUAL(decode_of(s)->decode_reserved_tokens, 0);
    CU_ASSERT_EQUAL(prefill_of(s)->load.cost_us, 0);
}

#define SIDE_TEST(test) \
    SUITE_TEST(test, struct side, me, *me = side_new(false), side_free(me))

SIDE_TEST(test_told)
{
    struct teller t = teller_new(1);
    struct foreign *f = foreign_new(me->pool, me->names, &lengths, 99);

    put_request(&t, 7);
    CU_ASSERT_FALSE(tell(&t, f).gap);
    CU_ASSERT_EQUAL(prefill_of(me)->n_waiting, 1);
    CU_ASSERT_EQUAL(prefill_of(me)->load.cost_us, 500);
    CU_ASSERT_EQUAL(prefill_of(me)->queue[0].ready_at_us, NOW_US + 10);
    CU_ASSERT_EQUAL(prefill_of(me)->queue[0].deadline_us, NOW_US + 900);
    CU_ASSERT_EQUAL(prefill_of(me)->queue[0].loading_until_us, 0);
    CU_ASSERT_EQUAL(prefill_of(me)->ingress_free_us, NOW_US + 200);
    CU_ASSERT_EQUAL(prefill_of(me)->push_out_bytes, 4096);
    CU_ASSERT_EQUAL(decode_of(me)->n_decodes, 1);
    CU_ASSERT_EQUAL(decode_of(me)->decodes[0].comes_us, NOW_US + 100);
    CU_ASSERT_EQUAL(decode_of(me)->decodes[0].prefill, me->p);
    CU_ASSERT_EQUAL(decode_of(me)->decodes[0].push_due_us, NOW_US + 500);
    CU_ASSERT_EQUAL(decode_of(me)->decode_reserved_tokens,
                    decode_of(&t.side)->decode_reserved_tokens);

    put(&t, (struct cluster_event){.kind = CLUSTER_STARTED, .request = 7});
    CU_ASSERT_TRUE(tell(&t, f).freed);
    CU_ASSERT_EQUAL(prefill_of(me)->n_running, 1);
    put(&t, (struct cluster_event){
                .kind = CLUSTER_PREFILLED, .request = 7, .value = 1000});
    CU_ASSERT_TRUE(tell(&t, f).freed);
    CU_ASSERT_EQUAL(prefill_of(me)->n_running, 0);
    CU_ASSERT_TRUE(prefill_of(me)->correction.ratio > 1.0);
    put(&t, (struct cluster_event){.kind = CLUSTER_DECODING, .request = 7});
    put(&t, (struct cluster_event){
                .kind = CLUSTER_PRODUCED, .request = 7, .value = 32});
    (void)tell(&t, f);
    CU_ASSERT_EQUAL(prefill_of(me)->push_out_bytes, 0);
    CU_ASSERT_EQUAL(decode_of(me)->decode_kv_tokens, 96);
    put(&t, (struct cluster_event){.kind = CLUSTER_ENDED, .request = 7});
    CU_ASSERT_TRUE(tell(&t, f).freed);
    is_empty(me);
    CU_ASSERT_EQUAL(foreign_counts(f).entries, 0);
    put(&t, (struct cluster_event){
                .kind = CLUSTER_LEARNT, .request = 5, .value = 9, .most = 20});
    (void)tell(&t, f);
    CU_ASSERT_EQUAL(lengths.n_entries, 1);
    foreign_free(f);
    teller_free(&t);
}

/* A prefill that runs, without an SLO: it has begun here as early. */
SIDE_TEST(test_told_running)
{
    struct teller t = teller_new(1);
    struct foreign *f = foreign_new(me->pool, me->names, &lengths, 99);
    struct cluster_event e = {.kind = CLUSTER_PREFILL, .request = 7};

    for (uint64_t r = 6; r <= 7; r++) /* the first is not told */
        ACCEPTS(t.side.pool, t.side.p, .request_id = r, .predicted_us = 500,
                .arrived_us = 400);
    CU_ASSERT_EQUAL(pool_prefill_started(t.side.pool, t.side.p, 7, 600), 0);
    CU_ASSERT_EQUAL(
        pool_read_prefill(t.side.pool, t.side.p, 7, 700, &e.prefill), 0);
    put(&t, e);
    /* A deadline beyond what is told is cut, and does not spoil the batch. */
    e.request = 8;
    e.prefill.started = false;
    e.prefill.request.deadline_us = INT64_MAX / 2;
    put(&t, e);
    CU_ASSERT_FALSE(tell(&t, f).gap);
    CU_ASSERT_EQUAL(prefill_of(me)->n_running, 1);
    CU_ASSERT_EQUAL(prefill_of(me)->running[0].started_at_us, NOW_US - 100);
    CU_ASSERT_EQUAL(prefill_of(me)->running[0].worked_us, 100);
    CU_ASSERT_EQUAL(prefill_of(me)->running[0].item.deadline_us,
                    NOW_US - 300 + 2 * (500 + 500));
    CU_ASSERT_FALSE(prefill_of(me)->running[0].item.has_slo);
    CU_ASSERT_EQUAL(prefill_of(me)->n_waiting, 1);
    foreign_free(f);
    teller_free(&t);
}

SIDE_TEST(test_own_and_bad)
{
    struct teller t = teller_new(99);
    struct foreign *f = foreign_new(me->pool, me->names, &lengths, 99);

    put_request(&t, 7);
    (void)tell(&t, f); /* its own */
    is_empty(me);
    t.head = (struct cluster_head){1, 10, 0};
    put_request(&t, 8);
    t.out.len -= 3; /* cut: what was whole counts, and all is asked for */
    CU_ASSERT_TRUE(tell(&t, f).gap);
    CU_ASSERT_EQUAL(foreign_counts(f).bad, 1);
    CU_ASSERT_EQUAL(prefill_of(me)->n_waiting, 1);
    CU_ASSERT_EQUAL(decode_of(me)->n_decodes, 0);
    CU_ASSERT_FALSE(foreign_take(f, "", 0, LEASE_US, NOW_US).gap);
    CU_ASSERT_FALSE(foreign_take(f, "\2", 1, LEASE_US, NOW_US).gap);
    CU_ASSERT_EQUAL(foreign_counts(f).bad, 3);
    foreign_free(f);
    teller_free(&t);
}

/* Who dies takes what it had along, and nothing of others. */
SIDE_TEST(test_leases)
{
    struct teller a = teller_new(1), b = teller_new(2);
    struct foreign *f = foreign_new(me->pool, me->names, &lengths, 99);

    put_request(&a, 7);
    put_request(&a, 8);
    put_request(&b, 9);
    (void)tell(&a, f);
    (void)tell(&b, f);
    CU_ASSERT_EQUAL(decode_of(me)->n_decodes, 3);
    /* What one tells of another's request changes nothing. */
    put(&b, (struct cluster_event){.kind = CLUSTER_ENDED, .request = 7});
    CU_ASSERT_FALSE(tell(&b, f).freed);
    CU_ASSERT_EQUAL(decode_of(me)->n_decodes, 3);
    foreign_lives(f, 2, NOW_US + 5 * LEASE_US);
    CU_ASSERT_FALSE(foreign_expire(f, NOW_US + LEASE_US - 1));
    CU_ASSERT_TRUE(foreign_expire(f, NOW_US + LEASE_US));
    CU_ASSERT_EQUAL(decode_of(me)->n_decodes, 1);
    CU_ASSERT_EQUAL(decode_of(me)->decodes[0].request_id, 9);
    CU_ASSERT_EQUAL(foreign_counts(f).owners, 1);
    /* It goes on as if nothing had happened: all must be asked for. */
    put(&a, (struct cluster_event){.kind = CLUSTER_ENDED, .request = 7});
    CU_ASSERT_TRUE(tell(&a, f).gap);
    CU_ASSERT_TRUE(foreign_expire(f, NOW_US + 9 * LEASE_US));
    is_empty(me);
    foreign_free(f);
    teller_free(&a);
    teller_free(&b);
}

SIDE_TEST(test_gaps_and_tokens)
{
    struct teller t = teller_new(1);
    struct foreign *f = foreign_new(me->pool, me->names, &lengths, 99);

    put_request(&t, 7);
    (void)tell(&t, f);
    t.head.number++; /* one is missed */
    put_request(&t, 8);
    CU_ASSERT_TRUE(tell(&t, f).gap);
    CU_ASSERT_EQUAL(decode_of(me)->n_decodes, 1);
    put(&t, (struct cluster_event){.kind = CLUSTER_RESET});
    put_request(&t, 9);
    CU_ASSERT_FALSE(tell(&t, f).gap);
    CU_ASSERT_EQUAL(decode_of(me)->n_decodes, 1);
    CU_ASSERT_EQUAL(decode_of(me)->decodes[0].request_id, 9);
    /* A new lease voids the old one, whose late batches are fenced off. */
    t.head.token = 11;
    put(&t, (struct cluster_event){.kind = CLUSTER_RESET});
    (void)tell(&t, f);
    is_empty(me);
    t.head.token = 10;
    put_request(&t, 10);
    struct foreign_news news = tell(&t, f);
    CU_ASSERT_FALSE(news.gap);
    CU_ASSERT_TRUE(news.fenced);
    CU_ASSERT_EQUAL(news.owner, 1);
    is_empty(me);
    CU_ASSERT_EQUAL(foreign_counts(f).fenced, 1);
    t.head = (struct cluster_head){1, 11, 5};
    put(&t, (struct cluster_event){.kind = CLUSTER_ASK});
    CU_ASSERT_TRUE(tell(&t, f).asks);
    foreign_free(f);
    teller_free(&t);
}

/* An instance that is not here, or no more, is no harm. */
SIDE_TEST(test_unknown_instance)
{
    struct teller t = teller_new(1);
    struct foreign *f = foreign_new(me->pool, me->names, &lengths, 99);

    put_request(&t, 7);
    CU_ASSERT_EQUAL(pool_remove(me->pool, me->p, NOW_US), 0);
    (void)tell(&t, f);
    CU_ASSERT_EQUAL(foreign_counts(f).unbooked, 1);
    CU_ASSERT_EQUAL(decode_of(me)->n_decodes, 1);
    CU_ASSERT_EQUAL(decode_of(me)->decodes[0].prefill, POOL_NO_INSTANCE);
    CU_ASSERT_EQUAL(pool_remove(me->pool, me->d, NOW_US), 0);
    CU_ASSERT_TRUE(foreign_expire(f, NOW_US + LEASE_US));
    foreign_free(f);
    teller_free(&t);
}

/* What prices the requests of a side. */
struct pricer {
    struct cost_model cost;
    struct prefix_index *index;
    struct scheduler *scheduler;
};

static void pricer_init(struct pricer *x, struct side *s)
{
    const struct schedule_policy *plan = schedule_policy_by_name("plan");
    double options[POLICY_OPTIONS_MAX];

    policy_options_init(plan, options);
    CU_ASSERT_EQUAL(policy_options_set(plan, options, "price", 1), 0);
    x->cost = (struct cost_model){.prefill = {0, 1000},
                                  .range = {1, 10000, 10000, 64, 1000000}};
    x->index = core_index(4, 1 << 15);
    x->scheduler = scheduler_new(
        &(struct schedule_config){.policy = plan, .options = options},
        &(struct estimate_model){.cost = &x->cost,
                                 .block_tokens = 16,
                                 .kv_bytes_per_token = 1000,
                                 .layers = 4,
                                 .step_tokens = 512},
        s->pool, x->index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x->scheduler);
    CU_ASSERT_EQUAL(pool_set_health(s->pool, s->p, HEALTH_READY), 0);
}

static void pricer_fini(struct pricer *x)
{
    scheduler_free(x->scheduler);
    prefix_index_free(x->index);
}

/* A prompt of 4,096 tokens comes, and takes 4 s. */
static struct schedule_decision price(struct pricer *x, uint64_t first_key,
                                      int64_t now_us,
                                      struct schedule_request *request)
{
    static uint64_t keys[256];
    struct schedule_decision d;

    for (uint64_t i = 0; i < 256; i++)
        keys[i] = first_key * 1000 + i;
    *request = (struct schedule_request){.request_id = 1,
                                         .keys = keys,
                                         .n_keys = 256,
                                         .n_tokens = 4096,
                                         .max_output_tokens = 1,
                                         .slo_ttft_us = 8000000,
                                         .price_times = 1.0,
                                         .session = POOL_NO_INSTANCE,
                                         .only = POOL_NO_INSTANCE,
                                         .now_us = now_us};
    schedule_decide(x->scheduler, request, &d);
    schedule_price(x->scheduler, request, &d);
    return d;
}

/* Requests of others count for prices as one's own, and so for what is
 * refused. */
SIDE_TEST(test_asked)
{
    struct teller t = teller_new(1);
    struct foreign *f = foreign_new(me->pool, me->names, &lengths, 99);
    struct pricer theirs, mine;
    struct schedule_request request;
    struct schedule_decision there, here;

    pricer_init(&theirs, &t.side);
    pricer_init(&mine, me);
    foreign_prices(f, mine.scheduler);
    for (uint64_t i = 0; i < 60; i++) {
        struct cluster_event e = {.kind = CLUSTER_ASKED, .request = i};

        there = price(&theirs, 1 + i % 7, NOW_US, &request);
        CU_ASSERT_TRUE(
            schedule_asked(theirs.scheduler, &request, &there, &e.asked));
        put(&t, e);
        (void)tell(&t, f);
    }
    CU_ASSERT_EQUAL(foreign_counts(f).bad, 0);
    there = price(&theirs, 1, NOW_US + 1000000, &request);
    here = price(&mine, 1, NOW_US + 1000000, &request);
    CU_ASSERT(here.price_limit_us > 0.0);
    CU_ASSERT_EQUAL(here.price_us, there.price_us);
    CU_ASSERT_EQUAL(here.price_limit_us, there.price_limit_us);
    CU_ASSERT_EQUAL(here.verdict, there.verdict);
    foreign_free(f);
    pricer_fini(&theirs);
    pricer_fini(&mine);
    teller_free(&t);
}

static void read_member(const char *text, int rc)
{
    struct member m = {.id = 42}, back;
    char id[MEMBER_ID_BYTES + 1], written[MEMBER_TEXT_MAX];
    char again[2 * MEMBER_TEXT_MAX];

    member_id(0xabcdef, id);
    CU_ASSERT_STRING_EQUAL(id, "0000000000abcdef");
    CU_ASSERT_EQUAL(member_read(id, 16, text, strlen(text), &m), rc);
    if (rc) {
        CU_ASSERT_EQUAL(m.id, 42);
        return;
    }
    CU_ASSERT_EQUAL(m.id, 0xabcdef);
    member_write(&m, written);
    snprintf(again, sizeof(again), "%llu %s", (unsigned long long)m.token,
             written);
    CU_ASSERT_STRING_EQUAL(again, text);
    CU_ASSERT_EQUAL(member_read(id, 16, again, strlen(again), &back), 0);
    CU_ASSERT_EQUAL(memcmp(&m, &back, sizeof(m)), 0);
}

static void test_members(void)
{
    struct member m;

    read_member("17 abc a.example:8081", 0);
    read_member("18446744073709551615 0 [::1]:1", 0);
    read_member("1 2 -", 0);
    read_member("", -EINVAL);
    read_member("1", -EINVAL);
    read_member("1 2", -EINVAL);
    read_member("x 2 a:1", -EINVAL);
    read_member("1 g a:1", -EINVAL);
    read_member("1 2 a", -EINVAL);
    read_member("1 2 a:99999", -EINVAL);
    read_member("99999999999999999999 2 a:1", -EINVAL);
    CU_ASSERT_EQUAL(member_read("0000000000000000", 16, "1 2 -", 5, &m),
                    -EINVAL);
    CU_ASSERT_EQUAL(member_read("1", 1, "1 2 -", 5, &m), -EINVAL);
}

static const struct suite_test tests[] = {
    {"told", test_told},
    {"told while it runs", test_told_running},
    {"one's own, and bad ones", test_own_and_bad},
    {"leases", test_leases},
    {"gaps and tokens", test_gaps_and_tokens},
    {"unknown instance", test_unknown_instance},
    {"asked", test_asked},
    {"members", test_members},
};
SUITE("conductors", tests)
