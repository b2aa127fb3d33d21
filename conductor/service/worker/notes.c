/* See notes.h. */
#include "conductor/service/worker/notes.h"

#include <stdio.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/metrics.h"
#include "conductor/service/service.h"

uint64_t notes_take(struct notes *notes, const struct replication_action *a,
                    const char *from, const char *to, int64_t now_us)
{
    struct note *note = &notes->ring[notes->n % NOTES_MAX];

    *note = (struct note){.action = *a, .at_us = now_us, .blocks = -1};
    note->action.keys = NULL;
    snprintf(note->from, sizeof(note->from), "%s", from);
    snprintf(note->to, sizeof(note->to), "%s", to);
    return notes->n++;
}

void notes_ended(struct notes *notes, uint64_t number, uint32_t blocks)
{
    if (notes->n - number <= NOTES_MAX)
        notes->ring[number % NOTES_MAX].blocks = blocks;
}

/* Returns the k-th newest note; k < count(). */
static const struct note *newest(const struct notes *notes, uint64_t k)
{
    return &notes->ring[(notes->n - 1 - k) % NOTES_MAX];
}

static uint64_t count(const struct notes *notes)
{
    return notes->n < NOTES_MAX ? notes->n : NOTES_MAX;
}

/* Whether a note is of a completed copy to `instance` of this prompt. */
static bool is_of(const struct note *note, uint32_t instance,
                  const uint64_t *keys, size_t n)
{
    const struct replication_action *a = &note->action;

    return a->kind == REPLICATION_COPY && a->to == instance &&
           note->blocks > 0 && a->end_block <= n &&
           keys[a->end_block - 1] == a->key;
}

void notes_why(const struct notes *notes, uint32_t instance,
               const uint64_t *keys, size_t n, int64_t now_us,
               struct note_why *why)
{
    *why = (struct note_why){.from = ""};
    for (uint64_t k = 0; k < count(notes); k++) {
        const struct note *note = newest(notes, k);

        if (!is_of(note, instance, keys, n))
            continue;
        if (!why->from[0]) {
            snprintf(why->from, sizeof(why->from), "%s", note->from);
            why->end_block = note->action.end_block;
            why->age_us = now_us - note->at_us;
            why->reason = note->action.reason;
        }
        why->first_block = note->action.first_block;
    }
}

int note_write_reason(const struct replication_reason *r, struct text_buf *out)
{
    if (r->told)
        return text_buf_printf(out, "{\"told\":true,\"holders\":%u}",
                               r->holders) < 0;
    return text_buf_printf(
               out,
               "{\"per_s\":%.6g,\"busy_ratio\":%.6g,\"after_ratio\":%.6g,"
               "\"holders\":%u,\"wanted\":%u,\"miss_ms\":%.3f,"
               "\"saved_ms\":%.3f,\"copy_bytes\":%lld}",
               r->per_s, r->busy_ratio, r->after_ratio, r->holders, r->wanted,
               (double)r->miss_us / 1e3, (double)r->saved_us / 1e3,
               (long long)r->copy_bytes) < 0;
}

static int write_note(const char *model, const struct note *n, int64_t now_us,
                      const char *comma, struct text_buf *out)
{
    const struct replication_action *a = &n->action;
    const struct replication_reason *r = &a->reason;
    bool drop = a->kind == REPLICATION_DROP;
    char from[2 * POOL_NAME_BYTES], to[2 * POOL_NAME_BYTES];
    char of[2 * SERVICE_MODEL_BYTES];

    metrics_escape(model, of);
    metrics_escape(n->from, from);
    metrics_escape(n->to, to);
    int bad =
        text_buf_printf(out,
                        "%s{\"model\":\"%s\",\"order\":\"%s\",\"age_s\":%.3f,"
                        "\"to\":\"%s\",\"first_block\":%u,\"end_block\":%u,"
                        "\"key\":\"%016llx\",\"reason\":",
                        comma, of, drop ? "drop" : "copy",
                        (double)(now_us - n->at_us) / 1e6, to, a->first_block,
                        a->end_block, (unsigned long long)a->key) < 0;

    if (drop && !r->told)
        return bad | (text_buf_printf(out, "{\"per_s\":%.6g}}", r->per_s) < 0);
    bad |= note_write_reason(r, out);
    if (drop)
        return bad | (text_buf_printf(out, "}") < 0);
    bad |= text_buf_printf(out, ",\"from\":\"%s\",\"bytes_per_s\":%.0f,", from,
                           a->bytes_per_s) < 0;
    if (n->blocks < 0)
        return bad | (text_buf_printf(out, "\"blocks\":null}") < 0);
    return bad |
           (text_buf_printf(out, "\"blocks\":%lld}", (long long)n->blocks) < 0);
}

int notes_write(const struct notes *notes, const char *model, int64_t now_us,
                const char **comma, struct text_buf *out)
{
    int bad = 0;

    for (uint64_t k = 0; k < count(notes); k++) {
        bad |= write_note(model, newest(notes, k), now_us, *comma, out);
        *comma = ",";
    }
    return bad;
}
