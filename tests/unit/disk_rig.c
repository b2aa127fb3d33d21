/* What the tests of the disk tier share. */
#include "disk_rig.h"

#include <CUnit/CUnit.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/entropy.h"
#include "tests/unit/disk_check.h"

#define LAYERS 3u

static int64_t now_us(const struct loop *)
{
    return clock_now_us();
}

static uint64_t random_number(struct loop *)
{
    return entropy_u64();
}

void disk_rig_init(struct disk_rig *rig, uint64_t layer_bytes, uint32_t slots)
{
    const char *tmp = getenv("TMPDIR");

    *rig = (struct disk_rig){
        .config = {.now_us = now_us,
                   .random = random_number,
                   .geometry = {.fingerprint = 77,
                                .block_bytes = LAYERS * layer_bytes,
                                .block_tokens = RIG_TOKENS,
                                .layers = LAYERS},
                   .max_reads = 64,
                   .max_writes = 16,
                   .event_capacity = 1000,
                   .direct = true,
                   .uring = true}};
    snprintf(rig->folder, sizeof(rig->folder), "%.40s/disk_tier_XXXXXX",
             tmp ? tmp : "/tmp");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(rig->folder));
    snprintf(rig->path, sizeof(rig->path), "%s/slab", rig->folder);
    rig->config.path = rig->path;
    rig->config.bytes = disk_slab_bytes(&rig->config.geometry, slots);
    rig->memory =
        aligned_alloc(4096, (RIG_CHAIN * LAYERS * layer_bytes + 4095) & ~4095u);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rig->memory);
}

void disk_rig_fini(struct disk_rig *rig)
{
    disk_tier_close(rig->t);
    rig->t = NULL;
    free(rig->memory);
    unlink(rig->path);
    CU_ASSERT_EQUAL(rmdir(rig->folder), 0);
}

int disk_rig_open(struct disk_rig *rig)
{
    int rc = disk_tier_open(&rig->config, &rig->t, rig->err, sizeof(rig->err));

    if (rc)
        fprintf(stderr, "disk_rig_open: %s\n", rig->err);
    return rc;
}

void disk_rig_reopen(struct disk_rig *rig)
{
    disk_tier_close(rig->t);
    rig->t = NULL;
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(rig), 0);
    disk_tier_check(rig->t);
}

void disk_rig_settle(struct disk_rig *rig)
{
    struct disk_tier_stats s;

    for (;;) {
        disk_tier_stats(rig->t, &s);
        if (s.reads + s.writes == 0)
            return;
        struct pollfd p = {.fd = disk_tier_fd(rig->t), .events = POLLIN};
        CU_ASSERT_EQUAL_FATAL(poll(&p, 1, 10000), 1);
        disk_tier_poll(rig->t);
        disk_tier_check(rig->t);
    }
}

void disk_rig_done(void *arg, int rc)
{
    struct disk_rig *rig = arg;

    rig->rc = rc;
    rig->n_done++;
}

void disk_rig_prompt(struct rig_prompt *p, uint32_t seed, uint32_t from_block)
{
    uint64_t h = 1;

    for (uint32_t i = 0; i < RIG_CHAIN * RIG_TOKENS; i++)
        p->tokens[i] = i + (i / RIG_TOKENS >= from_block ? 1000 * seed : 0);
    for (uint32_t i = 0; i < RIG_CHAIN; i++) {
        h = h * 0x9e3779b97f4a7c15u + p->tokens[i * RIG_TOKENS] + 1;
        p->keys[i] = h;
    }
}

char *disk_rig_block(const struct disk_rig *rig, uint32_t i)
{
    return rig->memory + i * rig->config.geometry.block_bytes;
}

/* One byte of the KV of the prompt's block `i`, which depends on all tokens in
 * front. */
static char kv_byte(const struct rig_prompt *p, uint32_t i, uint64_t at)
{
    uint64_t h = at / 7 + 1;

    for (uint32_t k = 0; k < (i + 1) * RIG_TOKENS; k++)
        h = (h ^ p->tokens[k]) * 0x9e3779b97f4a7c15u;
    return (char)(h >> 56);
}

void disk_rig_fill(const struct disk_rig *rig, const struct rig_prompt *p,
                   uint32_t i, char *memory)
{
    /* A large block is mostly equal bytes: it is enough, and quick. */
    uint64_t step = rig->config.geometry.block_bytes / 12288;

    memset(memory, (int)p->keys[i], rig->config.geometry.block_bytes);
    for (uint64_t b = 0; b < rig->config.geometry.block_bytes; b += step + 1)
        memory[b] = kv_byte(p, i, b);
}

bool disk_rig_is(const struct disk_rig *rig, const struct rig_prompt *p,
                 uint32_t i, uint32_t from, uint32_t to, const char *memory)
{
    uint64_t layer_bytes = rig->config.geometry.block_bytes / LAYERS;
    char *want = malloc(rig->config.geometry.block_bytes);

    CU_ASSERT_PTR_NOT_NULL_FATAL(want);
    disk_rig_fill(rig, p, i, want);
    bool is = memcmp(want + from * layer_bytes, memory + from * layer_bytes,
                     (to - from) * layer_bytes) == 0;
    free(want);
    return is;
}

int disk_rig_write(struct disk_rig *rig, const struct rig_prompt *p,
                   uint32_t from, uint32_t to)
{
    struct disk_ref refs[RIG_CHAIN];
    uint32_t n = disk_tier_match(rig->t, p->keys, p->tokens, from, refs);
    struct disk_ref parent = n > 0 ? refs[n - 1] : DISK_REF_NONE;

    CU_ASSERT_EQUAL_FATAL(n, from);
    while (n > 0)
        disk_tier_unpin(rig->t, refs[--n]);
    for (uint32_t i = from; i < to; i++) {
        disk_rig_fill(rig, p, i, disk_rig_block(rig, 0));
        rig->rc = RIG_DONE_NOT;
        int rc = disk_tier_write(
            rig->t, parent, p->keys[i], p->tokens + i * RIG_TOKENS,
            disk_rig_block(rig, 0), disk_rig_done, rig, &parent);
        if (rc < 0)
            return rc;
        disk_rig_settle(rig);
        if (rig->rc < 0)
            return rig->rc;
    }
    return 0;
}

uint32_t disk_rig_match(struct disk_rig *rig, const struct rig_prompt *p)
{
    struct disk_ref refs[RIG_CHAIN];
    uint32_t n = disk_tier_match(rig->t, p->keys, p->tokens, RIG_CHAIN, refs);

    for (uint32_t i = 0; i < n; i++)
        disk_tier_unpin(rig->t, refs[i]);
    return n;
}

int disk_rig_read(struct disk_rig *rig, const struct rig_prompt *p, uint32_t i,
                  uint32_t from, uint32_t to)
{
    struct disk_ref refs[RIG_CHAIN];
    uint32_t n = disk_tier_match(rig->t, p->keys, p->tokens, i + 1, refs);
    char *memory = disk_rig_block(rig, 1);

    CU_ASSERT_EQUAL_FATAL(n, i + 1);
    memset(memory, 0x55, rig->config.geometry.block_bytes);
    rig->rc = RIG_DONE_NOT;
    CU_ASSERT_EQUAL_FATAL(disk_tier_read(rig->t, refs[i], from, to, memory,
                                         disk_rig_done, rig, NULL),
                          0);
    while (n > 0)
        disk_tier_unpin(rig->t, refs[--n]);
    disk_rig_settle(rig);
    if (rig->rc == 0)
        CU_ASSERT(disk_rig_is(rig, p, i, from, to, memory));
    return rig->rc;
}

uint32_t disk_rig_slot(struct disk_rig *rig, const struct rig_prompt *p,
                       uint32_t i)
{
    struct disk_ref refs[RIG_CHAIN];
    uint32_t n = disk_tier_match(rig->t, p->keys, p->tokens, i + 1, refs);

    CU_ASSERT_EQUAL_FATAL(n, i + 1);
    while (n > 0)
        disk_tier_unpin(rig->t, refs[--n]);
    return refs[i].slot;
}

void disk_rig_flip(const struct disk_rig *rig, uint64_t offset)
{
    int fd = open(rig->path, O_RDWR);
    unsigned char byte;

    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL_FATAL(pread(fd, &byte, 1, (off_t)offset), 1);
    byte = (unsigned char)~byte;
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, &byte, 1, (off_t)offset), 1);
    CU_ASSERT_EQUAL(fdatasync(fd), 0);
    close(fd);
}

uint64_t disk_rig_page_offset(const struct disk_rig *rig, uint32_t slot)
{
    (void)rig; /* a header of 2 tokens and 3 layers is one page */
    return 8192 + 4096ull * slot;
}

uint64_t disk_rig_data_offset(const struct disk_rig *rig, uint32_t slot)
{
    const struct disk_geometry *g = &rig->config.geometry;
    uint64_t stride = (g->block_bytes + 4095) / 4096 * 4096;

    return 8192 + 4096ull * disk_slab_slots(g, rig->config.bytes) +
           stride * slot;
}
