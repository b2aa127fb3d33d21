/*
 * Cases of the transport rdma over real verbs, in the virtual machine. Each
 * moves random batches while cables are cut, slowed down or made lossy, and
 * compares every byte. What was moved is given away at once: the place is
 * painted, and must still have its paint when it is used again.
 *
 * usage: rails CASE RAILS [SEED [BATCHES]]
 *
 * Prints one line of what it measured; the status is 0 if all was right.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/rdma/dead.h"
#include "tests/rdma/rig.h"

static struct rig rig;
static uint32_t n_rails, n_batches = 40;

/* --- random batches --- */

struct stream {
    struct {
        uint32_t state; /* of the random bytes that it moves */
        bool used;      /* its places are painted or moved */
    } places[RIG_OPS];
    uint32_t n_started, n_good;
    uint64_t bytes;
};

static struct stream stream;

static uint8_t *target(const struct rig_op *op, uint32_t i)
{
    return op->slices[i].local;
}

static uint8_t *source(const struct rig_op *op, uint32_t i)
{
    return rig.theirs + op->slices[i].offset;
}

/* Slices from the front of one side and from the end of the other. */
static void draw(uint32_t place, uint32_t most_bytes)
{
    struct rig_op *op = &rig.ops[place];
    uint64_t begin = (uint64_t)place * RIG_PLACE_BYTES;
    uint64_t front = begin, end = begin + RIG_PLACE_BYTES;

    op->n = 1 + rig_random() % 16;
    for (uint32_t i = 0; i < op->n; i++) {
        uint64_t bytes = 1 + rig_random() % most_bytes;

        end -= bytes;
        op->slices[i] = (struct transport_slice){
            .local = rig.mine + front, .offset = end, .bytes = bytes};
        front += bytes;
        for (uint64_t k = 0; k < bytes; k += 4)
            memcpy(source(op, i) + k, &(uint32_t){rig_random()},
                   bytes - k < 4 ? bytes - k : 4);
    }
}

static void begin_batch(uint32_t place)
{
    uint8_t *mine = rig.mine + (uint64_t)place * RIG_PLACE_BYTES;
    uint8_t *theirs = rig.theirs + (uint64_t)place * RIG_PLACE_BYTES;

    if (stream.places[place].used) {
        rig_check_paint(mine, RIG_PLACE_BYTES, "given away here");
        rig_check_paint(theirs, RIG_PLACE_BYTES, "given away there");
    }
    memset(mine, RIG_PAINT, RIG_PLACE_BYTES);
    memset(theirs, RIG_PAINT, RIG_PLACE_BYTES);
    draw(place, 32768);
    stream.places[place].used = true;
    stream.n_started++;
    int rc = rig_start(&rig, place);
    if (rc != 0)
        rig_fail("an op cannot begin: %d", rc);
}

static void end_batch(uint32_t place)
{
    struct rig_op *op = &rig.ops[place];

    if (op->rc != 0)
        rig_fail("an op ended with %d", op->rc);
    for (uint32_t i = 0; i < op->n; i++)
        if (memcmp(source(op, i), target(op, i), op->slices[i].bytes) != 0)
            rig_fail("a read moved other bytes");
    stream.n_good++;
    stream.bytes += op->bytes;
    op->n = 0;
    memset(rig.mine + (uint64_t)place * RIG_PLACE_BYTES, RIG_PAINT,
           RIG_PLACE_BYTES);
    memset(rig.theirs + (uint64_t)place * RIG_PLACE_BYTES, RIG_PAINT,
           RIG_PLACE_BYTES);
}

/* Ends what is over, and begins others while `more`. */
static void pass(bool more)
{
    for (uint32_t i = 0; i < RIG_OPS; i++) {
        if (!rig.ops[i].busy && rig.ops[i].n > 0)
            end_batch(i);
        if (!rig.ops[i].busy && more)
            begin_batch(i);
    }
    rig_turn(&rig, 20000);
}

/* Moves at least n batches for at least so long; behind these n with pauses. */
static void move(uint32_t n, int64_t us)
{
    int64_t end_us = clock_now_us() + us, late_us = end_us + 60000000;

    for (n += stream.n_good; stream.n_good < n || clock_now_us() < end_us;) {
        pass(true);
        if (stream.n_good >= n)
            rig_sleep(&rig, 60000);
        if (clock_now_us() > late_us)
            rig_fail("%u batches in 60 s", stream.n_good);
    }
}

static void finish(void)
{
    while (rig.n_busy > 0)
        pass(false);
    pass(false);
    if (stream.n_good != stream.n_started)
        rig_fail("%u of %u batches", stream.n_good, stream.n_started);
    printf("%u batches, %.1f MB, all right", stream.n_good,
           (double)stream.bytes / 1e6);
}

/* --- cases --- */

static void begin(void)
{
    rig_begin(&rig, &(struct rig_config){.rails = n_rails});
}

static void case_batches(void)
{
    begin();
    move(n_batches, 0);
    finish();
    rig_end(&rig);
}

/* Waits until a rail was paired once more, while batches are moved. */
static int64_t move_until_used(uint32_t before)
{
    int64_t from_us = clock_now_us();

    while (rig_log_count("uses rail") <= before) {
        move(1, 30000);
        if (clock_now_us() > from_us + 30000000)
            rig_fail("the rail is not used again");
    }
    return clock_now_us() - from_us;
}

/* Something happens to the last rail, and is undone. */
static void trouble(const char *harm, const char *heal)
{
    uint32_t rail = n_rails - 1;

    begin();
    move(n_batches / 3 + 1, 0);
    uint32_t left = rig_log_count("leaves rail");
    rig_shell(harm, rail);
    move(n_batches / 3 + 1, 1500000);
    if (rig_log_count("leaves rail") == left)
        rig_fail("the rail was not left");
    uint32_t used = rig_log_count("uses rail");
    rig_shell(heal, rail);
    int64_t back_us = move_until_used(used);
    move(n_batches / 3 + 1, 0);
    finish();
    printf("; back after %.1f s", (double)back_us / 1e6);
    rig_end(&rig);
}

static void case_own_down(void)
{
    trouble("ip link set a%u down", "ip link set a%u up");
}

static void case_peer_down(void)
{
    trouble("ip link set b%u down", "ip link set b%u up");
}

static void case_loss(void)
{
    trouble("tc qdisc add dev a%u root netem loss 100%%",
            "tc qdisc del dev a%u root");
}

/* Anything, at any time; at least one rail stays. */
static void case_random(void)
{
    static const struct {
        const char *harm, *heal;
    } kinds[] = {
        {"ip link set a%u down", "ip link set a%u up"},
        {"ip link set b%u down", "ip link set b%u up"},
        {"tc qdisc add dev a%u root netem loss 100%%",
         "tc qdisc del dev a%u root"},
        {"tc qdisc add dev b%u root netem loss 100%%",
         "tc qdisc del dev b%u root"},
        {"tc qdisc add dev a%u root netem loss 3%%",
         "tc qdisc del dev a%u root"},
        {"tc qdisc add dev b%u root netem rate 50mbit limit 9000",
         "tc qdisc del dev b%u root"},
    };
    uint32_t harmed = 0, n = 0, kind = 0, rail = 0;

    begin();
    while (stream.n_good < n_batches) {
        move(1 + rig_random() % 40, rig_random() % 800000);
        if (harmed) {
            rig_shell(kinds[kind].heal, rail);
            harmed = 0;
            continue;
        }
        kind = rig_random() % (sizeof(kinds) / sizeof(kinds[0]));
        rail = rig_random() % n_rails;
        rig_shell(kinds[kind].harm, rail);
        harmed = 1;
        n++;
    }
    if (harmed)
        rig_shell(kinds[kind].heal, rail);
    finish();
    printf("; %u troubles", n);
    rig_end(&rig);
}

/* Bytes a second of ops of 512 KiB over the first so many rails. */
static double rate(uint32_t rails, uint64_t bytes)
{
    int64_t from_us = 0;
    uint64_t moved = 0;

    rig_begin(&rig, &(struct rig_config){.rails = rails});
    for (int round = 0; round < 2; round++) {
        uint64_t want = round == 0 ? rails * (1u << 20) : bytes;

        from_us = clock_now_us();
        for (moved = 0; moved < want || rig.n_busy > 0;) {
            for (uint32_t i = 0; i < 4; i++) {
                if (rig.ops[i].busy || moved >= want)
                    continue;
                uint64_t at = (uint64_t)i * RIG_PLACE_BYTES;
                rig.ops[i].n = 1;
                rig.ops[i].slices[0] = (struct transport_slice){
                    .local = rig.mine + at, .offset = at, .bytes = 512 << 10};
                if (rig_start(&rig, i) != 0)
                    rig_fail("an op cannot begin");
                moved += 512 << 10;
            }
            rig_turn(&rig, 20000);
        }
    }
    double rate = (double)moved * 1e6 / (double)(clock_now_us() - from_us);
    rig_end(&rig);
    return rate;
}

static void limit(uint32_t rail, uint32_t mbit)
{
    char form[200];

    snprintf(form, sizeof(form),
             "for i in a b; do tc qdisc replace dev ${i}%%u root "
             "netem rate %umbit limit 100000; done",
             mbit);
    rig_shell(form, rail);
}

/* Each rail has 100 Mbit/s: two are at least 1.8 times one. */
static void case_throughput(void)
{
    for (uint32_t i = 0; i < n_rails; i++)
        limit(i, 100);
    double one = rate(1, 6 << 20), two = rate(2, 12 << 20);

    printf("one %.2f MB/s, two %.2f (%.2f times)", one / 1e6, two / 1e6,
           two / one);
    if (two < 1.8 * one)
        rig_fail(": less than 1.8 times");
    if (n_rails < 4)
        return;
    double four = rate(4, 24 << 20);
    printf(", four %.2f (%.2f times)", four / 1e6, four / one);
    if (four < 3.2 * one)
        rig_fail(": less than 3.2 times");
}

/* One rail of 100 and one of 50 Mbit/s: both are filled. */
static void case_unequal(void)
{
    limit(0, 100);
    limit(1, 50);
    double one = rate(1, 6 << 20), both = rate(2, 24 << 20);
    printf("100 Mbit/s alone %.2f MB/s, with one of 50 %.2f (%.2f times)",
           one / 1e6, both / 1e6, both / one);
    if (both < 1.35 * one)
        rig_fail(": less than 1.35 times");
}

/* Ops that are cancelled, and a grant that is revoked, while rails fail: what
 * was given back is not touched any more. */
static void case_quarantine(void)
{
    uint32_t n_cancelled = 0;

    rig_begin(&rig, &(struct rig_config){.rails = n_rails});
    for (uint32_t i = 0; i < n_rails; i++)
        limit(i, 200);
    for (uint32_t round = 0; round < 12; round++) {
        for (uint32_t i = 0; i < RIG_OPS; i++)
            draw(i, 65536);
        for (uint32_t i = 0; i < RIG_OPS; i++)
            if (rig_start(&rig, i) != 0)
                rig_fail("an op cannot begin");
        rig_sleep(&rig, 1000 + rig_random() % 20000);
        if (round == 6)
            rig_shell("tc qdisc replace dev a%u root netem loss 100%%",
                      n_rails - 1);
        for (uint32_t i = 0; i < RIG_OPS; i++)
            rig.path->ops->cancel(
                rig.path, rig.n_ended / RIG_OPS * RIG_OPS * RIG_OPS + i);
        if (!rig_drain(&rig, 10000000))
            rig_fail("%u cancelled ops never end", rig.n_busy);
        for (uint32_t i = 0; i < RIG_OPS; i++)
            n_cancelled += rig.ops[i].rc == -ECANCELED;
        memset(rig.mine, RIG_PAINT, RIG_SLAB_BYTES);
        memset(rig.theirs, RIG_PAINT, RIG_SLAB_BYTES);
        rig_sleep(&rig, 100000);
        rig_check_paint(rig.mine, RIG_SLAB_BYTES, "cancelled here");
        rig_check_paint(rig.theirs, RIG_SLAB_BYTES, "cancelled there");
    }
    for (uint32_t i = 0; i < RIG_OPS; i++) {
        draw(i, 65536);
        if (rig_start(&rig, i) != 0)
            rig_fail("an op cannot begin");
    }
    rig_sleep(&rig, 5000);
    rig.holder->ops->revoke(rig.offer, RIG_GRANT);
    rig_wait(&rig, &rig.n_revoked, 10000000);
    if (rig.n_revoked != 1)
        rig_fail("the grant is not revoked");
    if (!rig_drain(&rig, 10000000))
        rig_fail("revoked ops never end");
    rig.ops[0].n = 1;
    if (rig_start(&rig, 0) != -EACCES)
        rig_fail("an op under a revoked grant begins");
    printf("%u of %u cancelled in time, %s", n_cancelled, 12 * RIG_OPS,
           "nothing given back was touched");
    rig_end(&rig);
}

/* No rail is left: ops end, and a new path works when the cables do. */
static void case_all_down(void)
{
    rig_begin(&rig,
              &(struct rig_config){.rails = n_rails, .stall_us = 2000000});
    move(8, 0);
    finish();
    for (uint32_t i = 0; i < n_rails; i++)
        rig_shell("ip link set b%u down", i);
    draw(0, 65536);
    if (rig_start(&rig, 0) != 0)
        rig_fail("an op cannot begin");
    int64_t from_us = clock_now_us();
    rig_wait(&rig, &rig.closed, 10000000);
    if (rig.closed != -ETIMEDOUT || rig.ops[0].rc != -ETIMEDOUT)
        rig_fail("closed %d, op %d", rig.closed, rig.ops[0].rc);
    printf("; without a rail given up after %.1f s",
           (double)(clock_now_us() - from_us) / 1e6);
    rig.asker->ops->close(rig.path);
    for (uint32_t i = 0; i < n_rails; i++)
        rig_shell("ip link set b%u up", i);
    rig_sleep(&rig, 1000000);
    rig.ops[0].n = 0;
    rig_open(&rig);
    memset(rig.mine, RIG_PAINT, RIG_SLAB_BYTES);
    memset(rig.theirs, RIG_PAINT, RIG_SLAB_BYTES);
    move(8, 0);
    printf("; then again ");
    finish();
    rig_end(&rig);
}

/* Fewer end points than rails: whoever finds none in use takes it. */
static void case_few_end_points(void)
{
    rig_begin(&rig, &(struct rig_config){.rails = n_rails, .end_points = 1});
    for (int i = 0; i < 8; i++) {
        move(4, 0);
        while (rig.n_busy > 0)
            pass(false);
        rig_sleep(&rig, 120000);
    }
    finish();
    uint32_t n = rig_log_count("uses rail");
    printf("; one end point, paired %u times", n);
    if (n < 3)
        rig_fail(": too few");
    rig_end(&rig);
}

/* Memory of a card. rxe can register none, whatever is a dmabuf here; that is
 * said, nothing of it stays behind, and what is registered goes on. */
static void case_card_memory(void)
{
    struct shared_card card = {.address = 1 << 30,
                               .bytes = 1 << 20,
                               .dmabuf = memfd_create("no dmabuf", 0)};

    begin();
    if (card.dmabuf < 0 || ftruncate(card.dmabuf, 1 << 20) != 0)
        rig_fail("no file");
    for (int i = 0; i < 20; i++) {
        int rc = rig.holder->ops->reg_card(rig.holder, &card);

        if (rc >= 0 || rc == -ENOSPC)
            rig_fail("registered as %d", rc);
    }
    close(card.dmabuf);
    card.dmabuf = -1;
    int rc = rig.holder->ops->reg_card(rig.holder, &card);
    if (rc != -ENOTSUP)
        rig_fail("without a dmabuf %d", rc);
    move(4, 0);
    finish();
    rig_end(&rig);
}

static void case_dead_peer(void)
{
    dead_peer(n_rails);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"batches", case_batches},     {"own-down", case_own_down},
    {"peer-down", case_peer_down}, {"loss", case_loss},
    {"random", case_random},       {"throughput", case_throughput},
    {"unequal", case_unequal},     {"quarantine", case_quarantine},
    {"all-down", case_all_down},   {"few-end-points", case_few_end_points},
    {"dead-peer", case_dead_peer}, {"card-memory", case_card_memory},
};

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: rails CASE RAILS [SEED [BATCHES]]\n");
        return 2;
    }
    n_rails = (uint32_t)strtoul(argv[2], NULL, 10);
    rig_seed(argc > 3 ? strtoull(argv[3], NULL, 10) : 1);
    if (argc > 4)
        n_batches = (uint32_t)strtoul(argv[4], NULL, 10);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            printf("\n");
            if (getenv("RIG_LOG"))
                rig_show_log();
            return 0;
        }
    fprintf(stderr, "rails: no case '%s'\n", argv[1]);
    return 2;
}
