/* Random commands as Conductor sends them, and damaged ones, for differs.c. */
#ifndef TESTS_WORLD_REDIS_COMMANDS_H
#define TESTS_WORLD_REDIS_COMMANDS_H

#include "tests/world/redis/internal.h"

/* The parts of an answer that may come in any order. */
enum shape {
    SHAPE_EXACT,
    SHAPE_KEYS,
    SHAPE_FIELDS,
    SHAPE_PAIRS,
    SHAPE_RENEWAL,
    SHAPE_SCAN
};

struct command {
    struct mr_words words; /* owned */
    enum shape shape;
};

/* command_draw(random, now_ms, fills, c): draws one; fills: most of them add to
 * two streams, so that these become long. */
void command_draw(struct random_state *random, int64_t now_ms, bool fills,
                  struct command *c);

/* command_put(c, out): appends it in RESP. */
void command_put(const struct command *c, struct mr_buf *out);

/* bytes_draw(random, now_ms, out): appends commands of which some bytes are
 * damaged. */
void bytes_draw(struct random_state *random, int64_t now_ms,
                struct mr_buf *out);

#endif
