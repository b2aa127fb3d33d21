/*
 * What the files of the transport over shared memory share. Nobody else
 * includes this. engine/ops.h has the ops.
 *
 * Invariants:
 *   a path's mappings last until it has no op
 *   a grant is bookkeeping: nobody can write here, and what is read of memory
 *     that was given away does not have its checksums
 */
#ifndef WORKERS_TRANSFER_ENGINE_SHM_INTERNAL_H
#define WORKERS_TRANSFER_ENGINE_SHM_INTERNAL_H

#include "workers/transfer/engine/ops.h"
#include "workers/transfer/engine/shm/shm.h"
#include "workers/transfer/engine/sum.h"

#define SHM_TOKEN_BYTES 16u
#define SHM_NAME_BYTES 16u
#define SHM_BOOT_BYTES 36u
#define SHM_DESCRIPTOR_BYTES (SHM_BOOT_BYTES + SHM_NAME_BYTES + SHM_TOKEN_BYTES)
#define SHM_THREADS 2u
/* So much is copied, and then hashed while it is in the processor's cache. */
#define SHM_CHUNK_BYTES (128u << 10)
/* Processes that have connected and said nothing yet, at most, and how long. */
#define SHM_CALLERS_MAX 64u
#define SHM_PATIENCE_S 10
/* Nobody is let in for so long after the process ran out of descriptors. */
#define SHM_PAUSE_US 100000

struct event;
struct event_base;
struct shm;

struct shm_region {
    uint8_t *memory;
    uint64_t bytes;
    int fd;                         /* borrowed */
    const struct shared_card *card; /* that reads it; NULL: it is mapped */
};

/* What the socket hands out beside the files. */
struct shm_told {
    uint32_t n;
    uint64_t bytes[TRANSPORT_REGIONS_MAX];
    uint64_t card_bytes; /* of the card's pages, the region behind these; 0:
                            there are none */
    uint8_t handle[SHARED_CARD_HANDLE_BYTES];
};

struct shm_path {
    struct op_path base;
    int fd; /* of the socket; -1: it is not needed any more */
    struct event *event;
    const struct shared_card *card; /* this side's, borrowed; NULL: none */
    struct shm_region regions[TRANSPORT_REGIONS_MAX]; /* of the peer, mapped */
    uint32_t n_regions;                               /* 0: not yet */
};

struct shm_grant {
    LIST_ENTRY(shm_grant) link;
    uint64_t id;
};

LIST_HEAD(shm_grants, shm_grant);

struct shm_offer {
    struct transport_offer base;
    TAILQ_ENTRY(shm_offer) link; /* of all */
    struct shm *shm;
    const struct transport_offer_ops *ops;
    void *arg;
    uint8_t token[SHM_TOKEN_BYTES];
    struct shm_grants grants;
    struct shm_grants revoked;
    bool withdrawn;
};

/* A process that has connected. */
struct shm_caller {
    TAILQ_ENTRY(shm_caller) link;
    struct shm *shm;
    int fd;
    struct event *event;
};

struct shm_thread {
    struct shm *shm;
    struct sum_run *sum;
    pthread_t thread;
};

struct shm {
    struct transport base;
    struct op_set set;
    struct event_base *event_base; /* borrowed */
    struct shm_region regions[TRANSPORT_REGIONS_MAX];
    uint32_t n_regions;
    const struct shared_card *card; /* NULL: none */
    char boot[SHM_BOOT_BYTES];
    uint8_t name[SHM_NAME_BYTES]; /* of the socket */
    int listen_fd;
    struct event *listening;
    struct event *resume;             /* listening, after a pause */
    TAILQ_HEAD(, shm_caller) callers; /* the oldest first */
    uint32_t n_callers;
    TAILQ_HEAD(, shm_offer) offers;
    struct shm_thread threads[SHM_THREADS];
    uint32_t n_threads;
    /* By the lock of the set: */
    pthread_cond_t more;
    struct op_list todo; /* the turns of all paths */
    bool leaving;
};

/* --- copy.c --- */

/* Start the threads. 0 or -ENOMEM. */
[[nodiscard]] int shm_copy_start(struct shm *s);

/* Stop them. */
void shm_copy_stop(struct shm *s);

/* --- door.c: the socket --- */

/* Listen. 0 or a negative errno. */
[[nodiscard]] int shm_door_open(struct shm *s);

/* Close it, and those who have said nothing. */
void shm_door_close(struct shm *s);

/* Connect to the socket of that name and say the token. The socket, or a
 * negative errno. */
[[nodiscard]] int shm_door_knock(const uint8_t *name, const uint8_t *token);

/* Take what a door hands out: maps it into regions[TRANSPORT_REGIONS_MAX], with
 * the pages of a card as the last one if `card` (NULL: none) can open them. How
 * many, or a negative errno: -EAGAIN: not yet; -EACCES: the door is shut. */
[[nodiscard]] int shm_door_take(int fd, const struct shared_card *card,
                                struct shm_region *regions);

/* Give it back. */
void shm_door_leave(struct shm_region *regions, uint32_t n);

/* --- path.c --- */

/* As transport_ops. */
struct transport_path *shm_open_path(struct transport *t,
                                     const struct transport_peer *peer,
                                     const struct transport_path_ops *ops,
                                     void *arg);
bool shm_reads_card(const struct transport_path *p);
int shm_read(struct transport_path *p, uint64_t op_id, uint64_t grant_id,
             const struct transport_slice *slices, uint32_t n);

/* As op_set. */
void shm_hang_up(struct op_path *p);
void shm_path_free(struct op_path *p);

#endif
