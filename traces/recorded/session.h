/*
 * A recorded session of a coding agent: one line of a file to its turns. Pure.
 *
 * A line is a JSON object:
 *   block_tokens, tool_tokens, system_tokens
 *   requests: [{t: s since the session began; sub: the agent, 0 the parent;
 *     in, out: tokens; from: the agent whose last prompt `keep` refers to, -1
 *     none; keep: leading blocks shared with it; add: runs [first id, count] of
 *     the further full blocks; api: s until it was answered; think: s from the
 *     answer before it to it; model}]
 * api and think may be null or missing: nobody knows. Other fields are ignored.
 * Ids are chained, as in other traces: equal ids mean equal content and an
 * equal prefix. They belong to the session.
 *
 * Which answers a turn waits for:
 *   - an agent's turn follows the answer of the turn before it of that agent;
 *   - a sub-agent's first turn follows the last turn, before it in the file, of
 *     the agent `from` (of the parent, if that is -1);
 *   - the parent's turn also waits for the last answer of each sub-agent whose
 *     last turn stands before it in the file. A sub-agent that still has turns
 *     behind it runs beside the parent.
 */
#ifndef TRACES_RECORDED_SESSION_H
#define TRACES_RECORDED_SESSION_H

#include <stddef.h>
#include <stdint.h>

/* What a line may hold at most; more is an error in the line. */
#define RECORDED_TURNS_MAX 16384u
#define RECORDED_AGENTS_MAX 256u
#define RECORDED_ID_MAX UINT32_MAX

/* No turn. */
#define RECORDED_NONE UINT32_MAX

/* Blocks with the ids first, first + 1, ... */
struct recorded_run {
    uint64_t first;
    uint32_t count;
};

struct recorded_turn {
    uint32_t agent; /* 0: the parent */
    uint32_t input_tokens;
    uint32_t output_tokens;
    uint32_t base; /* the turn with whose first `keep` blocks it begins; or
                      RECORDED_NONE */
    uint32_t keep;
    uint32_t first_run; /* of its further full blocks */
    uint32_t n_runs;
    uint32_t after;   /* the turn whose answer it follows; RECORDED_NONE: it is
                         the session's first */
    int64_t pause_us; /* from that answer to it */
    uint32_t joins;   /* the turn of the parent that waits for its answer, if it
                         is a sub-agent's last; or RECORDED_NONE */
    uint32_t waits;   /* answers that it waits for */
};

/* {0} is a valid empty one. */
struct recorded_session {
    uint32_t block_tokens;
    /* The first blocks of its first prompt are those of every session that has
     * the same shared_key: of tool_tokens, system_tokens and the first model.
     */
    uint32_t shared_blocks;
    uint64_t shared_key;
    uint64_t last_id; /* no id is higher */
    struct recorded_turn *turns;
    size_t n_turns;
    size_t turns_room;
    struct recorded_run *runs;
    size_t n_runs;
    size_t runs_room;
};

/*
 * Reads line[0 .. bytes) into `session`, {0} or one that was read before.
 * Returns 0; -EINVAL with "requests[3].keep: VALUE: must be ..." in `error`
 * (size bytes); or -ENOMEM. On an error the session is only good for another
 * read, or _fini.
 */
[[nodiscard]] int recorded_session_read(const char *line, size_t bytes,
                                        struct recorded_session *session,
                                        char *error, size_t size);

/* Frees what it owns and empties it. */
void recorded_session_fini(struct recorded_session *session);

/* Full blocks of a turn's prompt. */
uint32_t recorded_blocks(const struct recorded_session *session, uint32_t turn);

/* Writes the ids of these blocks, (recorded_blocks()). O(blocks + turns). */
void recorded_session_ids(const struct recorded_session *session, uint32_t turn,
                          uint64_t *ids);

#endif
