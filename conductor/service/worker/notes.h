/* The last orders to copy hot blocks, and to drop cold ones, with their
 * reasons: for /admin/copies, and for /admin/explain of requests that reuse
 * what came by them. */
#ifndef CONDUCTOR_SERVICE_WORKER_NOTES_H
#define CONDUCTOR_SERVICE_WORKER_NOTES_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/core/pool/instance.h"
#include "conductor/core/replication/replication.h"

struct evbuffer;

#define NOTES_MAX 64u

/* An order, for people. */
struct note {
    struct replication_action action; /* its keys are not kept */
    char from[POOL_NAME_BYTES], to[POOL_NAME_BYTES];
    int64_t at_us;
    int64_t blocks; /* that came; -1: it is under way */
};

/* All 0: none. */
struct notes {
    struct note ring[NOTES_MAX];
    uint64_t n; /* ever */
};

/* Notes an order, in place of the oldest one. Returns its number. */
uint64_t notes_take(struct notes *notes, const struct replication_action *a,
                    const char *from, const char *to, int64_t now_us);

/* A copy has brought so many blocks; nothing if its note is gone. */
void notes_ended(struct notes *notes, uint64_t number, uint32_t blocks);

/* Why an instance has blocks that a request reuses there. */
struct note_why {
    char from[POOL_NAME_BYTES]; /* the instance that sent them; "": no
                                   remembered copy brought any of them */
    uint32_t first_block,
        end_block;  /* of the prompt, that its pieces brought */
    int64_t age_us; /* of the last piece's order */
    struct replication_reason reason; /* likewise */
};

/* Looks for copies to an instance of leading blocks keys[0 .. n) that have
 * come. Cost: O(NOTES_MAX). */
void notes_why(const struct notes *notes, uint32_t instance,
               const uint64_t *keys, size_t n, int64_t now_us,
               struct note_why *why);

/* Writes a reason as a JSON object. Returns whether that failed. */
int note_write_reason(const struct replication_reason *reason,
                      struct evbuffer *out);

/*
 * Writes all as JSON objects, the newest first.
 *   model  of the instances.
 *   comma  what stands before the first one: "" or ","; written.
 * Returns whether that failed.
 */
int notes_write(const struct notes *notes, const char *model, int64_t now_us,
                const char **comma, struct evbuffer *out);

#endif
