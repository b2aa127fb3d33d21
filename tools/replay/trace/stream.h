/*
 * The requests of a trace one by one, streamed from a file or generated: all or
 * a part, optionally without bad lines. Also the options of subcommands about
 * traces.
 */
#ifndef TOOLS_REPLAY_TRACE_STREAM_H
#define TOOLS_REPLAY_TRACE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/options.h"
#include "traces/random.h"
#include "traces/trace.h"

#define REPLAY_STREAM_ERROR_BYTES 512

struct replay_stream_options {
    const char *path;      /* borrowed; name in messages for a generated
                              trace */
    const char *like;      /* workload to generate; NULL = read the file */
    uint64_t like_seed;    /* of the generator */
    double like_rate;      /* requests per second; 0 = the workload's own */
    uint64_t ties_seed;    /* draws the order of requests with one timestamp; 0
                              = file order */
    uint64_t from;         /* requests to skip */
    uint64_t requests;     /* most requests; 0 = all */
    uint32_t block_tokens; /* of the file */
    uint32_t length_scale; /* divides lengths; 0 = 1 */
    bool skip_bad;         /* skip bad lines; else they are an error */
    bool quiet;            /* print nothing about skipped lines */
    bool regular_only;     /* the file is read twice: refuse a pipe */
};

/* Rows for a subcommand's option table. */
#define REPLAY_STREAM_SPECS(o)                                             \
    OPTION_SPEC("trace", OPTION_TEXT, &(o).path, "FILE", 0, 0,             \
                "JSON lines, plain or gzip", .required = true),            \
        OPTION_SPEC("from", OPTION_COUNT, &(o).from, "N", 0, 1e15,         \
                    "skip the first N requests"),                          \
        OPTION_SPEC("requests", OPTION_COUNT, &(o).requests, "N", 1, 1e15, \
                    "read at most N requests"),                            \
        OPTION_SPEC("skip-bad", OPTION_FLAG, &(o).skip_bad, NULL, 0, 0,    \
                    "skip bad lines and count them")

#define REPLAY_SCALE_SPECS(o)                                                 \
    OPTION_SPEC("block-tokens", OPTION_U32, &(o).block_tokens, "N", 1, 65536, \
                "tokens per block of the trace (default 512)"),               \
        OPTION_SPEC("length-scale", OPTION_U32, &(o).length_scale, "S", 1,    \
                    65536,                                                    \
                    "divide lengths and block size by this (default 1)")

/* Checks that the scale divides the block size. Returns 0, or -1 after printing
 * an error of the subcommand `name`. */
[[nodiscard]] int
replay_stream_check(const struct replay_stream_options *options,
                    const char *name);

struct replay_stream;

/* Opens the file. Returns 0 with *source owned by the caller, or a negative
 * errno with a message in `error` (`size` bytes) and *source untouched. */
[[nodiscard]] int
replay_stream_open(const struct replay_stream_options *options,
                   struct replay_stream **source, char *error, size_t size);

/* Closes a source; NULL is a no-op. */
void replay_stream_free(struct replay_stream *source);

/*
 * Reads the next request into `request` ({0} or a filled one); usable as `next`
 * of sim_io with the source as its argument. Prints the first three skipped
 * lines of a file to stderr. Returns 1; 0 at the end; or a negative errno, see
 * replay_stream_error().
 */
[[nodiscard]] int replay_stream_next(void *source,
                                     struct trace_request *request);

/* Returns "FILE:LINE: ..." of the error that ended the source; "" = none. */
const char *replay_stream_error(const struct replay_stream *source);

/* Writes to `error` why an ended source gave no request. */
void replay_stream_say_empty(const struct replay_stream *source, char *error,
                             size_t size);

/* Return the number of bad lines skipped, and the first one's message ("" =
 * none). */
uint64_t replay_stream_skipped(const struct replay_stream *source);
const char *replay_stream_first_skipped(const struct replay_stream *source);

/* The part of a trace to replay, in memory, scaled. */
struct replay_trace {
    struct trace_request *requests; /* (count), scaled */
    size_t count;
    size_t capacity;
    uint32_t block_tokens;     /* scaled */
    uint32_t input_max_tokens; /* longest prompt, scaled */
};

/*
 * Reads and checks the whole part before anything is sent. Returns 0 with
 * *trace filled (free with _fini), or a negative errno with a message in
 * `error` (`size` bytes) and *trace untouched. A part without requests is
 * -EINVAL.
 */
[[nodiscard]] int replay_trace_load(const struct replay_stream_options *options,
                                    struct replay_trace *trace, char *error,
                                    size_t size);

/* Frees what the trace owns. */
void replay_trace_fini(struct replay_trace *trace);

/* Draws the order of requests with one timestamp. Published traces round their
 * timestamps, which hides the real order; each seed gives a possible one. */

/* Most requests of one timestamp ordered together. */
#define REPLAY_TIES_MAX 4096

struct replay_ties {
    struct random_state random;
    struct trace_request *at; /* (capacity): n with one timestamp, then the next
                                 one */
    size_t capacity;
    size_t n, given; /* with one timestamp; already returned */
    int ahead;       /* result of reading the next one */
};

/* Sets the seed of a zeroed struct. */
void replay_ties_init(struct replay_ties *ties, uint64_t seed);

/* Frees what it owns. */
void replay_ties_fini(struct replay_ties *ties);

/* Returns the next request in the drawn order, reading with `next` and `arg`;
 * usable as `next` of sim_io. Returns what `next` did, or -ENOMEM. */
[[nodiscard]] int replay_ties_next(struct replay_ties *ties,
                                   int (*next)(void *arg,
                                               struct trace_request *request),
                                   void *arg, struct trace_request *request);

#endif
