/* The last orders to copy hot blocks and to drop cold ones, with their reasons:
 * for /admin/copies, and for /admin/explain of requests that reuse copied
 * blocks. */
#ifndef CONDUCTOR_SERVICE_WORKER_NOTES_H
#define CONDUCTOR_SERVICE_WORKER_NOTES_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/core/pool/instance.h"
#include "conductor/core/replication/replication.h"

struct text_buf;

#define NOTES_MAX 64u

/* An order as shown to operators. */
struct note {
    struct replication_action action; /* without its keys */
    char from[POOL_NAME_BYTES], to[POOL_NAME_BYTES];
    int64_t at_us;
    int64_t blocks; /* copied; -1 = in flight */
};

/* All 0 = no notes. */
struct notes {
    struct note ring[NOTES_MAX];
    uint64_t n; /* orders noted since the start */
};

/* Notes an order, in place of the oldest one. Returns its number. */
uint64_t notes_take(struct notes *notes, const struct replication_action *a,
                    const char *from, const char *to, int64_t now_us);

/* Notes the end of a copy and the number of blocks copied. No-op if its note
 * was replaced. */
void notes_ended(struct notes *notes, uint64_t number, uint32_t blocks);

/* The copies that gave an instance blocks which a request reuses there. */
struct note_why {
    char from[POOL_NAME_BYTES];       /* sender of the last copy; "" = none */
    uint32_t first_block, end_block;  /* of the prompt, copied */
    int64_t age_us;                   /* since the order of the last copy */
    struct replication_reason reason; /* of the last copy */
};

/* Looks up completed copies to an instance among the leading blocks keys[0 ..
 * n) of a prompt. Cost: O(NOTES_MAX). */
void notes_why(const struct notes *notes, uint32_t instance,
               const uint64_t *keys, size_t n, int64_t now_us,
               struct note_why *why);

/* Writes a reason as a JSON object. Returns 0, or not 0: out of memory. */
int note_write_reason(const struct replication_reason *reason,
                      struct text_buf *out);

/*
 * Writes all notes as JSON objects, newest first.
 *   model  name of the instances' model.
 *   comma  text before the first object, "" or ","; set to "," after it.
 * Returns 0, or not 0: out of memory.
 */
int notes_write(const struct notes *notes, const char *model, int64_t now_us,
                const char **comma, struct text_buf *out);

#endif
