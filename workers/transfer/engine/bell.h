/* A bell that any thread rings and the loop's thread hears. Rings that come
 * before it was heard are one. */
#ifndef WORKERS_TRANSFER_ENGINE_BELL_H
#define WORKERS_TRANSFER_ENGINE_BELL_H

struct bell;
struct event_base;

/* Make a bell: heard(arg) is called on the thread of `base` (borrowed). Returns
 * it owned, or NULL. */
[[nodiscard]] struct bell *bell_new(struct event_base *base,
                                    void (*heard)(void *arg), void *arg);

/* Its eventfd, which who has no bell_ring() may write to. */
int bell_fd(const struct bell *b);

/* Free it; nobody may ring it any more. NULL is a no-op. */
void bell_free(struct bell *b);

/* Ring it. On any thread. */
void bell_ring(struct bell *b);

#endif
