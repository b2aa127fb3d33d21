/*
 * Bytes in order, in one piece of memory: added behind, taken in front.
 *
 *   data[begin .. end)  the bytes;  end <= cap
 *   begin == end        =>  begin == 0
 */
#ifndef BASE_STREAM_QUEUE_H
#define BASE_STREAM_QUEUE_H

#include <stddef.h>

struct byte_queue {
    char *data; /* NULL: none; all zero is an empty queue */
    size_t begin, end, cap;
};

/* byte_queue_length(q): how many bytes it has. */
static inline size_t byte_queue_length(const struct byte_queue *q)
{
    return q->end - q->begin;
}

/* byte_queue_room(q, n): memory behind its last byte for n more, or NULL: out
 * of memory. byte_queue_add() makes bytes of it. Amortised O(1) a byte. */
char *byte_queue_room(struct byte_queue *q, size_t n);

/* byte_queue_memory(q, n): how much memory it has once there is room for n
 * more. */
size_t byte_queue_memory(const struct byte_queue *q, size_t n);

/* byte_queue_add(q, n): n bytes of the room were written. */
void byte_queue_add(struct byte_queue *q, size_t n);

/* byte_queue_take(q, n): the first n bytes, of those that it has, are gone. An
 * empty queue keeps BYTE_QUEUE_KEEPS bytes of memory at most. */
#define BYTE_QUEUE_KEEPS 4096
void byte_queue_take(struct byte_queue *q, size_t n);

/* byte_queue_trim(q): after a take, gives memory back that is more than eight
 * times its bytes, and moves these, if there is memory to move them to.
 * Amortised O(1) a byte. */
void byte_queue_trim(struct byte_queue *q);

/* byte_queue_fini(q): frees its memory; it is empty then. */
void byte_queue_fini(struct byte_queue *q);

#endif
