/* Blocks between two workers over loopback: in parts, where a block or a layer
 * of it is longer than a frame, and never into memory that was given back. */
#include <CUnit/Basic.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/unit/cases.h"
#include "tests/unit/transfer_rig.h"

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
    while (!site_done(s) && event_base_loop(s->base, EVLOOP_ONCE) == 0)
        ;
}

static void fetch_all(const struct engine_kv_layout *l, uint32_t n_blocks,
                      enum load_mode mode, enum site_way way)
{
    struct event_base *base = event_base_new();
    struct site holder, asker;

    site_init(&holder, base, l, n_blocks, way);
    site_init(&asker, base, l, n_blocks + 1, way);
    site_hold(&holder, n_blocks);
    site_begin(&asker, transfer_port(holder.transfer), n_blocks, mode);
    until_done(&asker);
    CU_ASSERT_EQUAL(site_came(&asker, true), n_blocks);
    site_drop(&asker);
    site_fini(&asker);
    site_fini(&holder);
    event_base_free(base);
}

/* Blocks of 72 MiB, in layers of 24 MiB, that no part divides. */
static void test_longer_than_a_frame(void)
{
    struct engine_kv_layout l = layout(3, (3u << 18) + 4);

    CU_ASSERT(l.block_bytes > FRAME_PAYLOAD_MAX_BYTES);
    for (enum site_way way = SITE_FRAMES; way <= SITE_SHM; way++) {
        fetch_all(&l, 2, LOAD_MODE_LOAD, way);
        fetch_all(&l, 1, LOAD_MODE_LAYERWISE, way);
    }
}

/* One layer is longer than a frame. */
static void test_long_layer(void)
{
    struct engine_kv_layout l = layout(1, (9u << 18) + 8);

    for (enum site_way way = SITE_FRAMES; way <= SITE_SHM; way++)
        fetch_all(&l, 1, LOAD_MODE_LAYERWISE, way);
}

/* More questions than may wait for answers, and blocks that are copied. */
static void test_small_blocks(void)
{
    struct engine_kv_layout l = layout(4, 64);

    for (enum site_way way = SITE_FRAMES; way <= SITE_SHM; way++) {
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
        CU_ASSERT_EQUAL_FATAL(event_base_loop(s->base, EVLOOP_ONCE), 0);
    for (uint32_t i = 0; i < n_blocks; i++)
        memset(kv_store_data(s->store, ids[i]), 0x5a, bytes);
    for (uint32_t i = 0; i < 200; i++)
        (void)event_base_loop(s->base, EVLOOP_NONBLOCK);
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
    struct event_base *base = event_base_new();
    struct site holder, asker;
    unsigned seed = (unsigned)getpid();

    printf("[seed %u] ", seed);
    srand(seed);
    site_init(&holder, base, &l, 8, way);
    site_init(&asker, base, &l, 9, way);
    site_hold(&holder, 8);
    for (uint32_t i = 0; i < cases_of(60); i++) {
        uint16_t port = transfer_port(holder.transfer);

        site_begin(&asker, port, 8, i % 2 ? LOAD_MODE_LOAD : LOAD_MODE_BOTH);
        for (int n = rand() % 40; n > 0 && !site_done(&asker); n--)
            (void)event_base_loop(base, EVLOOP_ONCE);
        site_drop(&asker);
        check_left_alone(&asker, 9);
    }
    site_begin(&asker, transfer_port(holder.transfer), 8, LOAD_MODE_LOAD);
    until_done(&asker);
    CU_ASSERT_EQUAL(site_came(&asker, true), 8);
    site_drop(&asker);
    site_fini(&asker);
    site_fini(&holder);
    event_base_free(base);
}

static void test_dropped(void)
{
    for (enum site_way way = SITE_FRAMES; way <= SITE_SHM; way++)
        drop(way);
}

int main(void)
{
    log_init("test_transfer", LOG_WARN);
    CU_initialize_registry();
    CU_pSuite s = CU_add_suite("transfer", NULL, NULL);
    CU_add_test(s, "blocks longer than a frame", test_longer_than_a_frame);
    CU_add_test(s, "a layer longer than a frame", test_long_layer);
    CU_add_test(s, "many small blocks", test_small_blocks);
    CU_add_test(s, "dropped at any moment", test_dropped);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed > 0;
}
