/* See stream.h. */
#include "tools/replay/trace/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/trace/ties.h"
#include "traces/generate.h"
#include "traces/reader.h"

#define BAD_LINES_NAMED 3

struct replay_stream {
    struct replay_stream_options options;
    struct trace_reader *reader;       /* NULL if there is a generator */
    struct trace_generator *generator; /* NULL if there is a reader */
    struct replay_ties ties;
    uint64_t index; /* in the file, of the next request */
    uint64_t skipped;
    char error[REPLAY_STREAM_ERROR_BYTES];
    char first_skipped[REPLAY_STREAM_ERROR_BYTES];
};

int replay_stream_check(const struct replay_stream_options *options,
                        const char *name)
{
    if (options->block_tokens % options->length_scale == 0)
        return 0;
    return replay_complain(name,
                           "--length-scale %" PRIu32
                           ": must divide the block size of %" PRIu32,
                           options->length_scale, options->block_tokens);
}

int replay_stream_open(const struct replay_stream_options *options,
                       struct replay_stream **source, char *error, size_t size)
{
    const struct trace_reader_options reading = {
        .block_tokens = options->block_tokens,
        .regular_only = options->regular_only};
    struct trace_error why = {0};
    struct replay_stream *s = calloc(1, sizeof *s);
    int rc = -ENOMEM;

    if (!s) {
        trace_error_set(&why, "", "", 0, "out of memory");
        goto refuse;
    }
    s->options = *options;
    replay_ties_init(&s->ties, options->ties_seed);
    if (options->like) {
        rc = trace_generator_new(options->like, options->like_seed,
                                 options->like_rate, &s->generator);
        if (rc != 0)
            trace_error_set(&why, "", "", 0, "cannot be generated: %s",
                            strerror(-rc));
    } else {
        rc = trace_reader_open(options->path, &reading, &s->reader, &why);
    }
    if (rc != 0)
        goto refuse;
    *source = s;
    return 0;

refuse:
    trace_error_format(&why, options->path, error, size);
    free(s);
    return rc;
}

void replay_stream_free(struct replay_stream *source)
{
    if (source) {
        trace_reader_free(source->reader);
        trace_generator_free(source->generator);
        replay_ties_fini(&source->ties);
        free(source);
    }
}

static void name_bad_line(struct replay_stream *s,
                          const struct trace_error *why)
{
    char text[REPLAY_STREAM_ERROR_BYTES];

    trace_error_format(why, s->options.path, text, sizeof text);
    if (s->skipped++ == 0)
        memcpy(s->first_skipped, text, sizeof text);
    if (!s->options.quiet && s->skipped <= BAD_LINES_NAMED)
        fprintf(stderr, "skipped %s%s\n", text,
                s->skipped == BAD_LINES_NAMED ? " (more are only counted)"
                                              : "");
}

/* Reads the next request of the generator, which never ends, or of the file. */
static int read_one(struct replay_stream *s, struct trace_request *request,
                    struct trace_error *why)
{
    if (!s->generator)
        return trace_reader_next(s->reader, request, why);
    int rc = trace_generator_next(s->generator, request);

    if (rc < 0)
        trace_error_set(why, "", "", 0, "out of memory");
    return rc < 0 ? rc : 1;
}

static int next_in_order(void *source, struct trace_request *request)
{
    struct replay_stream *s = source;
    const struct replay_stream_options *o = &s->options;

    while (o->requests == 0 || s->index < o->from + o->requests) {
        struct trace_error why = {0};
        int rc = read_one(s, request, &why);

        if (rc == -EINVAL && o->skip_bad) {
            name_bad_line(s, &why);
            continue;
        }
        if (rc < 0)
            trace_error_format(&why, o->path, s->error, sizeof s->error);
        if (rc <= 0)
            return rc;
        if (s->index++ < o->from)
            continue;
        if (o->length_scale > 1)
            trace_request_scale(request, o->length_scale);
        return 1;
    }
    return 0;
}

int replay_stream_next(void *source, struct trace_request *request)
{
    struct replay_stream *s = source;

    if (s->options.ties_seed == 0)
        return next_in_order(s, request);
    return replay_ties_next(&s->ties, next_in_order, s, request);
}

const char *replay_stream_error(const struct replay_stream *source)
{
    return source->error;
}

void replay_stream_say_empty(const struct replay_stream *source, char *error,
                             size_t size)
{
    const struct replay_stream_options *o = &source->options;

    if (source->index > 0) {
        snprintf(error, size, "%s: holds %llu requests, and --from skips %llu",
                 o->path, (unsigned long long)source->index,
                 (unsigned long long)o->from);
    } else {
        snprintf(error, size, "%s: %s", o->path,
                 source->skipped > 0 ? "holds no good line" : "is empty");
    }
}

uint64_t replay_stream_skipped(const struct replay_stream *source)
{
    return source->skipped;
}

const char *replay_stream_first_skipped(const struct replay_stream *source)
{
    return source->first_skipped;
}
