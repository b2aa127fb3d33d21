/*
 * A recorded session of a coding agent: parses one line of a file into turns.
 * Pure.
 *
 * A line is a JSON object:
 *   block_tokens, tool_tokens, system_tokens
 *   requests: [{t: s since the session began; sub: the agent, 0 the parent;
 *     in, out: tokens; from: the agent whose last prompt `keep` refers to, -1
 *     none; keep: leading blocks shared with it; add: runs [first id, count] of
 *     the further full blocks; api: s until its answer; think: s from the
 *     previous answer to it; model}]
 * api and think may be null or missing = unknown. Other fields are ignored.
 * Ids are chained, as in other traces: equal ids mean equal content and an
 * equal prefix, within the session.
 *
 * A turn waits for these answers:
 *   - an agent's turn follows the answer of the turn before it of that agent;
 *   - a sub-agent's first turn follows the last turn, before it in the file, of
 *     the agent `from` (-1: of the parent);
 *   - the parent's turn also waits for the last answer of each sub-agent whose
 *     last turn stands before it in the file. A sub-agent that still has turns
 *     behind it runs beside the parent.
 */
#ifndef TRACES_RECORDED_SESSION_H
#define TRACES_RECORDED_SESSION_H

#include <stddef.h>
#include <stdint.h>

/* Limits of a line; more is an error. */
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
    uint32_t agent; /* 0 = the parent */
    uint32_t input_tokens;
    uint32_t output_tokens;
    uint32_t base; /* turn whose first `keep` blocks begin its prompt, or
                      RECORDED_NONE */
    uint32_t keep;
    uint32_t first_run; /* index in runs of its further full blocks */
    uint32_t n_runs;
    uint32_t after;   /* turn whose answer precedes it; RECORDED_NONE = first of
                         the session */
    int64_t pause_us; /* from the end of that answer to its start */
    uint32_t joins; /* for a sub-agent's last turn: the parent's turn that waits
                       for its answer; or RECORDED_NONE */
    uint32_t waits; /* number of answers that it waits for */
};

/* Plain data; {0} is a valid empty one. */
struct recorded_session {
    uint32_t block_tokens;
    /* The first shared_blocks blocks of the first prompt are equal in all
     * sessions with this shared_key, a hash of tool_tokens, system_tokens and
     * the first model. */
    uint32_t shared_blocks;
    uint64_t shared_key;
    uint64_t last_id; /* highest id */
    struct recorded_turn *turns;
    size_t n_turns;
    size_t turns_room;
    struct recorded_run *runs;
    size_t n_runs;
    size_t runs_room;
};

/*
 * Reads line[0 .. bytes) into `session`, {0} or one used before.
 * Returns 0; -EINVAL with "requests[3].keep: VALUE: must be ..." in `error`
 * (size bytes); or -ENOMEM. After an error the session can only be read again
 * or finished.
 */
[[nodiscard]] int recorded_session_read(const char *line, size_t bytes,
                                        struct recorded_session *session,
                                        char *error, size_t size);

/* Frees a session's memory and empties it. */
void recorded_session_fini(struct recorded_session *session);

/* Full blocks of a turn's prompt. */
uint32_t recorded_blocks(const struct recorded_session *session, uint32_t turn);

/* Writes the ids of a turn's full blocks to ids[recorded_blocks()]. O(blocks +
 * turns). */
void recorded_session_ids(const struct recorded_session *session, uint32_t turn,
                          uint64_t *ids);

#endif
