/* Bytes, memory, and numbers as Redis reads and writes them. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "tests/world/redis/internal.h"

void *mr_alloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);

    if (!p)
        abort();
    return p;
}

void *mr_grow(void *items, size_t *room, size_t count, size_t size)
{
    if (count == 0)
        return items;
    void *p = array_room(items, room, count, size);

    if (!p)
        abort();
    return p;
}

struct mr_bytes mr_bytes_of(const char *text)
{
    return (struct mr_bytes){text, strlen(text)};
}

struct mr_bytes mr_bytes_copy(struct mr_bytes b)
{
    char *p = mr_alloc(b.n + 1);

    if (b.n)
        memcpy(p, b.data, b.n);
    return (struct mr_bytes){p, b.n};
}

void mr_bytes_free(struct mr_bytes b)
{
    free((char *)(uintptr_t)b.data);
}

bool mr_bytes_equal(struct mr_bytes a, struct mr_bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n) == 0);
}

int mr_bytes_order(struct mr_bytes a, struct mr_bytes b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.data, b.data, n) : 0;

    return order ? order : (a.n > b.n) - (a.n < b.n);
}

bool mr_is(struct mr_bytes b, const char *word)
{
    return strcasecmp(b.data, word) == 0;
}

void mr_put(struct mr_buf *b, const void *bytes, size_t n)
{
    b->data = mr_grow(b->data, &b->room, b->n + n + 1, 1);
    if (n)
        memcpy(b->data + b->n, bytes, n);
    b->n += n;
    b->data[b->n] = '\0';
}

void mr_drop(struct mr_buf *b, size_t n)
{
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->n - n);
    b->n -= n;
    b->data[b->n] = '\0';
}

/* No space, no sign but one minus, no leading zero. */
bool mr_read_int(struct mr_bytes b, long long *value)
{
    char *end;
    size_t sign = b.n > 0 && b.data[0] == '-';

    if (b.n == 0 || b.n > 20 || strlen(b.data) != b.n)
        return false;
    if (b.n == 1 && b.data[0] == '0') {
        *value = 0;
        return true;
    }
    if (b.data[sign] < '1' || b.data[sign] > '9')
        return false;
    errno = 0;
    long long read = strtoll(b.data, &end, 10);

    if (errno || *end)
        return false;
    *value = read;
    return true;
}

bool mr_read_double(struct mr_bytes b, double *value)
{
    char *end;

    if (b.n == 0 || strchr(" \t\n\v\f\r", b.data[0]))
        return false;
    errno = 0;
    double read = strtod(b.data, &end);

    if (end != b.data + b.n || isnan(read) ||
        (errno == ERANGE && (isinf(read) || read == 0.0)))
        return false;
    *value = read;
    return true;
}

bool mr_read_limit(struct mr_bytes b, double *value, bool *open)
{
    char *end;

    *open = b.n > 0 && b.data[0] == '(';
    *value = strtod(b.data + *open, &end);
    return !*end && !isnan(*value);
}

size_t mr_write_score(double score, char out[MR_NUMBER_MAX])
{
    const double whole = (double)(LLONG_MAX / 2);
    int n;

    if (isinf(score))
        n = snprintf(out, MR_NUMBER_MAX, score > 0 ? "inf" : "-inf");
    else if (score > -whole && score < whole &&
             score == (double)(long long)score)
        n = snprintf(out, MR_NUMBER_MAX, "%lld", (long long)score);
    else
        n = snprintf(out, MR_NUMBER_MAX, "%.17g", score);
    return (size_t)n;
}
