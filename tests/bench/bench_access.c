/* What counting accesses of blocks costs (core/replication/access.h): each
 * request, and each pass, of a sketch of the daemon's size that is full. */
#include <stdint.h>
#include <stdio.h>

#include "bench.h"
#include "conductor/core/replication/access.h"
#include "conductor/core/replication/replication.h"

enum { BLOCKS = 24, SHARED = 6, REQUESTS = 30000, TIPS = 16, PASS_EACH = 3 };

/* A prompt of a conversation: some blocks that others have too, and its own. */
static void draw(uint64_t *keys, uint64_t request)
{
    for (uint64_t i = 0; i < BLOCKS; i++)
        keys[i] =
            1 | mix(i < SHARED ? i + request % 8 * 100 : request * BLOCKS + i);
}

int main(void)
{
    struct access_sketch *s = access_new(
        &(struct access_config){.max_bytes = REPLICATION_SKETCH_BYTES,
                                .half_us = REPLICATION_HALF_US,
                                .seed = 7});
    double add_s = 0.0, pass_s = 0.0, from;
    uint64_t keys[BLOCKS];
    struct access_tip tips[TIPS];
    size_t n = 0, passes = 0;

    if (!s)
        return 1;
    for (uint64_t r = 0; r < REQUESTS; r++) {
        int64_t now_us = (int64_t)r * REPLICATION_PASS_US / PASS_EACH;

        draw(keys, r);
        from = now_s();
        access_add(s, keys, BLOCKS, BLOCKS * 512, 1, now_us);
        add_s += now_s() - from;
        if (r % PASS_EACH != 0)
            continue;
        from = now_s();
        n += access_tips(s, REPLICATION_LEAST_PER_S, now_us, tips, TIPS);
        pass_s += now_s() - from;
        passes++;
    }
    printf("%u places; a request of %d blocks %.2f us, a pass %.1f us "
           "(%.1f tips)\n",
           access_places(s), BLOCKS, add_s * 1e6 / REQUESTS,
           pass_s * 1e6 / (double)passes, (double)n / (double)passes);
    access_free(s);
    return 0;
}
