/* See queue.h. */
#include "base/stream/queue.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_BYTES 1024

/* Moves the bytes to memory of this size. Returns 0 or -ENOMEM. */
static int move(struct byte_queue *q, size_t cap)
{
    size_t have = byte_queue_length(q);
    char *data = malloc(cap);

    if (!data)
        return -ENOMEM;
    if (have)
        memcpy(data, q->data + q->begin, have);
    free(q->data);
    *q = (struct byte_queue){.data = data, .end = have, .cap = cap};
    return 0;
}

size_t byte_queue_memory(const struct byte_queue *q, size_t n)
{
    size_t have = byte_queue_length(q), cap = q->cap ? q->cap : LEAST_BYTES;

    if (q->data && q->cap - q->end >= n)
        return cap;
    if (n > SIZE_MAX / 4 - have)
        return SIZE_MAX;
    /* Keeps the size where moving costs no more than the bytes taken. */
    if (q->cap - have >= n && q->begin >= have)
        return cap;
    while (cap - have < n || (q->data && cap == q->cap))
        cap *= 2;
    return cap;
}

char *byte_queue_room(struct byte_queue *q, size_t n)
{
    size_t have = byte_queue_length(q), cap = byte_queue_memory(q, n);

    if (q->data && q->cap - q->end >= n)
        return q->data + q->end;
    if (cap == q->cap) {
        memmove(q->data, q->data + q->begin, have);
        q->begin = 0;
        q->end = have;
    } else if (cap == SIZE_MAX || move(q, cap)) {
        return NULL;
    }
    return q->data + have;
}

void byte_queue_add(struct byte_queue *q, size_t n)
{
    q->end += n;
}

void byte_queue_take(struct byte_queue *q, size_t n)
{
    q->begin += n;
    if (q->begin < q->end)
        return;
    q->begin = q->end = 0;
    if (q->cap > BYTE_QUEUE_KEEPS)
        byte_queue_fini(q);
}

void byte_queue_trim(struct byte_queue *q)
{
    if (q->cap > BYTE_QUEUE_KEEPS && byte_queue_length(q) <= q->cap / 8)
        move(q, q->cap / 4);
}

void byte_queue_fini(struct byte_queue *q)
{
    free(q->data);
    *q = (struct byte_queue){0};
}
