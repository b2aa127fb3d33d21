/* conductor-replay from-log: a conductor's access log as a trace. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tools/replay/command.h"
#include "tools/result_file.h"
#include "traces/file.h"
#include "traces/lines.h"
#include "traces/scan.h"
#include "traces/writer.h"

static const struct option_usage usage = {
    .name = "from-log",
    .synopsis = "--log FILE [--out FILE]",
    .text = "Makes a trace from a conductor's access log, written with "
            "access_log_blocks: its\nrequests in order of arrival, the first "
            "one at 0. An incomplete answer counts with its\nexpected length. "
            "Requests whose prompt or answer has no known length are left out.",
    .examples = "  conductor-replay from-log --log access.log --out "
                "monday.jsonl.gz\n"
                "  conductor-replay simulate --trace monday.jsonl.gz --cluster "
                "traces/clusters/paper-16.json\n",
};

struct log_requests {
    struct trace_request *at; /* (n) owned */
    size_t n, room;
    uint64_t no_prompt, no_answer, torn; /* left out */
};

static void free_all(struct log_requests *all)
{
    for (size_t i = 0; i < all->n; i++)
        trace_request_fini(&all->at[i]);
    free(all->at);
}

/* Adds a request of one line; takes it over. Returns 0 or -ENOMEM. */
static int add(struct log_requests *all, struct trace_request *request)
{
    if (request->input_tokens == 0 || request->output_tokens == 0) {
        all->no_prompt += request->input_tokens == 0;
        all->no_answer += request->input_tokens > 0;
        return 0;
    }
    if (array_reserve(all->at, all->room, all->n + 1) != 0)
        return -ENOMEM;
    all->at[all->n++] = *request;
    *request = (struct trace_request){0};
    return 0;
}

/* Reports a last line without an end: the writer is still at it, or died. */
static void say_torn(const char *path, uint64_t number)
{
    replay_complain(usage.name,
                    "%s:%" PRIu64 ": the last line has no end; it is skipped "
                    "(the conductor is still writing it or was cut off)",
                    path, number);
}

/* Returns whether the request was refused before its prompt was read. A trace
 * cannot have such a line. */
static bool no_prompt(const struct trace_request *request,
                      const struct trace_error *error)
{
    return request->input_tokens == 0 &&
           strcmp(error->field, "input_length") == 0 &&
           strcmp(error->value, "0") == 0;
}

/* Reads the file. Returns 0, or -1 after printing an error. */
static int read_log(FILE *file, const char *path, struct log_requests *all)
{
    struct trace_request request = {0};
    struct trace_error error = {0};
    uint64_t number = 0;
    char *line = NULL, text[256];
    size_t size = 0;
    ssize_t n;
    int rc = 0;

    while (rc == 0 && (n = getline(&line, &size, file)) >= 0) {
        number++;
        if (line[n - 1] != '\n') {
            say_torn(path, number);
            all->torn++;
            break;
        }
        rc = (size_t)n > TRACE_LINE_BYTES_MAX
                 ? -EINVAL
                 : trace_scan_line(line, (size_t)n, &request, &error);
        if (rc == 0 || (rc == -EINVAL && no_prompt(&request, &error)))
            rc = add(all, &request);
    }
    if (rc == 0 && ferror(file))
        rc = -EIO;
    if (rc == -EINVAL) {
        error.line = number;
        trace_error_format(&error, path, text, sizeof text);
        replay_complain(usage.name, "%s%s", text,
                        strcmp(error.field, "hash_ids") == 0
                            ? " (the conductor's access_log_blocks was false)"
                            : "");
    } else if (rc) {
        replay_complain(usage.name, "%s: %s", path, strerror(-rc));
    }
    trace_request_fini(&request);
    free(line);
    return rc ? -1 : 0;
}

static int by_arrival(const void *a, const void *b)
{
    const struct trace_request *x = a, *y = b;

    return (x->arrival_us > y->arrival_us) - (x->arrival_us < y->arrival_us);
}

/* Says how many requests there are, and why others were left out. */
static void say_counts(const struct log_requests *all)
{
    const struct {
        uint64_t n;
        const char *why;
    } reasons[] = {
        {all->no_prompt, "without a prompt's length (refused before the prompt "
                         "was read, for instance)"},
        {all->no_answer, "without an answer's length (refused, or ended before "
                         "it was known)"},
        {all->torn, "on an unfinished last line"},
    };
    const char *before = ": ";

    fprintf(stderr, "%zu requests, %" PRIu64 " left out", all->n,
            all->no_prompt + all->no_answer + all->torn);
    for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
        if (reasons[i].n > 0) {
            fprintf(stderr, "%s%" PRIu64 " %s", before, reasons[i].n,
                    reasons[i].why);
            before = ", ";
        }
    fputc('\n', stderr);
}

static int write_out(struct log_requests *all, const char *out)
{
    FILE *file = !out                  ? stdout
                 : result_is_open(out) ? result_open(out)
                                       : trace_file_create(out);
    int64_t first_us = all->n ? all->at[0].arrival_us : 0;
    int rc = file ? 0 : -errno;

    for (size_t i = 0; i < all->n && rc == 0; i++) {
        all->at[i].arrival_us -= first_us;
        rc = trace_write(file, &all->at[i]);
    }
    if (file && (out ? fclose(file) : fflush(file)) != 0 && rc == 0)
        rc = -errno;
    if (rc)
        return replay_complain(usage.name, "%s: %s", out ? out : "stdout",
                               strerror(-rc));
    say_counts(all);
    return 0;
}

int replay_command_from_log(int argc, char **argv)
{
    const char *path = NULL, *out = NULL;
    const struct option_spec specs[] = {
        {"log", OPTION_TEXT, &path, "FILE", 0, 0, "the access log",
         .required = true},
        {"out", OPTION_OUTPUT, &out, "FILE", 0, 0,
         "write the trace to this file, gzipped if the name ends in .gz "
         "(default: stdout)"},
    };
    struct log_requests all = {0};
    int status = 0;

    if (replay_parse(&usage, OPTION_TABLE(specs), argc, argv, &status) != 0)
        return status;
    FILE *file = fopen(path, "r");
    if (!file)
        return replay_complain(usage.name, "%s: %s", path, strerror(errno));
    status = read_log(file, path, &all);
    fclose(file);
    if (status == 0) {
        if (all.n)
            qsort(all.at, all.n, sizeof(*all.at), by_arrival);
        status = write_out(&all, out);
    }
    free_all(&all);
    return status;
}
