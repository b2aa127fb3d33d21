/* Copies hot blocks between workers ahead of demand: carries out the orders of
 * core/replication, as sim/replicate.c does in the simulator. */
#ifndef CONDUCTOR_SERVICE_WORKER_COPIES_H
#define CONDUCTOR_SERVICE_WORKER_COPIES_H

#include <stdbool.h>
#include <stdint.h>

struct frame_header;
struct service;
struct service_request;
struct text_buf;
struct worker;

/* A run of blocks that a worker copies from another one. */
struct worker_copy {
    uint64_t attempt_id; /* on the wire; 0 = no copy in flight */
    uint64_t id;         /* the order's id in core/replication */
    uint32_t blocks;     /* blocks ordered */
    uint64_t note;       /* from notes_take() */
    int64_t begun_us;
    int64_t takes_us; /* expected from begun_us on, at the ordered rate */
};

struct copies;

/* Creates the copy state of a service, whose pool must exist. Returns it owned,
 * or NULL: out of memory. */
[[nodiscard]] struct copies *copies_new(struct service *service);

/* Frees the copy state; NULL is a no-op. */
void copies_free(struct copies *copies);

/* Tells core/replication that a request for these blocks has arrived. */
void copies_asked(const struct service_request *request, int64_t now_us);

/* Takes a frame from instance `id`. Returns whether it is about a copy; if so,
 * *rc is 0, or the error with which to close the worker's link. */
bool copies_frame(struct service *service, uint32_t id,
                  const struct frame_header *h, const uint8_t *payload,
                  int *rc);

/* Ends the copies from and to a lost worker. Call it before its slot is
 * cleared. */
void copies_left(struct service *service, const struct worker *worker);

/* Gives up overdue copies, runs a replication pass when due, and begins the
 * copies that are possible. */
void copies_tick(struct service *service);

/*
 * Orders copies or drops, so that `copies` instances hold these blocks (n_keys,
 * at least 1, borrowed) of a prompt with this key seed. Appends as JSON the
 * number of holders now and the orders. Returns 0, or not 0: out of memory.
 */
int copies_change(struct service *service, const uint64_t *keys,
                  uint32_t n_keys, uint64_t key_seed, uint32_t copies,
                  struct text_buf *out);

#endif
