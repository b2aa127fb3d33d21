/* Hot blocks that workers copy from each other ahead of demand: carries out
 * what core's replication orders, as sim/replicate.c does in the simulator. */
#ifndef CONDUCTOR_SERVICE_WORKER_COPIES_H
#define CONDUCTOR_SERVICE_WORKER_COPIES_H

#include <stdbool.h>
#include <stdint.h>

struct frame_header;
struct evbuffer;
struct service;
struct service_request;
struct worker;

/* A piece that a worker fetches. */
struct worker_copy {
    uint64_t attempt_id; /* on the wire; 0: none */
    uint64_t id;         /* core's */
    uint32_t blocks;     /* that were asked for */
    uint64_t note;       /* its number among the notes */
    int64_t begun_us;
    int64_t takes_us; /* from then on, at the rate that it was told */
};

struct copies;

/* Makes the copies of a service, which has a pool. Returned owned; NULL: no
 * memory. */
[[nodiscard]] struct copies *copies_new(struct service *service);

/* Frees it; NULL is a no-op. */
void copies_free(struct copies *copies);

/* A request arrives. */
void copies_asked(const struct service_request *request, int64_t now_us);

/* A frame of instance `id`. Returns whether it is about a copy; then *rc is 0
 * or why the worker is to go. */
bool copies_frame(struct service *service, uint32_t id,
                  const struct frame_header *h, const uint8_t *payload,
                  int *rc);

/* A worker goes: before its slot is cleared. */
void copies_left(struct service *service, const struct worker *worker);

/* Gives up pieces whose workers report nothing, runs a replication pass when it
 * is due, and begins the copies that can begin. */
void copies_tick(struct service *service);

/*
 * Have `copies` instances hold these blocks (n_keys, at least 1, borrowed), of
 * a prompt whose keys have that seed: orders copies, or drops. Appends, as
 * JSON, who holds them now and what was ordered. Returns whether that failed.
 */
int copies_change(struct service *service, const uint64_t *keys,
                  uint32_t n_keys, uint64_t key_seed, uint32_t copies,
                  struct evbuffer *out);

#endif
