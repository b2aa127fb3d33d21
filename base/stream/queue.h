/*
 * A byte queue in one piece of memory: added at the end, taken from the
 * front.
 *
 *   data[begin .. end)  the bytes;  end <= cap
 *   begin == end        =>  begin == 0
 */
#ifndef BASE_STREAM_QUEUE_H
#define BASE_STREAM_QUEUE_H

#include <stddef.h>

struct byte_queue {
    char *data; /* NULL = none; all zero is an empty queue */
    size_t begin, end, cap;
};

/* byte_queue_length(q): returns the bytes in the queue. */
static inline size_t byte_queue_length(const struct byte_queue *q)
{
    return q->end - q->begin;
}

/* byte_queue_room(q, n): memory for n bytes behind the last one, to be filled
 * before byte_queue_add(), or NULL: out of memory. Amortised O(1) a byte. */
char *byte_queue_room(struct byte_queue *q, size_t n);

/* byte_queue_memory(q, n): returns its bytes of memory with room for n more. */
size_t byte_queue_memory(const struct byte_queue *q, size_t n);

/* byte_queue_add(q, n): adds the first n bytes of the room. */
void byte_queue_add(struct byte_queue *q, size_t n);

/* byte_queue_take(q, n): removes the first n bytes, n <= its length. An empty
 * queue keeps at most BYTE_QUEUE_KEEPS bytes of memory. */
#define BYTE_QUEUE_KEEPS 4096
void byte_queue_take(struct byte_queue *q, size_t n);

/* byte_queue_trim(q): after a take, moves the bytes to smaller memory if it has
 * over eight times as much as they need, and if allocation succeeds. Amortised
 * O(1) a byte. */
void byte_queue_trim(struct byte_queue *q);

/* byte_queue_fini(q): frees its memory and leaves an empty queue. */
void byte_queue_fini(struct byte_queue *q);

#endif
