/* Blocks between two workers over loopback: in parts, where a block or a layer
 * of it is longer than a frame, and never into memory that was given back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "tests/unit/transfer_rig.h"
#include "workers/transfer/engine/sum.h"
#include "workers/transfer/internal.h"

#define BT 16u

static struct engine_kv_layout layout(uint32_t layers, uint32_t row_bytes)
{
    return (struct engine_kv_layout){
        .layers = layers,
        .block_tokens = BT,
        .kv_row_bytes = row_bytes,
        .block_bytes = (uint64_t)layers * 2 * BT * row_bytes,
        .vocab = 256,
        .window_tokens = 4096,
        .step_tokens = 512,
    };
}

static void until_done(struct site *s)
{
    while (!site_done(s) && loop_turn(s->loop, -1) == 0)
        ;
}

static void fetch_all(const struct engine_kv_layout *l, uint32_t n_blocks,
                      enum load_mode mode, enum site_way way)
{
    struct loop *loop = loop_new();
    struct site holder, asker;

    site_init(&holder, loop, l, n_blocks, way);
    site_init(&asker, loop, l, n_blocks + 1, way);
    site_hold(&holder, n_blocks);
    site_begin(&asker, transfer_port(holder.transfer), n_blocks, mode);
    until_done(&asker);
    CU_ASSERT_EQUAL(site_came(&asker, true), n_blocks);
    site_drop(&asker);
    site_fini(&asker);
    site_fini(&holder);
    loop_free(loop);
}

/* Blocks of 72 MiB, in layers of 24 MiB, that no part divides. */
static void test_longer_than_a_frame(void)
{
    struct engine_kv_layout l = layout(3, (3u << 18) + 4);

    CU_ASSERT(l.block_bytes > FRAME_PAYLOAD_MAX_BYTES);
    for (enum site_way way = SITE_TCP; way < SITE_WAYS; way++) {
        fetch_all(&l, 2, LOAD_MODE_LOAD, way);
        fetch_all(&l, 1, LOAD_MODE_LAYERWISE, way);
    }
}

/* One layer is longer than a frame. */
static void test_long_layer(void)
{
    struct engine_kv_layout l = layout(1, (9u << 18) + 8);

    for (enum site_way way = SITE_TCP; way < SITE_WAYS; way++)
        fetch_all(&l, 1, LOAD_MODE_LAYERWISE, way);
}

/* More questions than may wait for answers, and blocks that are copied. */
static void test_small_blocks(void)
{
    struct engine_kv_layout l = layout(4, 64);

    for (enum site_way way = SITE_TCP; way < SITE_WAYS; way++) {
        fetch_all(&l, 200, LOAD_MODE_LOAD, way);
        fetch_all(&l, 50, LOAD_MODE_LAYERWISE, way);
    }
}

/* Takes all blocks for something else and sees whether what is still on its
 * way gets into them. */
static void check_left_alone(struct site *s, uint32_t n_blocks)
{
    uint32_t *ids = calloc(n_blocks, sizeof(*ids));
    size_t bytes = s->layout.block_bytes;

    /* What a transport may still write into is not given out. */
    while (kv_store_alloc(s->store, n_blocks, ids) < 0)
        CU_ASSERT_EQUAL_FATAL(loop_turn(s->loop, -1), 0);
    for (uint32_t i = 0; i < n_blocks; i++)
        memset(kv_store_data(s->store, ids[i]), 0x5a, bytes);
    for (uint32_t i = 0; i < 200; i++)
        (void)loop_turn(s->loop, 0);
    for (uint32_t i = 0; i < n_blocks; i++) {
        const uint8_t *data = kv_store_data(s->store, ids[i]);

        CU_ASSERT(data[0] == 0x5a && memcmp(data, data + 1, bytes - 1) == 0);
        kv_store_release(s->store, ids[i]);
    }
    free(ids);
}

/* A request is dropped at any moment; the next one on that connection gets what
 * it asked for. */
static void drop(enum site_way way)
{
    struct engine_kv_layout l = layout(2, 50000);
    struct loop *loop = loop_new();
    struct site holder, asker;
    unsigned seed = (unsigned)getpid();

    printf("[seed %u] ", seed);
    srand(seed);
    site_init(&holder, loop, &l, 8, way);
    site_init(&asker, loop, &l, 9, way);
    site_hold(&holder, 8);
    for (uint32_t i = 0; i < cases_of(60); i++) {
        uint16_t port = transfer_port(holder.transfer);

        site_begin(&asker, port, 8, i % 2 ? LOAD_MODE_LOAD : LOAD_MODE_BOTH);
        for (int n = rand() % 40; n > 0 && !site_done(&asker); n--)
            (void)loop_turn(loop, -1);
        site_drop(&asker);
        check_left_alone(&asker, 9);
    }
    site_begin(&asker, transfer_port(holder.transfer), 8, LOAD_MODE_LOAD);
    until_done(&asker);
    CU_ASSERT_EQUAL(site_came(&asker, true), 8);
    site_drop(&asker);
    site_fini(&asker);
    site_fini(&holder);
    loop_free(loop);
}

static void test_dropped(void)
{
    for (enum site_way way = SITE_TCP; way < SITE_WAYS; way++)
        drop(way);
}

/* Two workers, of which `from` pushes to `to`. */
struct pair {
    struct loop *loop;
    struct site from, to;
};

static void pair_init(struct pair *p, const struct engine_kv_layout *l,
                      uint32_t n_blocks, enum site_way way)
{
    p->loop = loop_new();
    site_init(&p->from, p->loop, l, n_blocks, way);
    site_init(&p->to, p->loop, l, n_blocks, way);
}

static void pair_fini(struct pair *p)
{
    site_push_drop(&p->from);
    site_push_drop(&p->to);
    site_fini(&p->from);
    site_fini(&p->to);
    loop_free(p->loop);
}

static void push_begin(struct pair *p, uint32_t n_tokens)
{
    site_announce(&p->to, n_tokens);
    site_push(&p->from, transfer_port(p->to.transfer), n_tokens);
}

static void turn(struct pair *p)
{
    (void)loop_turn(p->loop, -1);
}

/* As a step loop does: a prefix, then chunks, layer by layer. */
static void compute_some(struct pair *p, uint32_t n_tokens)
{
    struct request *r = p->from.pushed;
    uint32_t left = n_tokens - r->position;

    if (left == 0) {
        site_push_end(&p->from);
        return;
    }
    r->step.n_tokens = left < 100 ? left : 100;
    if (++p->from.layers_done > p->from.layout.layers) {
        r->position += r->step.n_tokens;
        r->step.n_tokens = p->from.layers_done = 0;
    }
    site_push_poke(&p->from);
}

static void push_all(const struct engine_kv_layout *l, uint32_t n_tokens,
                     enum site_way way)
{
    struct pair p;

    pair_init(&p, l, n_tokens / BT + 2, way);
    push_begin(&p, n_tokens);
    p.from.pushed->position = n_tokens / 3;
    while (!p.to.receive_over) {
        if (!p.from.push_over)
            compute_some(&p, n_tokens);
        turn(&p);
    }
    CU_ASSERT(p.from.push_over);
    CU_ASSERT_STRING_EQUAL(p.from.why, "");
    CU_ASSERT_STRING_EQUAL(p.to.why, "");
    CU_ASSERT_EQUAL(p.to.received->position, n_tokens);
    CU_ASSERT(site_push_same(&p.from, &p.to));
    pair_fini(&p);
}

/* Rows that end inside a block, blocks in many pieces, and rows of which one is
 * longer than a piece should be. */
static void test_push(void)
{
    struct engine_kv_layout small = layout(4, 64), large = layout(2, 3u << 20),
                            middle = layout(3, 3000);

    for (enum site_way way = SITE_TCP; way < SITE_WAYS; way++) {
        push_all(&small, 1, way);
        push_all(&small, 3 * BT, way);
        push_all(&small, 4000, way);
        push_all(&middle, 1333, way);
        push_all(&large, 19, way);
    }
}

/* Pushes two blocks, of which one changes `us` after its piece was begun.
 * Returns whether it came. */
static bool push_damaged(enum site_way way, useconds_t us)
{
    struct engine_kv_layout l = layout(2, 64);
    struct pair p;

    pair_init(&p, &l, 4, way);
    push_begin(&p, 2 * BT);
    p.from.pushed->position = 2 * BT;
    while (p.from.pushed->push.n_pieces == 0)
        turn(&p);
    usleep(us);
    *(uint8_t *)p.from.pushed->blocks.data[1] ^= 1;
    site_push_end(&p.from);
    while (!p.to.receive_over)
        turn(&p);
    bool came = p.to.why[0] == '\0';
    CU_ASSERT(!came || site_push_same(&p.from, &p.to));
    CU_ASSERT(came ||
              strcmp(p.to.why, "its KV does not match its checksums") == 0);
    pair_fini(&p);
    return came;
}

/* Memory that changes when it was summed is never used. */
static void test_push_damaged(void)
{
    for (enum site_way way = SITE_TCP; way < SITE_WAYS; way++) {
        useconds_t us = 1000;

        /* It is summed by another thread. */
        while (push_damaged(way, us))
            us *= 2;
    }
}

/* Either side drops the request at any moment, or both do; nothing gets into
 * memory that was given back, and the next one comes whole. */
static void push_dropped(enum site_way way)
{
    struct engine_kv_layout l = layout(3, 3000);
    unsigned seed = (unsigned)getpid();
    struct pair p;

    printf("[seed %u] ", seed);
    srand(seed);
    pair_init(&p, &l, 24, way);
    for (uint32_t i = 0; i < cases_of(40); i++) {
        uint32_t n_tokens = 1 + (uint32_t)rand() % (23 * BT);

        push_begin(&p, n_tokens);
        for (int n = rand() % 60; n > 0 && !p.from.push_over; n--) {
            compute_some(&p, n_tokens);
            turn(&p);
        }
        site_push_drop(i % 2 ? &p.to : &p.from);
        for (int n = rand() % 20; n > 0; n--)
            (void)loop_turn(p.loop, 0);
        site_push_drop(&p.to);
        site_push_drop(&p.from);
        check_left_alone(&p.to, 24);
        check_left_alone(&p.from, 24);
    }
    pair_fini(&p);
    push_all(&l, 333, way);
}

static void test_push_dropped(void)
{
    for (enum site_way way = SITE_TCP; way < SITE_WAYS; way++)
        push_dropped(way);
}

/* Have reads of `s` be by `read`, of its transport; `ops` lives as long as `s`.
 */
static void read_by(struct site *s, struct transport_ops *ops,
                    int (*read)(struct transport_path *, uint64_t, uint64_t,
                                const struct transport_slice *, uint32_t))
{
    struct transport *t = s->transfer->transports[0];

    *ops = *t->ops;
    ops->read = read;
    t->ops = ops;
}

/* A transport whose peer can be reached, but not read. */
static int read_refused(struct transport_path *, uint64_t, uint64_t,
                        const struct transport_slice *, uint32_t)
{
    return -EINVAL;
}

/* Whoever waits for what cannot be read waits no longer. */
static void test_no_op(void)
{
    struct engine_kv_layout l = layout(2, 64);
    int64_t end_us = clock_now_us() + 20000000;
    struct transport_ops ops;
    struct pair p;

    pair_init(&p, &l, 5, SITE_TCP);
    read_by(&p.to, &ops, read_refused);
    push_begin(&p, 2 * BT);
    p.from.pushed->position = 2 * BT;
    while (!p.to.receive_over && clock_now_us() < end_us)
        (void)loop_turn(p.loop, 0);
    CU_ASSERT_STRING_EQUAL(p.to.why, "its KV cannot be read");
    site_push_drop(&p.to);
    site_push_drop(&p.from);
    site_hold(&p.from, 2);
    site_begin(&p.to, transfer_port(p.from.transfer), 2, LOAD_MODE_LOAD);
    while (!site_done(&p.to) && clock_now_us() < end_us)
        (void)loop_turn(p.loop, 0);
    CU_ASSERT(site_done(&p.to));
    CU_ASSERT_EQUAL(site_came(&p.to, false), 0);
    site_drop(&p.to);
    pair_fini(&p);
}

/* One whose reads never end. */
static int read_forever(struct transport_path *, uint64_t, uint64_t,
                        const struct transport_slice *, uint32_t)
{
    return 0;
}

/* As a sender tells of n tokens of a layer. */
static int tell(struct site *to, uint32_t layer, uint32_t n)
{
    static const uint64_t zeroes[2];
    struct wire_buf buf;
    const struct msg_kv_layer m = {.layer = layer,
                                   .n_tokens = n,
                                   .grant_id = 1 + layer,
                                   .n_blocks = 1,
                                   .offsets = (const uint8_t *)zeroes,
                                   .n_sums = n < BT ? 2 : 1,
                                   .sums = (const uint8_t *)zeroes};

    wire_buf_init(&buf, 4096);
    msg_kv_layer_pack(&buf, 1, &m);
    int rc = receive_on_layer(to->received->receive.from, 1,
                              buf.data + FRAME_HEADER_BYTES,
                              buf.len - FRAME_HEADER_BYTES);
    wire_buf_fini(&buf);
    return rc;
}

/* A push of a prompt of one block that has told of nothing yet. */
static void begin_untold(struct pair *p, const struct engine_kv_layout *l,
                         struct transport_ops *ops)
{
    pair_init(p, l, 3, SITE_TCP);
    read_by(&p->to, ops, read_forever);
    push_begin(p, BT);
    while (p->to.received->state != REQUEST_RECEIVING)
        turn(p);
}

/* A sender that tells of more than may be on its way, or of an end before all
 * was read. */
static void test_odd_senders(void)
{
    struct engine_kv_layout many = layout(TRANSFER_PIECES_MAX + 1, 64),
                            one = layout(1, 64);
    const uint32_t first_token = 1;
    struct transport_ops ops;
    struct pair p;

    begin_untold(&p, &many, &ops);
    for (uint32_t i = 0; i < TRANSFER_PIECES_MAX; i++)
        CU_ASSERT_EQUAL(tell(&p.to, i, BT), 0);
    CU_ASSERT_EQUAL(tell(&p.to, TRANSFER_PIECES_MAX, BT), -EBADMSG);
    CU_ASSERT_EQUAL(p.to.received->receive.n_pieces, TRANSFER_PIECES_MAX);
    pair_fini(&p);

    begin_untold(&p, &one, &ops);
    struct inbound *in = p.to.received->receive.from;
    CU_ASSERT_EQUAL(tell(&p.to, 0, BT), 0);
    CU_ASSERT_EQUAL(receive_on_end(in, 1, (const uint8_t *)&first_token, 4),
                    -EBADMSG);
    CU_ASSERT_FALSE(p.to.receive_over);
    CU_ASSERT_EQUAL(tell(&p.to, 0, 1), -EBADMSG); /* twice */
    pair_fini(&p);
}

/* A sender that begins the same request twice is refused, and what came first
 * goes on. */
static void test_begun_twice(void)
{
    struct engine_kv_layout one = layout(1, 64);
    struct transport_ops ops;
    struct wire_buf buf;
    struct pair p;

    begin_untold(&p, &one, &ops);
    struct request *r = p.to.received;
    const struct msg_kv_begin m = {.n_tokens = r->prompt.n_tokens,
                                   .max_tokens = r->max_tokens,
                                   .prompt_digest = r->prompt.digest};
    CU_ASSERT_EQUAL(tell(&p.to, 0, 1), 0);
    wire_buf_init(&buf, 4096);
    msg_kv_begin_pack(&buf, 1, &m);
    CU_ASSERT_EQUAL(receive_on_begin(r->receive.from, 1,
                                     buf.data + FRAME_HEADER_BYTES,
                                     buf.len - FRAME_HEADER_BYTES),
                    0);
    wire_buf_fini(&buf);
    CU_ASSERT_EQUAL(r->state, REQUEST_RECEIVING);
    CU_ASSERT_EQUAL(r->receive.n_pieces, 1);
    while (!p.from.push_over)
        turn(&p);
    CU_ASSERT_STRING_EQUAL(p.from.why, "no such request is announced here");
    pair_fini(&p);
}

/* A sender without a transport is refused, and nothing is kept of its KV_BEGIN:
 * it may send others. */
static void test_no_transport(void)
{
    struct engine_kv_layout one = layout(1, 64);
    struct pair p;

    pair_init(&p, &one, 3, SITE_TCP);
    uint32_t n_transports = p.from.transfer->n_transports;
    p.from.transfer->n_transports = 0;
    push_begin(&p, BT);
    while (!p.from.push_over)
        turn(&p);
    CU_ASSERT_STRING_EQUAL(p.from.why, "both have no transport in common");
    CU_ASSERT_PTR_NULL(p.to.received->receive.next_token);
    p.from.transfer->n_transports = n_transports;
    pair_fini(&p);
}

static struct transport_offer *(*true_offer)(struct transport *,
                                             const struct transport_offer_ops *,
                                             void *, uint8_t *, size_t *);
static struct transport_ops no_grants;

static int grant_refused(struct transport_offer *, uint64_t,
                         const struct transport_range *, uint32_t)
{
    return -ENOMEM;
}

static struct transport_offer *
offer_no_grants(struct transport *t, const struct transport_offer_ops *ops,
                void *arg, uint8_t *descriptor, size_t *n)
{
    struct transport_offer *o = true_offer(t, ops, arg, descriptor, n);

    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    no_grants = *o->ops;
    no_grants.grant = grant_refused;
    o->ops = &no_grants;
    return o;
}

/* Blocks that cannot be granted are not pinned any longer. */
static void test_no_grant(void)
{
    struct engine_kv_layout l = layout(2, 64);
    struct kv_store_stats stats;
    struct transport_ops ops;
    struct pair p;

    pair_init(&p, &l, 3, SITE_TCP);
    struct transport *t = p.from.transfer->transports[0];
    ops = *t->ops;
    true_offer = ops.offer;
    ops.offer = offer_no_grants;
    t->ops = &ops;
    site_hold(&p.from, 2);
    site_begin(&p.to, transfer_port(p.from.transfer), 2, LOAD_MODE_LOAD);
    until_done(&p.to);
    CU_ASSERT_EQUAL(site_came(&p.to, false), 0);
    kv_store_stats(p.from.store, &stats);
    CU_ASSERT_EQUAL(stats.evictable_blocks, 2);
    site_drop(&p.to);
    pair_fini(&p);
}

static int (*true_read)(struct transport_path *, uint64_t, uint64_t,
                        const struct transport_slice *, uint32_t);
static uint32_t n_spoilt;

/* Of the first reads the checksums seem to be others. */
static int read_spoilt(struct transport_path *path, uint64_t op, uint64_t grant,
                       const struct transport_slice *slices, uint32_t n)
{
    static uint64_t other[2 * TRANSFER_PIECE_BLOCKS];
    struct transport_slice copy[2 * TRANSFER_PIECE_BLOCKS];

    if (n_spoilt == 0)
        return true_read(path, op, grant, slices, n);
    n_spoilt--;
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = slices[i];
        copy[i].sums = &other[i];
    }
    return true_read(path, op, grant, copy, n);
}

/* What came damaged is read again, so many times. */
static void test_read_again(void)
{
    struct engine_kv_layout one = layout(1, 64);

    for (uint32_t n = TRANSFER_TRIES - 1; n <= TRANSFER_TRIES; n++) {
        struct transport_ops ops;
        struct pair p;

        pair_init(&p, &one, 3, SITE_TCP);
        true_read = p.to.transfer->transports[0]->ops->read;
        read_by(&p.to, &ops, read_spoilt);
        n_spoilt = n;
        push_begin(&p, BT);
        p.from.pushed->position = BT;
        site_push_end(&p.from);
        while (!p.to.receive_over)
            turn(&p);
        CU_ASSERT_EQUAL(p.to.why[0] == '\0', n < TRANSFER_TRIES);
        pair_fini(&p);
    }
}

/* Checksums that are known of whole blocks are those of their layers, and of no
 * part of them. */
static void test_known_sums(void)
{
    struct engine_kv_layout l = layout(3, 64);
    struct pair p;

    pair_init(&p, &l, 5, SITE_TCP);
    push_begin(&p, 2 * BT + 5);
    const struct request *r = p.from.pushed;
    for (uint32_t b = 0; b < r->blocks.n; b++)
        for (uint32_t layer = 0; layer < l.layers; layer++) {
            uint64_t bytes = l.block_bytes / l.layers;
            const char *data = r->blocks.data[b];

            layer_sums_know(p.from.transfer->sums, r->blocks.ids[b], layer,
                            sum_of(data + layer * bytes, bytes));
        }
    p.from.pushed->position = 2 * BT + 5;
    site_push_end(&p.from);
    while (!p.to.receive_over)
        turn(&p);
    CU_ASSERT_STRING_EQUAL(p.to.why, "");
    CU_ASSERT(site_push_same(&p.from, &p.to));
    pair_fini(&p);
}

/* Nothing leaves before it is computed. */
static void test_push_in_time(void)
{
    struct engine_kv_layout l = layout(3, 64);
    uint64_t bytes = l.block_bytes / l.layers;
    struct pair p;

    pair_init(&p, &l, 3, SITE_TCP);
    push_begin(&p, 2 * BT);
    struct request *r = p.from.pushed;
    for (uint32_t b = 0; b < 2; b++)
        memset(r->blocks.data[b], 0, l.block_bytes);
    r->step.n_tokens = 2 * BT;
    while (!r->push.granted)
        turn(&p);
    for (uint32_t layer = 0; layer < l.layers; layer++) {
        CU_ASSERT_EQUAL(r->push.layer, layer);
        for (uint32_t b = 0; b < 2; b++)
            memset((char *)r->blocks.data[b] + layer * bytes, 1 + (int)layer,
                   bytes);
        p.from.layers_done = layer + 1;
        site_push_poke(&p.from);
    }
    r->position = 2 * BT;
    r->step.n_tokens = p.from.layers_done = 0;
    site_push_end(&p.from);
    while (!p.to.receive_over)
        turn(&p);
    CU_ASSERT(site_push_same(&p.from, &p.to));
    pair_fini(&p);
}

static const struct suite_test tests[] = {
    {"blocks longer than a frame", test_longer_than_a_frame},
    {"a layer longer than a frame", test_long_layer},
    {"many small blocks", test_small_blocks},
    {"dropped at any moment", test_dropped},
    {"a push, layer by layer", test_push},
    {"a push of what changes", test_push_damaged},
    {"a push dropped at any moment", test_push_dropped},
    {"reads that cannot be", test_no_op},
    {"odd senders", test_odd_senders},
    {"a push that begins twice", test_begun_twice},
    {"no transport", test_no_transport},
    {"no grant", test_no_grant},
    {"read again", test_read_again},
    {"known checksums", test_known_sums},
    {"a push in time", test_push_in_time},
};

int main(void)
{
    log_init("test_transfer", LOG_ERROR);
    return SUITE_RUN("transfer", tests);
}
