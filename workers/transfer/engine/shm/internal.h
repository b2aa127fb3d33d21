/*
 * Shared by the files of the transport over shared memory. engine/ops.h has the
 * ops.
 *
 * Invariants:
 *   a path's mappings last as long as its ops
 *   a grant protects nothing: a peer cannot write here, and if it reads memory
 *     that was reused, the checksums do not match
 */
#ifndef WORKERS_TRANSFER_ENGINE_SHM_INTERNAL_H
#define WORKERS_TRANSFER_ENGINE_SHM_INTERNAL_H

#include "base/loop/loop.h"
#include "workers/transfer/engine/ops.h"
#include "workers/transfer/engine/shm/shm.h"
#include "workers/transfer/engine/sum.h"

#define SHM_TOKEN_BYTES 16u
#define SHM_NAME_BYTES 16u
#define SHM_BOOT_BYTES 36u
#define SHM_DESCRIPTOR_BYTES (SHM_BOOT_BYTES + SHM_NAME_BYTES + SHM_TOKEN_BYTES)
#define SHM_THREADS 2u
/* Bytes that are copied and then hashed while they are in the CPU's cache. */
#define SHM_CHUNK_BYTES (128u << 10)
/* Most connections that have sent no token yet. */
#define SHM_CALLERS_MAX 64u
/* Time for sending the token, and for the answer. */
#define SHM_PATIENCE_US 10000000
/* Pause of accepting when the process is out of file descriptors. */
#define SHM_PAUSE_US 100000

struct shm;

struct shm_region {
    uint8_t *memory;
    uint64_t bytes;
    int fd;                         /* borrowed; -1 in a path */
    const struct shared_card *card; /* to read it; NULL = host memory, mapped */
};

/* The packet that carries the files. */
struct shm_told {
    uint32_t n;
    uint64_t bytes[TRANSPORT_REGIONS_MAX];
    uint64_t card_bytes; /* size of the GPU's pages, the last region; 0 = none
                          */
    uint8_t handle[SHARED_CARD_HANDLE_BYTES];
};

struct shm_path {
    struct op_path base;
    int fd; /* socket to the peer's door; -1 = closed again */
    struct loop_watch watch;
    const struct shared_card *card; /* of this worker, borrowed; NULL = none */
    struct shm_region regions[TRANSPORT_REGIONS_MAX]; /* of the peer, mapped */
    uint32_t n_regions;                               /* 0 = not yet mapped */
};

struct shm_grant {
    LIST_ENTRY(shm_grant) link;
    uint64_t id;
};

LIST_HEAD(shm_grants, shm_grant);

struct shm_offer {
    struct transport_offer base;
    TAILQ_ENTRY(shm_offer) link; /* in shm.offers */
    struct shm *shm;
    const struct transport_offer_ops *ops;
    void *arg;
    uint8_t token[SHM_TOKEN_BYTES];
    struct shm_grants grants;
    struct shm_grants revoked;
    bool withdrawn;
};

/* A connection that has sent no token yet. */
struct shm_caller {
    TAILQ_ENTRY(shm_caller) link;
    struct shm *shm;
    int fd;
    struct loop_watch watch;
};

struct shm_thread {
    struct shm *shm;
    struct sum_run *sum;
    pthread_t thread;
};

struct shm {
    struct transport base;
    struct op_set set;
    struct loop *loop; /* borrowed */
    struct shm_region regions[TRANSPORT_REGIONS_MAX];
    uint32_t n_regions;
    const struct shared_card *card; /* NULL = none */
    char boot[SHM_BOOT_BYTES];
    uint8_t name[SHM_NAME_BYTES]; /* of the socket */
    int listen_fd;
    struct loop_watch listening;
    struct loop_timer resume;         /* ends a pause of listening */
    TAILQ_HEAD(, shm_caller) callers; /* oldest first */
    uint32_t n_callers;
    TAILQ_HEAD(, shm_offer) offers;
    struct shm_thread threads[SHM_THREADS];
    uint32_t n_threads;
    /* Guarded by set.lock: */
    pthread_cond_t more;
    struct op_list todo; /* turns of all paths */
    bool leaving;
};

/* --- copy.c --- */

/* Starts the threads. Returns 0, or -ENOMEM. */
[[nodiscard]] int shm_copy_start(struct shm *s);

/* Stops the threads. */
void shm_copy_stop(struct shm *s);

/* --- door.c: the socket --- */

/* Opens the door: listen. Returns 0, or a negative errno. */
[[nodiscard]] int shm_door_open(struct shm *s);

/* Closes the door, and connections that have sent no token. */
void shm_door_close(struct shm *s);

/* Connects to the peer's door `name` and sends the token. Returns the socket,
 * owned, or a negative errno. */
[[nodiscard]] int shm_door_knock(const uint8_t *name, const uint8_t *token);

/* Receives the files and maps them as regions[TRANSPORT_REGIONS_MAX], with the
 * peer's GPU pages as the last one if `card` (NULL = none) can open them.
 * Returns the number of regions, or a negative errno: -EAGAIN: nothing came
 * yet; -EACCES: refused. */
[[nodiscard]] int shm_door_take(int fd, const struct shared_card *card,
                                struct shm_region *regions);

/* Unmaps the n regions. */
void shm_door_leave(struct shm_region *regions, uint32_t n);

/* --- path.c --- */

/* The functions of transport_ops. */
struct transport_path *shm_open_path(struct transport *t,
                                     const struct transport_peer *peer,
                                     const struct transport_path_ops *ops,
                                     void *arg);
bool shm_reads_card(const struct transport_path *p);
int shm_read(struct transport_path *p, uint64_t op_id, uint64_t grant_id,
             const struct transport_slice *slices, uint32_t n);

/* The functions of op_set. */
void shm_hang_up(struct op_path *p);
void shm_path_free(struct op_path *p);

#endif
