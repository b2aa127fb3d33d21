/* See queue.h. */
#include "base/stream/queue.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_BYTES 1024

char *byte_queue_room(struct byte_queue *q, size_t n)
{
    size_t have = byte_queue_length(q), cap = q->cap ? q->cap : LEAST_BYTES;
    char *data;

    if (q->data && q->cap - q->end >= n)
        return q->data + q->end;
    if (n > SIZE_MAX / 4 - have)
        return NULL;
    /* As much was taken as is moved, or the memory grows. */
    if (q->cap - have >= n && q->begin >= have) {
        memmove(q->data, q->data + q->begin, have);
    } else {
        while (cap - have < n || (q->data && cap == q->cap))
            cap *= 2;
        data = malloc(cap);
        if (!data)
            return NULL;
        if (have)
            memcpy(data, q->data + q->begin, have);
        free(q->data);
        q->data = data;
        q->cap = cap;
    }
    q->begin = 0;
    q->end = have;
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

void byte_queue_fini(struct byte_queue *q)
{
    free(q->data);
    *q = (struct byte_queue){0};
}
