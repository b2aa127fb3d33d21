/* Reads answers: those that scripts get, and those that tests compare. */
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define DEPTH_MAX 8

static long read_some(const char *bytes, size_t n, struct mr_reply *r,
                      int depth);

void mr_reply_free(struct mr_reply *r)
{
    for (size_t i = 0; i < r->n; i++)
        mr_reply_free(&r->at[i]);
    free(r->at);
    mr_bytes_free(r->text);
    *r = (struct mr_reply){0};
}

static long read_array(const char *bytes, size_t n, size_t used, size_t count,
                       struct mr_reply *r, int depth)
{
    size_t room = 0;

    r->kind = MR_R_ARRAY;
    while (r->n < count) {
        r->at = mr_grow(r->at, &room, r->n + 1, sizeof(*r->at));
        r->at[r->n] = (struct mr_reply){0};
        long took =
            read_some(bytes + used, n - used, &r->at[r->n++], depth + 1);

        if (took <= 0)
            return took;
        used += (size_t)took;
    }
    return (long)used;
}

static long read_bulk(const char *bytes, size_t n, size_t used, size_t count,
                      struct mr_reply *r)
{
    r->kind = MR_R_BULK;
    if (n - used < count + 2)
        return 0;
    r->text = mr_bytes_copy((struct mr_bytes){bytes + used, count});
    return (long)(used + count + 2);
}

static long read_some(const char *bytes, size_t n, struct mr_reply *r,
                      int depth)
{
    const char *end = n ? memchr(bytes, '\n', n) : NULL;

    *r = (struct mr_reply){0};
    if (!end)
        return 0;
    size_t used = (size_t)(end - bytes) + 1;

    if (used < 3 || depth > DEPTH_MAX)
        return -1;
    if (*bytes == '+' || *bytes == '-') {
        r->kind = *bytes == '+' ? MR_R_STATUS : MR_R_ERROR;
        r->text = mr_bytes_copy((struct mr_bytes){bytes + 1, used - 3});
        return (long)used;
    }
    r->value = strtoll(bytes + 1, NULL, 10);
    if (*bytes == ':') {
        r->kind = MR_R_INT;
        return (long)used;
    }
    r->array = *bytes == '*';
    if (*bytes != '*' && *bytes != '$')
        return -1;
    if (r->value < 0)
        return (long)used;
    return r->array ? read_array(bytes, n, used, (size_t)r->value, r, depth)
                    : read_bulk(bytes, n, used, (size_t)r->value, r);
}

long mr_reply_read(const char *bytes, size_t n, struct mr_reply *r)
{
    long took = read_some(bytes, n, r, 0);

    if (took <= 0)
        mr_reply_free(r);
    return took;
}
