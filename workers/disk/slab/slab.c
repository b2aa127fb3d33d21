/* The layout of the slab: sizes and offsets, slot headers and their scan. */
#include "workers/disk/slab/slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "workers/disk/slab/internal.h"

#define SLOT_MAGIC 0x31544f4c53564b43u /* "CKVSLOT1" */
#define SLOT_FIXED_BYTES 80u           /* all but the two arrays */
#define HEADERS_BYTES (2ull * DISK_ALIGN_BYTES)
#define SCAN_BYTES (1u << 20)
#define SLOTS_MAX (1u << 30)
#define BLOCK_BYTES_MAX (1ull << 40)

static uint64_t round_up(uint64_t n)
{
    return (n + DISK_ALIGN_BYTES - 1) / DISK_ALIGN_BYTES * DISK_ALIGN_BYTES;
}

/* Returns the bytes of one slot header. */
static uint32_t slot_page_bytes(const struct disk_geometry *g)
{
    return (uint32_t)round_up(SLOT_FIXED_BYTES + 4ull * g->block_tokens +
                              8ull * g->layers);
}

static bool geometry_ok(const struct disk_geometry *g)
{
    return g->block_tokens >= 1 && g->block_tokens <= 1u << 20 &&
           g->layers >= 1 && g->layers <= 1u << 20 && g->block_bytes >= 1 &&
           g->block_bytes <= BLOCK_BYTES_MAX && g->block_bytes % g->layers == 0;
}

uint32_t disk_slab_slots(const struct disk_geometry *g, uint64_t bytes)
{
    if (!geometry_ok(g) || bytes < HEADERS_BYTES || bytes > INT64_MAX)
        return 0;
    uint64_t each = round_up(g->block_bytes) + slot_page_bytes(g);
    uint64_t n = (bytes - HEADERS_BYTES) / each;
    return n > SLOTS_MAX ? SLOTS_MAX : (uint32_t)n;
}

uint64_t disk_slab_bytes(const struct disk_geometry *g, uint32_t slots)
{
    uint64_t each = round_up(g->block_bytes) + slot_page_bytes(g);

    return HEADERS_BYTES + slots * each;
}

uint64_t disk_slab_page_offset(const struct disk_slab *slab, uint32_t slot)
{
    return HEADERS_BYTES + (uint64_t)slot * slab->page_bytes;
}

uint64_t disk_slab_data_offset(const struct disk_slab *slab, uint32_t slot)
{
    return slab->data_offset + slot * slab->stride_bytes;
}

void disk_slab_lay_out(struct disk_slab *slab, const struct disk_geometry *g,
                       uint32_t slots)
{
    slab->geometry = *g;
    slab->slots = slots;
    slab->page_bytes = slot_page_bytes(g);
    slab->stride_bytes = round_up(g->block_bytes);
    slab->data_offset = HEADERS_BYTES + (uint64_t)slots * slab->page_bytes;
    slab->file_bytes = disk_slab_bytes(g, slots);
}

bool disk_slab_sealed(const void *page, size_t bytes)
{
    const uint8_t *end = (const uint8_t *)page + bytes - 8;

    return wire_u64_at(end, 0) == XXH3_64bits(page, bytes - 8);
}

int disk_slab_seal(struct wire_buf *b, void *page, size_t bytes)
{
    if (b->failed || b->len > bytes - 8)
        return -ENOMEM;
    memset(page, 0, bytes);
    memcpy(page, b->data, b->len);
    struct codec c = codec_writer(b);
    uint64_t sum = XXH3_64bits(page, bytes - 8);
    wire_buf_reset(b);
    codec_u64(&c, &sum);
    if (b->failed)
        return -ENOMEM;
    memcpy((char *)page + bytes - 8, b->data, 8);
    return 0;
}

/* The fields of a slot header that are not in struct disk_slot. */
struct page {
    uint64_t magic;
    uint64_t file_id;
    uint32_t slot;
    uint32_t n_tokens;
    uint32_t n_sums;
    const uint8_t *tokens;
    const uint8_t *sums;
};

static void page_fields(struct codec *c, struct page *p, struct disk_slot *s)
{
    codec_u64(c, &p->magic);
    codec_u64(c, &p->file_id);
    codec_u32(c, &p->slot);
    codec_u32(c, &s->parent_slot);
    codec_u64(c, &s->parent_number);
    codec_u64(c, &s->parent_key);
    codec_u64(c, &s->key);
    codec_u64(c, &s->number);
    codec_u64(c, &s->order);
    codec_array(c, 4, &p->tokens, &p->n_tokens);
    codec_array(c, 8, &p->sums, &p->n_sums);
}

int disk_slab_encode(const struct disk_slab *slab, uint32_t slot,
                     const struct disk_slot *s, struct wire_buf *scratch,
                     void *page)
{
    struct codec c = codec_writer(scratch);
    struct disk_slot copy = *s;
    struct page p = {SLOT_MAGIC,
                     slab->file_id,
                     slot,
                     slab->geometry.block_tokens,
                     slab->geometry.layers,
                     (const uint8_t *)s->tokens,
                     (const uint8_t *)s->sums};

    wire_buf_reset(scratch);
    page_fields(&c, &p, &copy);
    return disk_slab_seal(scratch, page, slab->page_bytes);
}

enum found { FOUND_EMPTY, FOUND_DAMAGED, FOUND_WHOLE };

static enum found examine(const struct disk_slab *slab, uint32_t slot,
                          const uint8_t *page, struct disk_slot *s)
{
    struct codec c = codec_reader(page, slab->page_bytes);
    struct page p;

    page_fields(&c, &p, s);
    /* Empty: never written, erased, or from an earlier file. The last case
     * needs a right checksum: else the file id itself may be damaged. */
    if (p.magic == 0 && p.file_id == 0)
        return FOUND_EMPTY;
    if (!disk_slab_sealed(page, slab->page_bytes))
        return FOUND_DAMAGED;
    if (p.magic != SLOT_MAGIC || p.file_id != slab->file_id)
        return FOUND_EMPTY;
    if (p.slot != slot || p.n_tokens != slab->geometry.block_tokens ||
        p.n_sums != slab->geometry.layers)
        return FOUND_DAMAGED;
    for (uint32_t i = 0; i < p.n_tokens; i++)
        s->tokens[i] = wire_u32_at(p.tokens, i);
    for (uint32_t i = 0; i < p.n_sums; i++)
        s->sums[i] = wire_u64_at(p.sums, i);
    return FOUND_WHOLE;
}

/* As disk_slab_scan(), with scratch: pages[batch] and *s. */
static int64_t scan(const struct disk_slab *slab, uint8_t *pages,
                    uint32_t batch, struct disk_slot *s,
                    disk_slab_found_fn *found, void *arg)
{
    int64_t damaged = 0;
    ssize_t got = 0;

    for (uint32_t i = 0; i < slab->slots; i++) {
        uint32_t at = i % batch;
        uint32_t left = slab->slots - i;
        size_t bytes = (size_t)(left < batch ? left : batch) * slab->page_bytes;

        if (at == 0)
            got = pread(slab->fd, pages, bytes,
                        (off_t)disk_slab_page_offset(slab, i));
        size_t offset = (size_t)at * slab->page_bytes;
        /* Headers that the disk cannot read count as damaged. */
        enum found what = got < (ssize_t)(offset + slab->page_bytes)
                              ? FOUND_DAMAGED
                              : examine(slab, i, pages + offset, s);
        if (what == FOUND_WHOLE)
            found(arg, i, s);
        damaged += what == FOUND_DAMAGED;
    }
    return damaged;
}

int64_t disk_slab_scan(const struct disk_slab *slab, disk_slab_found_fn *found,
                       void *arg)
{
    uint32_t batch = SCAN_BYTES / slab->page_bytes;
    int64_t rc = -ENOMEM;

    if (batch == 0)
        batch = 1;
    uint8_t *pages =
        aligned_alloc(DISK_ALIGN_BYTES, (size_t)batch * slab->page_bytes);
    struct disk_slot s = {
        .tokens = calloc(slab->geometry.block_tokens, sizeof(*s.tokens)),
        .sums = calloc(slab->geometry.layers, sizeof(*s.sums)),
    };
    if (pages && s.tokens && s.sums)
        rc = scan(slab, pages, batch, &s, found, arg);
    free(s.sums);
    free(s.tokens);
    free(pages);
    return rc;
}

int disk_slab_erase(const struct disk_slab *slab, uint32_t slot)
{
    void *page = aligned_alloc(DISK_ALIGN_BYTES, slab->page_bytes);
    int rc = 0;

    if (!page)
        return -ENOMEM;
    memset(page, 0, slab->page_bytes);
    ssize_t n = pwrite(slab->fd, page, slab->page_bytes,
                       (off_t)disk_slab_page_offset(slab, slot));
    if (n != (ssize_t)slab->page_bytes)
        rc = n < 0 ? -errno : -EIO;
    free(page);
    return rc;
}
