/*
 * A request of a trace, and the error of a bad line.
 *
 * The format is the Mooncake paper's (FAST'25, artifact): one JSON object a
 * line with `timestamp` (ms), `input_length`, `output_length` (tokens) and
 * `hash_ids`, one id per block of 512 tokens; the last block may be partial.
 * Equal ids mean equal content and an equal prefix. Optional fields: `tenant`,
 * the client's number, and `priority`, an integer.
 */
#ifndef TRACES_TRACE_H
#define TRACES_TRACE_H

#include <stddef.h>
#include <stdint.h>

/* Block size of the published traces. */
#define TRACE_BLOCK_TOKENS 512U

/* Largest values in a line; a larger one is an error. */
#define TRACE_TOKENS_MAX (16U * 1024U * 1024U)
#define TRACE_BLOCKS_MAX ((size_t)1 << 20)
#define TRACE_TIMESTAMP_MAX_MS ((uint64_t)1000000000000000)
#define TRACE_ID_MAX ((uint64_t)INT64_MAX)

/* Plain data; hash_ids belongs to the struct. {0} is a valid empty one. */
struct trace_request {
    int64_t arrival_us;
    uint32_t input_tokens;
    uint32_t output_tokens;
    uint64_t tenant; /* client's number; 0 = none */
    int32_t priority;
    size_t block_count;
    size_t block_capacity;
    uint64_t *hash_ids; /* (block_count) */
};

/* Why a line was refused; printable text, cut to its arrays. */
struct trace_error {
    uint64_t line; /* from 1; 0 = not about a line */
    char field[24];
    char value[48];
    char reason[128];
};

/*
 * Makes room for `blocks` ids, by doubling; keeps the present ones.
 * Returns 0, or -ENOMEM with the request unchanged.
 */
[[nodiscard]] int trace_request_reserve(struct trace_request *request,
                                        size_t blocks);

/*
 * Extends the prompt to `tokens` tokens, not fewer than its blocks hold, with
 * the new ids *next_id, *next_id + 1, ... Returns 0, or -ENOMEM with the
 * request unchanged. O(new blocks).
 */
[[nodiscard]] int trace_request_extend(struct trace_request *request,
                                       uint32_t tokens, uint64_t *next_id);

/*
 * Copies `from` into `to`, ids included; `to` is {0} or a filled request and
 * owns its copy. Returns 0 or -ENOMEM. O(blocks).
 */
[[nodiscard]] int trace_request_copy(struct trace_request *to,
                                     const struct trace_request *from);

/* Frees a request's memory and clears it; a cleared one is a no-op. */
void trace_request_fini(struct trace_request *request);

/*
 * Divides lengths by `scale`, rounding up: tokens' = max(1, ceil(tokens /
 * scale)). With the block size divided by the same `scale` (which must divide
 * it), the number of blocks and so the hits stay the same. `scale` is at least
 * 1.
 */
void trace_request_scale(struct trace_request *request, uint32_t scale);

/*
 * Fills `error`: field, the offending value (borrowed, `value_bytes` long, cut
 * to fit, unprintable bytes shown as '?') and a printf-style reason. Returns
 * -EINVAL, for the caller to return.
 */
int trace_error_set(struct trace_error *error, const char *field,
                    const char *value, size_t value_bytes, const char *reason,
                    ...) __attribute__((format(printf, 5, 6)));

/*
 * Writes "FILE:LINE: FIELD VALUE: REASON" into `text` (`size` bytes, always
 * terminated) leaving out empty parts.
 */
void trace_error_format(const struct trace_error *error, const char *file,
                        char *text, size_t size);

#endif
