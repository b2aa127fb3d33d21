/* See stream.h. */
#include "tools/replay/trace/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
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

void replay_trace_fini(struct replay_trace *trace)
{
    for (size_t i = 0; i < trace->count; i++)
        trace_request_fini(&trace->requests[i]);
    free(trace->requests);
    *trace = (struct replay_trace){0};
}

static int add_request(struct replay_trace *trace,
                       const struct trace_request *request)
{
    if (array_reserve(trace->requests, trace->capacity, trace->count + 1))
        return -ENOMEM;
    trace->requests[trace->count] = (struct trace_request){0};
    int rc = trace_request_copy(&trace->requests[trace->count], request);
    if (rc == 0)
        trace->count++;
    return rc;
}

int replay_trace_load(const struct replay_stream_options *options,
                      struct replay_trace *trace, char *error, size_t size)
{
    struct replay_trace t = {.block_tokens =
                                 options->block_tokens / options->length_scale};
    struct trace_request request = {0};
    struct replay_stream *stream = NULL;
    int rc = replay_stream_open(options, &stream, error, size);

    if (rc != 0)
        return rc;
    snprintf(error, size, "%s: out of memory", options->path);
    while ((rc = replay_stream_next(stream, &request)) > 0) {
        if (request.input_tokens > t.input_max_tokens)
            t.input_max_tokens = request.input_tokens;
        rc = add_request(&t, &request);
        if (rc != 0)
            break;
    }
    if (replay_stream_error(stream)[0] != '\0')
        snprintf(error, size, "%s", replay_stream_error(stream));
    if (rc == 0 && t.count == 0) {
        replay_stream_say_empty(stream, error, size);
        rc = -EINVAL;
    }
    trace_request_fini(&request);
    replay_stream_free(stream);
    if (rc == 0)
        *trace = t;
    else
        replay_trace_fini(&t);
    return rc;
}

/* Requests of one timestamp are swapped, so their blocks are never copied. */
void replay_ties_init(struct replay_ties *ties, uint64_t seed)
{
    random_init(&ties->random, seed);
    ties->ahead = 1;
}

void replay_ties_fini(struct replay_ties *ties)
{
    for (size_t i = 0; i < ties->capacity; i++)
        trace_request_fini(&ties->at[i]);
    free(ties->at);
}

static void swap(struct trace_request *a, struct trace_request *b)
{
    struct trace_request t = *a;

    *a = *b;
    *b = t;
}

/* Makes room for i + 1 requests; new ones are {0}. */
static int make_room(struct replay_ties *ties, size_t i)
{
    size_t before = ties->capacity;
    struct trace_request *at =
        array_room(ties->at, &ties->capacity, i + 1, sizeof at[0]);

    if (!at)
        return -ENOMEM;
    ties->at = at;
    memset(at + before, 0, (ties->capacity - before) * sizeof at[0]);
    return 0;
}

/* Reads all requests of the next timestamp. The first one was read with the
 * previous timestamp, as the one after it. */
static int gather(struct replay_ties *ties,
                  int (*next)(void *, struct trace_request *), void *arg)
{
    bool first = ties->capacity == 0;
    int rc = ties->ahead == 1 ? make_room(ties, 1) : ties->ahead;

    if (rc < 0 || ties->ahead != 1)
        return rc;
    if (first)
        ties->ahead = next(arg, &ties->at[0]);
    else
        swap(&ties->at[0], &ties->at[ties->n]);
    ties->n = ties->given = 0;
    if (ties->ahead != 1)
        return ties->ahead;
    do {
        rc = make_room(ties, ++ties->n);
        if (rc == 0)
            ties->ahead = next(arg, &ties->at[ties->n]);
    } while (rc == 0 && ties->ahead == 1 && ties->n < REPLAY_TIES_MAX &&
             ties->at[ties->n].arrival_us == ties->at[0].arrival_us);
    return rc < 0 ? rc : 1;
}

int replay_ties_next(struct replay_ties *ties,
                     int (*next)(void *arg, struct trace_request *request),
                     void *arg, struct trace_request *request)
{
    int rc = ties->given < ties->n ? 1 : gather(ties, next, arg);

    if (rc != 1)
        return rc;
    size_t left = ties->n - ties->given;
    size_t pick = ties->given + random_below(&ties->random, (uint32_t)left);

    swap(&ties->at[ties->given], &ties->at[pick]);
    swap(&ties->at[ties->given++], request);
    return 1;
}
