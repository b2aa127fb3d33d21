/* Who is closed when a port has no place left for one more stranger. */
#include <stdio.h>

#include "base/strangers.h"
#include "tests/unit/suite.h"

/* Stands in for a connection's: the connection is its address as text. */
int frame_conn_peer_host(const struct frame_conn *c, char *out, size_t cap)
{
    snprintf(out, cap, "%s", (const char *)c);
    return 0;
}

struct rig {
    struct strangers strangers;
    struct stranger all[HANDSHAKE_STRANGERS_MAX];
    struct handshake silent, challenged;
};

static struct stranger *add(struct rig *r, const char *address)
{
    struct stranger *x = &r->all[r->strangers.n];

    *x = (struct stranger){.handshake = &r->silent};
    strangers_add(&r->strangers, x, (const struct frame_conn *)address);
    return x;
}

/* Whether two addresses count as one. */
static bool same(const char *a, const char *b)
{
    struct rig r = {0};

    strangers_init(&r.strangers);
    return add(&r, a)->host == add(&r, b)->host;
}

static void test_addresses(void)
{
    CU_ASSERT(same("192.0.2.1", "192.0.2.1"));
    CU_ASSERT_FALSE(same("192.0.2.1", "192.0.2.2"));
    /* One host has a whole /64. */
    CU_ASSERT(same("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff"));
    CU_ASSERT_FALSE(same("2001:db8:0:1::1", "2001:db8:0:2::1"));
    CU_ASSERT(same("fe80::1%eth0", "fe80::2%eth1"));
}

/* One that changes its address within its /64 keeps nobody out. */
static void test_crowd(void)
{
    struct rig r = {0};
    struct stranger *oldest;
    char address[64];

    strangers_init(&r.strangers);
    for (unsigned i = 0; i < HANDSHAKE_STRANGERS_MAX / 2; i++) {
        snprintf(address, sizeof(address), "192.0.2.%u", i);
        add(&r, address);
    }
    oldest = add(&r, "2001:db8::1");
    while (r.strangers.n < HANDSHAKE_STRANGERS_MAX) {
        CU_ASSERT_PTR_NULL(strangers_surplus(&r.strangers));
        snprintf(address, sizeof(address), "2001:db8::%x", r.strangers.n);
        add(&r, address);
    }
    CU_ASSERT_PTR_EQUAL(strangers_surplus(&r.strangers), oldest);
}

/* The address that has the most of them gives one up, be they silent or not; of
 * these the oldest that said nothing, else the oldest. */
static void test_who_goes_first(void)
{
    enum { OTHERS = HANDSHAKE_STRANGERS_MAX / 2 - 1 };
    struct rig r = {.challenged = {.challenged = true}};
    struct stranger *crowd = &r.all[OTHERS];

    strangers_init(&r.strangers);
    for (unsigned i = 0; i < OTHERS; i++)
        add(&r, "192.0.2.1");
    while (r.strangers.n < HANDSHAKE_STRANGERS_MAX)
        add(&r, "192.0.2.2")->handshake = &r.challenged;
    CU_ASSERT_PTR_EQUAL(strangers_surplus(&r.strangers), &crowd[0]);
    crowd[2].handshake = crowd[4].handshake = &r.silent;
    CU_ASSERT_PTR_EQUAL(strangers_surplus(&r.strangers), &crowd[2]);
    strangers_remove(&r.strangers, &crowd[2]);
    CU_ASSERT_PTR_NULL(strangers_surplus(&r.strangers));
    strangers_add(&r.strangers, &crowd[2],
                  (const struct frame_conn *)"192.0.2.2"); /* the newest now */
    CU_ASSERT_PTR_EQUAL(strangers_surplus(&r.strangers), &crowd[4]);
}

/* One address has one more than another, all of them answered, while the other
 * one's are silent: it gives way by that one. */
static void test_number_before_silence(void)
{
    struct rig r = {.challenged = {.challenged = true}};

    strangers_init(&r.strangers);
    while (r.strangers.n < HANDSHAKE_STRANGERS_MAX / 2 - 1)
        add(&r, "192.0.2.1");
    while (r.strangers.n < HANDSHAKE_STRANGERS_MAX - 2)
        add(&r, "192.0.2.2")->handshake = &r.challenged;
    add(&r, "192.0.2.2")->handshake = &r.challenged;
    add(&r, "192.0.2.3");
    CU_ASSERT_PTR_EQUAL(strangers_surplus(&r.strangers),
                        &r.all[HANDSHAKE_STRANGERS_MAX / 2 - 1]);
}

static const struct suite_test tests[] = {
    {"addresses", test_addresses},
    {"a crowd of one network", test_crowd},
    {"who goes first", test_who_goes_first},
    {"number before silence", test_number_before_silence},
};
SUITE("strangers", tests)
