/* A transport that asks and one that holds, in one process of the virtual
 * machine: the first has the devices rxea*, the other rxeb*, and what passes
 * between them crosses the cables. */
#ifndef TESTS_RDMA_RIG_H
#define TESTS_RDMA_RIG_H

#include <sys/types.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/rdma.h"

struct loop;

#define RIG_SLAB_BYTES (8u << 20)
#define RIG_OPS 8u
/* Of each slab, an op in each place. */
#define RIG_PLACE_BYTES (RIG_SLAB_BYTES / RIG_OPS)
#define RIG_GRANT 77u
/* What memory that was given away is filled with. */
#define RIG_PAINT 0xa5

struct rig_op {
    uint64_t id;
    bool busy;
    int rc; /* 1: it has not ended yet */
    uint32_t n;
    struct transport_slice slices[64];
    uint64_t bytes;
};

struct rig {
    struct loop *loop;
    struct stream_loop *streams;
    struct loop_timer alarm; /* of rig_turn() */
    struct transport *asker, *holder;
    struct transport_offer *offer;
    struct transport_path *path;
    uint8_t descriptor[TRANSPORT_DESCRIPTOR_MAX];
    size_t n_descriptor;
    uint8_t *mine, *theirs; /* (RIG_SLAB_BYTES) */
    struct rig_op ops[RIG_OPS];
    uint32_t n_busy;
    int n_revoked, n_withdrawn;
    int stands; /* stands() was called */
    int closed; /* what closed() said; 0: nothing */
    uint64_t n_ended;
};

/* What a rig is made of; zeros are defaults. */
struct rig_config {
    uint32_t rails; /* the first so many of the machine */
    uint32_t end_points;
    int64_t stall_us;
};

/* Lines of the log that had `text` in them since the program began. */
uint32_t rig_log_count(const char *text);

/* Prints the log: RIG_LOG is in the environment. */
void rig_show_log(void);

/* Makes both sides, with a path that stands. Ends the program if it cannot. */
void rig_begin(struct rig *rig, const struct rig_config *config);

/* The same with the sides in two processes: forks, and makes one side in each,
 * in the caller the one that asks or the other. Returns the other process, in
 * that one 0. */
pid_t rig_begin_apart(struct rig *rig, const struct rig_config *config,
                      bool asks);

/* Closes all that this process has, in order. */
void rig_end(struct rig *rig);

/* Fails unless so many bytes of `memory` are paint: `what` was given away. */
void rig_check_paint(const uint8_t *memory, uint64_t bytes, const char *what);

/* Opens another path to the holder. */
void rig_open(struct rig *rig);

/* Begins an op of those slices, which are set, in that place. Returns what
 * read() does. */
int rig_start(struct rig *rig, uint32_t place);

/* The loop turns once, for at most so long. */
void rig_turn(struct rig *rig, int64_t us);

/* The loop turns, for so long; or until *what is not 0, at most so long. */
void rig_sleep(struct rig *rig, int64_t us);
void rig_wait(struct rig *rig, const int *what, int64_t us);

/* Until no op is left, at most so long. False: some are. */
bool rig_drain(struct rig *rig, int64_t us);

/* Runs a shell command of that form, with the number in it. */
void rig_shell(const char *form, uint32_t number);

/* The case failed: prints why and ends the program. */
__attribute__((format(printf, 1, 2), noreturn)) void
rig_fail(const char *format, ...);

/* A random number of the case's seed. */
uint32_t rig_random(void);
void rig_seed(uint64_t seed);

#endif
