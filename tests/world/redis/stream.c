/*
 * Streams. Redis keeps the entries of a stream in nodes, each a listpack with a
 * master entry in front, and "MAXLEN ~" trims whole nodes only: so what is
 * trimmed, and when, depends on the bytes of a listpack, which are counted here
 * as listpack.c and t_stream.c of Redis 7.0 make them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define NODE_ENTRIES 100 /* stream-node-max-entries */
#define NODE_BYTES 4096  /* stream-node-max-bytes */
#define TRIM_MAX (100 * NODE_ENTRIES)
#define PACK_BYTES 7 /* of an empty listpack: head and end */

/* --- places --------------------------------------------------------------- */

int mr_id_order(struct mr_id a, struct mr_id b)
{
    return a.ms != b.ms ? (a.ms > b.ms) - (a.ms < b.ms)
                        : (a.seq > b.seq) - (a.seq < b.seq);
}

bool mr_id_next(struct mr_id *id)
{
    if (id->seq != UINT64_MAX) {
        id->seq++;
        return true;
    }
    if (id->ms == UINT64_MAX)
        return false;
    *id = (struct mr_id){id->ms + 1, 0};
    return true;
}

/* Reads a number as string2ull() of Redis does. Returns whether it is one. */
static bool read_u64(const char *text, uint64_t *value)
{
    struct mr_bytes b = mr_bytes_of(text);
    long long small;
    char *end;

    if (mr_read_int(b, &small)) {
        *value = (uint64_t)small;
        return small >= 0;
    }
    errno = 0;
    *value = strtoull(text, &end, 10);
    return !errno && *text && !*end;
}

bool mr_id_read(struct mr_bytes b, struct mr_id *id, uint64_t seq_without,
                bool strict)
{
    char text[128];
    char *dash;

    if (b.n > sizeof(text) - 1)
        return false;
    memcpy(text, b.data, b.n + 1);
    if ((text[0] == '-' || text[0] == '+') && !text[1]) {
        *id = text[0] == '-' ? (struct mr_id){0}
                             : (struct mr_id){UINT64_MAX, UINT64_MAX};
        return !strict;
    }
    dash = strchr(text, '-');
    if (dash)
        *dash = '\0';
    id->seq = seq_without;
    return read_u64(text, &id->ms) && (!dash || read_u64(dash + 1, &id->seq));
}

size_t mr_id_write(struct mr_id id, char out[MR_NUMBER_MAX])
{
    return (size_t)snprintf(out, MR_NUMBER_MAX, "%" PRIu64 "-%" PRIu64, id.ms,
                            id.seq);
}

/* --- bytes of a listpack -------------------------------------------------- */

/* Returns the bytes of an element with its length, which stands behind it. */
static size_t with_length(size_t n)
{
    return n + (n < 128         ? 1
                : n < 16384     ? 2
                : n < 2097152   ? 3
                : n < 268435456 ? 4
                                : 5);
}

static size_t bytes_of_int(int64_t v)
{
    return with_length(v >= 0 && v < 128                  ? 1
                       : v >= -4096 && v < 4096           ? 2
                       : v >= INT16_MIN && v <= INT16_MAX ? 3
                       : v >= -8388608 && v <= 8388607    ? 4
                       : v >= INT32_MIN && v <= INT32_MAX ? 5
                                                          : 9);
}

static size_t bytes_of_text(struct mr_bytes b)
{
    long long v;

    if (mr_read_int(b, &v))
        return bytes_of_int(v);
    return with_length(b.n + (b.n < 64 ? 1 : b.n < 4096 ? 2 : 5));
}

static bool same_fields(const struct mr_node *node,
                        const struct mr_bytes *words, size_t n)
{
    if (node->fields.n != n / 2)
        return false;
    for (size_t i = 0; i < n; i += 2)
        if (!mr_bytes_equal(node->fields.at[i / 2], words[i]))
            return false;
    return true;
}

/* A node's master entry: entries, deleted ones, fields, and an end. */
static void begin_node(struct mr_stream *s, struct mr_id id,
                       const struct mr_bytes *words, size_t n)
{
    struct mr_node node = {.first = id};

    node.bytes = PACK_BYTES + bytes_of_int(1) + bytes_of_int(0) +
                 bytes_of_int((int64_t)n / 2) + bytes_of_int(0);
    for (size_t i = 0; i < n; i += 2) {
        node.fields.at = mr_grow(node.fields.at, &node.fields.room,
                                 node.fields.n + 1, sizeof(struct mr_bytes));
        node.fields.at[node.fields.n++] = mr_bytes_copy(words[i]);
        node.bytes += bytes_of_text(words[i]);
    }
    s->nodes =
        mr_grow(s->nodes, &s->nodes_room, s->n_nodes + 1, sizeof(*s->nodes));
    s->nodes[s->n_nodes++] = node;
}

/* Flags, the place behind the master's, fields unless they are its, values, and
 * how many elements these are. */
static size_t bytes_of_entry(const struct mr_node *node, struct mr_id id,
                             const struct mr_bytes *words, size_t n)
{
    bool same = same_fields(node, words, n);
    size_t fields = n / 2;
    size_t bytes = bytes_of_int(2 * same) +
                   bytes_of_int((int64_t)(id.ms - node->first.ms)) +
                   bytes_of_int((int64_t)(id.seq - node->first.seq));

    if (!same)
        bytes += bytes_of_int((int64_t)fields);
    for (size_t i = 0; i < n; i++)
        if (i % 2 == 1 || !same)
            bytes += bytes_of_text(words[i]);
    return bytes +
           bytes_of_int((int64_t)(fields + 3 + (same ? 0 : fields + 1)));
}

/* --- entries -------------------------------------------------------------- */

void mr_stream_add(struct mr_stream *s, struct mr_id id,
                   const struct mr_bytes *words, size_t n)
{
    struct mr_node *node = s->n_nodes ? &s->nodes[s->n_nodes - 1] : NULL;
    struct mr_entry *e;
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += words[i].n;
    if (!node || node->bytes + bytes >= NODE_BYTES ||
        node->entries >= NODE_ENTRIES)
        begin_node(s, id, words, n);
    node = &s->nodes[s->n_nodes - 1];
    node->bytes += bytes_of_entry(node, id, words, n);
    node->entries++;
    s->at = mr_grow(s->at, &s->room, s->n + 1, sizeof(*s->at));
    e = &s->at[s->n++];
    *e = (struct mr_entry){.id = id};
    e->words.at = mr_alloc(n * sizeof(*e->words.at));
    e->words.n = n;
    for (size_t i = 0; i < n; i++)
        e->words.at[i] = mr_bytes_copy(words[i]);
    s->bytes += bytes;
    s->last = id;
}

static void drop_entry(struct mr_stream *s, size_t i)
{
    for (size_t k = 0; k < s->at[i].words.n; k++)
        s->bytes -= s->at[i].words.at[k].n;
    mr_words_free(&s->at[i].words);
}

size_t mr_stream_trim(struct mr_stream *s, long long max)
{
    size_t nodes = 0, gone = 0;

    while (nodes < s->n_nodes && (long long)(s->n - gone) > max) {
        size_t n = s->nodes[nodes].entries;

        if (gone + n > TRIM_MAX || (long long)(s->n - gone - n) < max)
            break;
        mr_words_free(&s->nodes[nodes++].fields);
        gone += n;
    }
    if (nodes == 0)
        return 0;
    for (size_t i = 0; i < gone; i++)
        drop_entry(s, i);
    s->n -= gone;
    s->n_nodes -= nodes;
    memmove(s->at, s->at + gone, s->n * sizeof(*s->at));
    memmove(s->nodes, s->nodes + nodes, s->n_nodes * sizeof(*s->nodes));
    return gone;
}

size_t mr_stream_behind(const struct mr_stream *s, struct mr_id id)
{
    size_t low = 0, high = s->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (mr_id_order(s->at[mid].id, id) <= 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void words_copy(struct mr_words *to, const struct mr_words *from)
{
    to->at = mr_alloc(from->n * sizeof(*to->at));
    to->n = to->room = from->n;
    for (size_t i = 0; i < from->n; i++)
        to->at[i] = mr_bytes_copy(from->at[i]);
}

void mr_stream_copy(struct mr_stream *to, const struct mr_stream *from)
{
    *to = (struct mr_stream){.n = from->n,
                             .room = from->n,
                             .n_nodes = from->n_nodes,
                             .nodes_room = from->n_nodes,
                             .bytes = from->bytes,
                             .last = from->last};
    to->at = mr_alloc(from->n * sizeof(*to->at));
    to->nodes = mr_alloc(from->n_nodes * sizeof(*to->nodes));
    for (size_t i = 0; i < from->n; i++) {
        to->at[i].id = from->at[i].id;
        words_copy(&to->at[i].words, &from->at[i].words);
    }
    for (size_t i = 0; i < from->n_nodes; i++) {
        to->nodes[i] = from->nodes[i];
        to->nodes[i].fields = (struct mr_words){0};
        words_copy(&to->nodes[i].fields, &from->nodes[i].fields);
    }
}

void mr_stream_clear(struct mr_stream *s)
{
    for (size_t i = 0; i < s->n; i++)
        drop_entry(s, i);
    for (size_t i = 0; i < s->n_nodes; i++)
        mr_words_free(&s->nodes[i].fields);
    free(s->at);
    free(s->nodes);
    *s = (struct mr_stream){0};
}

void mr_stream_check(const struct mr_stream *s)
{
    size_t entries = 0;

    for (size_t i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i].entries == 0)
            abort();
        entries += s->nodes[i].entries;
    }
    if (entries != s->n ||
        (s->n && mr_id_order(s->at[s->n - 1].id, s->last) > 0))
        abort();
    for (size_t i = 1; i < s->n; i++)
        if (mr_id_order(s->at[i - 1].id, s->at[i].id) >= 0)
            abort();
}
