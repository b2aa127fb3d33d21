#include "tests/rdma/dead.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "tests/rdma/rig.h"

/* Longer than any lease of the transport. */
#define PATIENCE_US 20000000

static struct rig rig;

/* Every op that can be is under way, until `rig` is closed or killed. *moves:
 * the first is over. */
static void read_for_ever(atomic_bool *moves)
{
    while (rig.closed == 0) {
        for (uint32_t i = 0; i < RIG_OPS; i++) {
            uint64_t at = (uint64_t)i * RIG_PLACE_BYTES;

            if (rig.ops[i].busy)
                continue;
            rig.ops[i].n = 1;
            rig.ops[i].slices[0] = (struct transport_slice){
                .local = rig.mine + at, .offset = at, .bytes = RIG_PLACE_BYTES};
            if (rig_start(&rig, i) != 0)
                return;
        }
        rig_turn(&rig, 20000);
        atomic_store(moves, rig.n_ended > 0);
    }
}

static bool is_moving(const uint8_t *memory)
{
    for (uint32_t i = 0; i < RIG_OPS; i++)
        if (memory[(uint64_t)i * RIG_PLACE_BYTES] != RIG_PAINT)
            return true;
    return false;
}

static void all_rails(const char *form, uint32_t rails)
{
    for (uint32_t i = 0; i < rails; i++)
        rig_shell(form, i);
}

/* The other one asks, and dies so. */
static void asker_dies(const char *how, int by, bool cut, uint32_t rails)
{
    atomic_bool *moves = mmap(NULL, sizeof(*moves), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (moves == MAP_FAILED)
        rig_fail("no memory");
    pid_t other =
        rig_begin_apart(&rig, &(struct rig_config){.rails = rails}, false);
    if (other == 0) {
        read_for_ever(moves);
        exit(0);
    }
    int64_t end_us = clock_now_us() + PATIENCE_US;
    while (!atomic_load(moves) && clock_now_us() < end_us)
        rig_turn(&rig, 20000);
    if (!atomic_load(moves))
        rig_fail("nothing is read");
    if (cut)
        all_rails("tc qdisc add dev a%u root netem loss 100%%", rails);
    int64_t from_us = clock_now_us();
    kill(other, by);
    rig.holder->ops->revoke(rig.offer, RIG_GRANT);
    rig_wait(&rig, &rig.n_revoked, PATIENCE_US);
    if (rig.n_revoked != 1)
        rig_fail("%s: its grant never ends", how);
    printf("%s: memory is back after %.2f s; ", how,
           (double)(clock_now_us() - from_us) / 1e6);
    if (cut)
        all_rails("tc qdisc del dev a%u root", rails);
    kill(other, SIGCONT);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    munmap(moves, sizeof(*moves));
    rig_end(&rig);
}

static void holder_dies(uint32_t rails)
{
    pid_t other =
        rig_begin_apart(&rig, &(struct rig_config){.rails = rails}, true);

    if (other == 0)
        for (;;)
            rig_turn(&rig, PATIENCE_US);
    memset(rig.mine, RIG_PAINT, RIG_SLAB_BYTES);
    for (uint32_t i = 0; i < RIG_OPS; i++) {
        uint64_t at = (uint64_t)i * RIG_PLACE_BYTES;

        rig.ops[i].n = 1;
        rig.ops[i].slices[0] = (struct transport_slice){
            .local = rig.mine + at, .offset = at, .bytes = RIG_PLACE_BYTES};
        if (rig_start(&rig, i) != 0)
            rig_fail("a read cannot begin");
    }
    while (!is_moving(rig.mine))
        rig_turn(&rig, 20000);
    int64_t from_us = clock_now_us();
    kill(other, SIGKILL);
    if (!rig_drain(&rig, PATIENCE_US))
        rig_fail("reads from a dead holder never end");
    printf("a killed holder: reads end after %.2f s",
           (double)(clock_now_us() - from_us) / 1e6);
    memset(rig.mine, RIG_PAINT, RIG_SLAB_BYTES);
    rig_sleep(&rig, 500000);
    rig_check_paint(rig.mine, RIG_SLAB_BYTES, "a killed holder");
    waitpid(other, NULL, 0);
    rig_end(&rig);
}

void dead_peer(uint32_t rails)
{
    asker_dies("killed", SIGKILL, false, rails);
    asker_dies("stopped", SIGSTOP, false, rails);
    asker_dies("stopped and cut off", SIGSTOP, true, rails);
    holder_dies(rails);
}
