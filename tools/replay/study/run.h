/*
 * Answers the questions of the scripts of compare, sessions, size and sweep:
 * simulations, a trace's work, and a survey of a trace for kinds of nodes.
 * A question is a line of JSON, and so is its answer; an error is
 * {"error": text, "case": index}.
 */
#ifndef TOOLS_REPLAY_STUDY_RUN_H
#define TOOLS_REPLAY_STUDY_RUN_H

#include <jansson.h>

#include "tools/replay/study/study.h"

struct runner {
    const char *name; /* of the subcommand that asks */
    struct replay_study study;
    struct replay_policies numbers;
    const char *policies, *file, *admission;
    char error[REPLAY_STUDY_ERROR_BYTES];
    int status; /* to end with; 0 = go on */
};

/* A case borrows from this. */
struct run_case {
    struct replay_stream_options source;
    struct policy_settings settings;
    struct closed_loop_options loop;
};

/* Returns a number, 0 if it is missing. */
static inline double run_number(const json_t *from, const char *name)
{
    return json_number_value(json_object_get(from, name));
}

static inline uint64_t run_count(const json_t *from, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(from, name));
}

/* Returns a text; NULL = missing. */
static inline const char *run_text(const json_t *from, const char *name)
{
    return json_string_value(json_object_get(from, name));
}

/* Returns the requests that a question is about; without a path they are the
 * command line's. Borrows from the question. */
struct replay_stream_options run_source(const struct runner *r,
                                        const json_t *question);

/* Reads `cluster`, a cluster file's path or content, groups of nodes of other
 * kinds, and `changes`. Returns 0, or a negative errno with r->error. */
[[nodiscard]] int run_read_cluster(struct runner *r, const json_t *question,
                                   struct cluster *cluster);

/* Reads a case, which borrows from the question and `of`. Returns 0, or a
 * negative errno with r->error. */
[[nodiscard]] int run_read_case(struct runner *r, const json_t *from,
                                struct replay_case *c, struct run_case *of);

/* Returns the survey of a trace for kinds of nodes, or the error
 * (size/survey.c). NULL = out of memory, or r->status is set. */
json_t *run_survey(struct runner *r, const json_t *question);

#endif
