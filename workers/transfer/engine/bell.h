/* A bell that any thread rings and the loop's thread hears. Several rings
 * before it is heard count as one. */
#ifndef WORKERS_TRANSFER_ENGINE_BELL_H
#define WORKERS_TRANSFER_ENGINE_BELL_H

struct bell;
struct event_base;

/* Makes a bell: heard(arg) is called on the thread of `base` (borrowed).
 * Returns it owned, or NULL. */
[[nodiscard]] struct bell *bell_new(struct event_base *base,
                                    void (*heard)(void *arg), void *arg);

/* Returns the bell's eventfd, for code that rings by writing to it. */
int bell_fd(const struct bell *b);

/* Frees it; no thread may ring it any more. NULL is a no-op. */
void bell_free(struct bell *b);

/* Rings the bell. On any thread. */
void bell_ring(struct bell *b);

#endif
