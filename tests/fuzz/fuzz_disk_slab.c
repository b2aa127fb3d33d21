/* Opens a file of any bytes as a slab, and uses what is found in it.
 *
 * With an odd first byte the checksums of the headers are made right and the
 * file id equal, so that what lies behind these checks is reached. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/log.h"
#include "tests/unit/disk_check.h"
#include "workers/disk/tier/tier.h"

#define SLOTS 6u
#define PAGE 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct disk_geometry geometry = {
    .fingerprint = 1, .block_bytes = 128, .block_tokens = 2, .layers = 2};

static int64_t now_us(const struct loop *)
{
    return clock_now_us();
}

static uint64_t random_number(struct loop *)
{
    return entropy_u64();
}

static void seal(uint8_t *page)
{
    uint64_t sum = XXH3_64bits(page, PAGE - 8);

    memcpy(page + PAGE - 8, &sum, 8);
}

/* The magic numbers, the header's fields and the checksums, as they are
 * written by a little-endian machine. */
static void make_plausible(uint8_t *file, size_t size)
{
    const uint64_t header[] = {
        0x424c534456434e43u,  1u | (uint64_t)SLOTS << 32, 7,
        geometry.fingerprint, geometry.block_bytes,       2u | 2ull << 32};
    const uint64_t slot[] = {0x31544f4c53564b43u, 7};

    for (size_t at = 0; at + PAGE <= size && at < (2 + SLOTS) * PAGE;
         at += PAGE) {
        if (at < 2 * PAGE)
            memcpy(file + at, header, sizeof(header));
        else
            memcpy(file + at, slot, sizeof(slot));
        seal(file + at);
    }
}

static void on_done(void *arg, int rc)
{
    (void)rc;
    --*(int *)arg;
}

/* Reads every block whose chain can be followed in the inventory. */
static void use(struct disk_tier *t)
{
    struct kv_store *index = disk_tier_index(t);
    static uint8_t block[SLOTS][128];
    struct kv_store_event e;
    uint32_t cursor = KV_BLOCK_NONE;
    int busy = 0;

    while (kv_store_inventory(index, &cursor, &e)) {
        struct disk_ref ref = {.slot = cursor,
                               .number = kv_store_number(index, cursor)};

        if (disk_tier_read(t, ref, 0, 2, block[cursor], on_done, &busy, NULL) ==
            0)
            busy++;
    }
    while (busy > 0)
        disk_tier_poll(t);
    disk_tier_check(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    char err[512];
    struct disk_tier *t;

    log_init("fuzz", LOG_ERROR);
    if (size < 1 || size > 64 * 1024)
        return 0;
    int fd = memfd_create("slab", MFD_CLOEXEC);
    uint8_t *file = malloc(size);
    if (fd < 0 || !file)
        abort();
    memcpy(file, data + 1, size - 1);
    if (data[0] & 1)
        make_plausible(file, size - 1);
    if (write(fd, file, size - 1) != (ssize_t)(size - 1))
        abort();
    free(file);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct disk_tier_config config = {
        .now_us = now_us,
        .random = random_number,
        .path = path,
        .bytes = disk_slab_bytes(&geometry, SLOTS),
        .geometry = geometry,
        .max_reads = SLOTS,
        .max_writes = 1,
        .event_capacity = 64,
    };
    if (disk_tier_open(&config, &t, err, sizeof(err)) == 0) {
        use(t);
        disk_tier_close(t);
    }
    close(fd);
    return 0;
}
