/* The table from keys to positions: buckets of one cache line. A key whose own
 * bucket is full stands in the next one with room, and the full buckets count
 * it, so that a search knows where to stop. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "conductor/core/index/pages.h"

#define HUGE_PAGE ((uintptr_t)2 << 20)
#define SMALL_PAGE ((size_t)4 << 10)

static bool is_large(size_t bytes)
{
    return bytes >= HUGE_PAGE / 2;
}

void *table_zeroed(size_t n, size_t size)
{
    uintptr_t begin, end;
    size_t bytes;
    void *memory;

    if (__builtin_mul_overflow(n, size, &bytes) || !is_large(bytes))
        return calloc(n, size);
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    begin = ((uintptr_t)memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    end = ((uintptr_t)memory + bytes) & ~(HUGE_PAGE - 1);
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* a hint only */
    return memory;
}

void *table_resized(void *table, size_t n, size_t more, size_t size)
{
    size_t bytes;
    void *memory;

    if (__builtin_mul_overflow(more, size, &bytes))
        return NULL;
    if (is_large(n * size)) {
        memory = mremap(table, n * size, bytes, MREMAP_MAYMOVE);
        return memory != MAP_FAILED ? memory : NULL;
    }
    memory = table_zeroed(more, size);
    if (memory && n > 0) {
        memcpy(memory, table, n * size);
        free(table);
    }
    return memory;
}

void table_free(void *table, size_t n, size_t size)
{
    if (!table || !is_large(n * size))
        free(table);
    else
        munmap(table, n * size);
}

static uint32_t home_of(const struct prefix_index *ix, uint64_t hash)
{
    return (uint32_t)((hash >> 32) * ix->n_buckets >> 32);
}

static uint32_t after(const struct prefix_index *ix, uint32_t bucket)
{
    return bucket + 1 < ix->n_buckets ? bucket + 1 : 0;
}

/* Returns the slot of a key: the tag from its hash, and its position. */
static uint32_t slot_of(const struct prefix_index *ix, uint64_t hash,
                        struct position at)
{
    uint32_t position = at.page * PAGE_KEYS + at.place;

    return (uint32_t)(hash << ix->position_bits) | position;
}

struct position table_find(const struct prefix_index *ix, uint64_t key)
{
    uint64_t hash = key_hash(&ix->secret, key);
    uint32_t bits = ix->position_bits;
    uint32_t tag = (uint32_t)(hash << bits);
    uint32_t tag_mask = bits < 32 ? UINT32_MAX << bits : 0;

    for (uint32_t b = home_of(ix, hash);; b = after(ix, b)) {
        const struct bucket *bucket = &ix->buckets[b];

        for (uint32_t s = 0; s < BUCKET_SLOTS; s++) {
            uint32_t slot = bucket->slot[s];
            uint32_t position = slot & ~tag_mask;

            if (((slot ^ tag) & tag_mask) == 0 && position != POSITION_NONE &&
                ix->keys[position / PAGE_KEYS][position % PAGE_KEYS] == key)
                return (struct position){position / PAGE_KEYS,
                                         position % PAGE_KEYS};
        }
        if (bucket->passed == 0)
            return (struct position){0, 0};
    }
}

void table_insert(struct prefix_index *ix, uint64_t key, struct position at)
{
    uint64_t hash = key_hash(&ix->secret, key);

    for (uint32_t b = home_of(ix, hash);; b = after(ix, b)) {
        struct bucket *bucket = &ix->buckets[b];

        for (uint32_t s = 0; s < BUCKET_SLOTS; s++) {
            if (bucket->slot[s] == 0) {
                bucket->slot[s] = slot_of(ix, hash, at);
                ix->n_keys++;
                return;
            }
        }
        bucket->passed++;
    }
}

/* Returns the slot of a key that is in the table, and its bucket in *in. */
static uint32_t *find_slot(struct prefix_index *ix, uint64_t hash,
                           struct position at, uint32_t *in)
{
    uint32_t wanted = slot_of(ix, hash, at);

    for (uint32_t b = home_of(ix, hash);; b = after(ix, b))
        for (uint32_t s = 0; s < BUCKET_SLOTS; s++)
            if (ix->buckets[b].slot[s] == wanted) {
                *in = b;
                return &ix->buckets[b].slot[s];
            }
}

void table_remove(struct prefix_index *ix, uint64_t key, struct position at)
{
    uint64_t hash = key_hash(&ix->secret, key);
    uint32_t in;

    *find_slot(ix, hash, at, &in) = 0;
    for (uint32_t b = home_of(ix, hash); b != in; b = after(ix, b))
        ix->buckets[b].passed--;
    ix->n_keys--;
}

void table_move(struct prefix_index *ix, uint64_t key, struct position from,
                struct position to)
{
    uint64_t hash = key_hash(&ix->secret, key);
    uint32_t in;

    *find_slot(ix, hash, from, &in) = slot_of(ix, hash, to);
}

void table_grow(struct prefix_index *ix)
{
    memset(ix->buckets, 0, ix->n_buckets * sizeof(*ix->buckets));
    ix->n_buckets = ix->n_buckets > ix->max_buckets / 2 ? ix->max_buckets
                                                        : 2 * ix->n_buckets;
    ix->n_keys = 0;
    for (uint32_t page = 1; page < ix->fresh; page++)
        for (uint32_t k = 0; k < ix->pages[page].n_keys; k++)
            table_insert(ix, ix->keys[page][k], (struct position){page, k});
}

bool prefix_index_touch(struct prefix_index *ix)
{
    volatile char *memory = (volatile char *)ix->buckets;
    size_t n = ix->n_buckets * sizeof(*ix->buckets);
    size_t end =
        ix->touched + HUGE_PAGE - ((uintptr_t)memory + ix->touched) % HUGE_PAGE;

    for (; ix->touched < n && ix->touched < end; ix->touched += SMALL_PAGE)
        memory[ix->touched] = memory[ix->touched];
    return ix->touched < n;
}

void prefix_index_prefetch(const struct prefix_index *index,
                           const uint64_t *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        table_prefetch(index, keys[i]);
}
