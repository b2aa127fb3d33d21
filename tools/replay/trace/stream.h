/*
 * The requests of a trace one by one, read from a file as a stream or
 * generated: a part of it if asked for, without its bad lines if asked for.
 * What a subcommand says about traces on its command line is here as well.
 */
#ifndef TOOLS_REPLAY_TRACE_STREAM_H
#define TOOLS_REPLAY_TRACE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/options.h"
#include "traces/trace.h"

#define REPLAY_STREAM_ERROR_BYTES 512

struct replay_stream_options {
    const char *path;      /* borrowed; of a generated trace its name in
                              messages */
    const char *like;      /* a workload to generate instead; NULL: the file */
    uint64_t like_seed;    /* of what is generated */
    double like_rate;      /* requests per second; 0: the workload's own */
    uint64_t ties_seed;    /* draws the order of requests of one timestamp; 0:
                              that of the trace */
    uint64_t from;         /* requests skipped */
    uint64_t requests;     /* at most; 0: all */
    uint32_t block_tokens; /* of the file */
    uint32_t length_scale; /* divides lengths; 0: as 1 */
    bool skip_bad;         /* go on behind a bad line, else it is an error */
    bool quiet;            /* say nothing of the bad lines that are skipped */
    bool regular_only;     /* the file is read again, so a pipe is refused */
};

/* How its options appear in a subcommand's table. */
#define REPLAY_STREAM_SPECS(o)                                             \
    OPTION_SPEC("trace", OPTION_TEXT, &(o).path, "FILE", 0, 0,             \
                "JSON lines, plain or gzip", .required = true),            \
        OPTION_SPEC("from", OPTION_COUNT, &(o).from, "N", 0, 1e15,         \
                    "skip its first N requests"),                          \
        OPTION_SPEC("requests", OPTION_COUNT, &(o).requests, "N", 1, 1e15, \
                    "only so many of them"),                               \
        OPTION_SPEC("skip-bad", OPTION_FLAG, &(o).skip_bad, NULL, 0, 0,    \
                    "skip bad lines and count them")

#define REPLAY_SCALE_SPECS(o)                                                 \
    OPTION_SPEC("block-tokens", OPTION_U32, &(o).block_tokens, "N", 1, 65536, \
                "block size of the trace (default 512)"),                     \
        OPTION_SPEC("length-scale", OPTION_U32, &(o).length_scale, "S", 1,    \
                    65536, "divides lengths and block size alike (default 1)")

/* Whether the scale divides the block size. 0, or -1 after a complaint of the
 * subcommand `name`. */
[[nodiscard]] int
replay_stream_check(const struct replay_stream_options *options,
                    const char *name);

struct replay_stream;

/* Opens the file. Returns 0 with *source owned by the caller, or a negative
 * errno with a message in `error` (`size` bytes) and *source untouched. */
[[nodiscard]] int
replay_stream_open(const struct replay_stream_options *options,
                   struct replay_stream **source, char *error, size_t size);

/* Closes it; NULL is a no-op. */
void replay_stream_free(struct replay_stream *source);

/*
 * Reads the next request into `request` ({0} or one filled before); it has the
 * shape of sim_io's `next`, with the source as its argument. Bad lines that
 * are skipped are named on stderr, the first three of a file. Returns 1; 0 at
 * the end; or a negative errno, see replay_stream_error().
 */
[[nodiscard]] int replay_stream_next(void *source,
                                     struct trace_request *request);

/* "FILE:LINE: ..." of the error that ended the source; "" if none did. */
const char *replay_stream_error(const struct replay_stream *source);

/* Says in `error` why a source that has ended gave no request. */
void replay_stream_say_empty(const struct replay_stream *source, char *error,
                             size_t size);

/* Bad lines skipped so far, and the message of the first, "" if none. */
uint64_t replay_stream_skipped(const struct replay_stream *source);
const char *replay_stream_first_skipped(const struct replay_stream *source);

#endif
