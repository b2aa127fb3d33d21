/* See session.h. */
#include "traces/recorded/session.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json_fields.h"
#include "traces/random.h"
#include "traces/trace.h"

#define TIME_MAX_S 1e9
#define MODEL_BYTES 128
#define PATH_BYTES 40
#define PREFIX_TOKENS_MAX INT64_C(16777216) /* TRACE_TOKENS_MAX */

/* State of reading a line. */
struct reading {
    struct recorded_session *session;
    uint32_t last[RECORDED_AGENTS_MAX]; /* each agent's last turn so far */
    double begin_s;                     /* of the previous turn */
    bool no_memory;
    /* When each turn's answer ended; below 0 = unknown. */
    double *ends_s;
    size_t ends_room;
};

static uint32_t integer(struct fields *f, const struct fields_object *o,
                        const char *key, int64_t least, int64_t most)
{
    return (uint32_t)fields_integer(f, o, key, least, most, NULL);
}

/* Reads seconds; -1 = unknown. */
static double seconds(struct fields *f, const struct fields_object *o,
                      const char *key)
{
    const json_t *value = json_object_get(o->json, key);

    if (!value || json_is_null(value))
        return -1.0;
    return fields_number(f, o, key, 0.0, TIME_MAX_S, NULL);
}

static uint64_t key_of(uint64_t tool_tokens, uint64_t system_tokens,
                       const char *model)
{
    uint64_t key = random_mix(random_mix(tool_tokens) ^ system_tokens);

    for (; *model != '\0'; model++)
        key = random_mix(key ^ (unsigned char)*model);
    return key;
}

static uint32_t full_blocks(const struct recorded_session *s,
                            const struct recorded_turn *turn)
{
    return turn->input_tokens / s->block_tokens;
}

/* Reads the i-th run of `add`: [first id, count]. */
static void read_run(struct fields *f, const struct fields_object *o, size_t i,
                     struct recorded_session *s, uint64_t *added)
{
    const json_t *run = json_array_get(json_object_get(o->json, "add"), i);
    json_int_t first = json_integer_value(json_array_get(run, 0));
    json_int_t count = json_integer_value(json_array_get(run, 1));

    if (json_array_size(run) != 2 || !json_is_integer(json_array_get(run, 0)) ||
        !json_is_integer(json_array_get(run, 1)) || first < 0 || count < 1 ||
        count > RECORDED_ID_MAX || first > RECORDED_ID_MAX - (count - 1)) {
        char key[PATH_BYTES];

        snprintf(key, sizeof key, "add[%zu]", i);
        fields_refuse_got(f, o->path, key,
                          "[first id, count], the count above 0 and no id "
                          "above 4294967295",
                          run);
        return;
    }
    s->runs[s->n_runs++] = (struct recorded_run){.first = (uint64_t)first,
                                                 .count = (uint32_t)count};
    *added += (uint64_t)count;
    if ((uint64_t)(first + count - 1) > s->last_id)
        s->last_id = (uint64_t)(first + count - 1);
}

static void read_runs(struct fields *f, const struct fields_object *o,
                      struct reading *r, struct recorded_turn *turn)
{
    const json_t *add = json_object_get(o->json, "add");
    struct recorded_session *s = r->session;
    size_t n = json_array_size(add);
    uint64_t added = 0;

    if (!json_is_array(add)) {
        fields_refuse_value(f, o, "add", "an array of [first id, count]");
        return;
    }
    if (array_reserve(s->runs, s->runs_room, s->n_runs + n) != 0) {
        r->no_memory = true;
        return;
    }
    turn->first_run = (uint32_t)s->n_runs;
    turn->n_runs = (uint32_t)n;
    for (size_t i = 0; f->rc == 0 && i < n; i++)
        read_run(f, o, i, s, &added);
    if (f->rc == 0 && added != full_blocks(s, turn) - turn->keep)
        fields_refuse(
            f, o->path, "add",
            "%llu blocks: must be %u, the full blocks of in (%u) less keep",
            (unsigned long long)added, full_blocks(s, turn) - turn->keep,
            full_blocks(s, turn));
}

/* Sets the turn whose blocks its prompt begins with. */
static void read_base(struct fields *f, const struct fields_object *o,
                      const struct reading *r, struct recorded_turn *turn)
{
    int64_t from =
        fields_integer(f, o, "from", -1, RECORDED_AGENTS_MAX - 1, NULL);
    int64_t most = 0;

    turn->base = RECORDED_NONE;
    if (f->rc == 0 && from >= 0) {
        turn->base = r->last[from];
        if (turn->base == RECORDED_NONE)
            fields_refuse_value(
                f, o, "from", "-1, or an agent with a prompt before this one");
    }
    if (f->rc == 0 && turn->base != RECORDED_NONE) {
        most = recorded_blocks(r->session, turn->base);
        if (most > full_blocks(r->session, turn))
            most = full_blocks(r->session, turn);
    }
    turn->keep = integer(f, o, "keep", 0, most);
}

/* Sets the answer that a turn follows, and the pause after this answer. */
static void place(const struct reading *r, struct recorded_turn *turn,
                  double begin_s, double think_s)
{
    double end_s;

    turn->after = r->last[turn->agent];
    if (turn->after != RECORDED_NONE) {
        turn->pause_us = think_s > 0 ? llround(think_s * 1e6) : 0;
        return;
    }
    turn->after = turn->base != RECORDED_NONE ? turn->base : r->last[0];
    if (turn->after == RECORDED_NONE)
        return;
    end_s = r->ends_s[turn->after];
    if (end_s >= 0 && begin_s > end_s)
        turn->pause_us = llround((begin_s - end_s) * 1e6);
}

static void read_turn(struct fields *f, const struct fields_object *o,
                      struct reading *r)
{
    struct recorded_session *s = r->session;
    struct recorded_turn turn = {.joins = RECORDED_NONE};
    double begin_s = fields_number(f, o, "t", 0.0, TIME_MAX_S, NULL);
    double think_s = seconds(f, o, "think");
    double api_s = seconds(f, o, "api");

    if (f->rc == 0 && begin_s < r->begin_s)
        fields_refuse(f, o->path, "t",
                      "%.15g: must be at least %.15g, the t of the turn before",
                      begin_s, r->begin_s);
    turn.agent = integer(f, o, "sub", 0, RECORDED_AGENTS_MAX - 1);
    if (s->n_turns == 0 && turn.agent != 0)
        fields_refuse_value(f, o, "sub", "0, the parent, in the first turn");
    turn.input_tokens = integer(f, o, "in", 1, TRACE_TOKENS_MAX);
    turn.output_tokens = integer(f, o, "out", 0, TRACE_TOKENS_MAX);
    if (f->rc == 0 && full_blocks(s, &turn) > TRACE_BLOCKS_MAX)
        fields_refuse_value(f, o, "in",
                            "at most 1048576 blocks of block_tokens");
    read_base(f, o, r, &turn);
    if (f->rc == 0)
        read_runs(f, o, r, &turn);
    if (f->rc != 0 || r->no_memory)
        return;
    place(r, &turn, begin_s, think_s);
    turn.waits = turn.after != RECORDED_NONE;
    r->ends_s[s->n_turns] = api_s >= 0 ? begin_s + api_s : -1.0;
    r->begin_s = begin_s;
    r->last[turn.agent] = (uint32_t)s->n_turns;
    s->turns[s->n_turns++] = turn;
}

/* Sets which turns of the parent wait for sub-agents. */
static void join(struct reading *r)
{
    struct recorded_session *s = r->session;

    for (uint32_t agent = 1; agent < RECORDED_AGENTS_MAX; agent++) {
        uint32_t turn = r->last[agent];

        if (turn == RECORDED_NONE)
            continue;
        for (uint32_t i = turn + 1; i < s->n_turns; i++) {
            if (s->turns[i].agent != 0)
                continue;
            s->turns[turn].joins = i;
            s->turns[i].waits++;
            break;
        }
    }
}

static void read_turns(struct fields *f, const struct fields_object *root,
                       struct reading *r)
{
    const json_t *requests = json_object_get(root->json, "requests");
    struct recorded_session *s = r->session;
    size_t n = json_array_size(requests);

    if (n == 0 || n > RECORDED_TURNS_MAX) {
        fields_refuse_value(f, root, "requests",
                            "an array of 1 to 16384 objects");
        return;
    }
    if (array_reserve(s->turns, s->turns_room, n) != 0 ||
        array_reserve(r->ends_s, r->ends_room, n) != 0) {
        r->no_memory = true;
        return;
    }
    for (size_t i = 0; f->rc == 0 && !r->no_memory && i < n; i++) {
        char name[PATH_BYTES], path[PATH_BYTES + 1];
        struct fields_object one = {json_array_get(requests, i), path};

        snprintf(name, sizeof name, "requests[%zu]", i);
        snprintf(path, sizeof path, "%s.", name);
        if (!json_is_object(one.json))
            fields_refuse_got(f, "", name, "an object", one.json);
        else
            read_turn(f, &one, r);
    }
}

static void read_session(struct fields *f, const struct fields_object *root,
                         void *into)
{
    struct reading *r = into;
    struct recorded_session *s = r->session;
    char model[MODEL_BYTES] = "";
    struct fields_object first = {
        json_array_get(json_object_get(root->json, "requests"), 0),
        "requests[0]."};

    s->block_tokens = integer(f, root, "block_tokens", 1, 65536);
    int64_t tool =
        fields_integer(f, root, "tool_tokens", 0, PREFIX_TOKENS_MAX, NULL);
    int64_t system =
        fields_integer(f, root, "system_tokens", 0, PREFIX_TOKENS_MAX, NULL);
    if (f->rc == 0)
        read_turns(f, root, r);
    if (f->rc == 0)
        fields_text(f, &first, "model", model, sizeof model, NULL);
    if (f->rc != 0 || r->no_memory)
        return;
    s->shared_blocks = (uint32_t)((tool + system) / s->block_tokens);
    if (s->shared_blocks > recorded_blocks(s, 0))
        s->shared_blocks = recorded_blocks(s, 0);
    s->shared_key = key_of((uint64_t)tool, (uint64_t)system, model);
    join(r);
}

int recorded_session_read(const char *line, size_t bytes,
                          struct recorded_session *session, char *error,
                          size_t size)
{
    struct fields f = {.what = "", .file = "", .err = error, .err_size = size};
    struct reading r = {.session = session};
    int rc;

    for (size_t i = 0; i < RECORDED_AGENTS_MAX; i++)
        r.last[i] = RECORDED_NONE;
    session->n_turns = session->n_runs = 0;
    session->last_id = 0;
    rc = fields_read(&f, line, bytes, read_session, &r);
    free(r.ends_s);
    return rc == 0 && r.no_memory ? -ENOMEM : rc;
}

void recorded_session_fini(struct recorded_session *session)
{
    free(session->turns);
    free(session->runs);
    *session = (struct recorded_session){0};
}

uint32_t recorded_blocks(const struct recorded_session *session, uint32_t turn)
{
    return full_blocks(session, &session->turns[turn]);
}

/* Writes from the prompt's end to its begin: each turn in the chain of bases
 * adds the blocks that its base lacks. */
void recorded_session_ids(const struct recorded_session *session, uint32_t turn,
                          uint64_t *ids)
{
    uint32_t need = recorded_blocks(session, turn);

    while (need > 0) {
        const struct recorded_turn *t = &session->turns[turn];
        uint32_t at = t->keep;

        for (uint32_t i = 0; i < t->n_runs && at < need; i++) {
            const struct recorded_run *run = &session->runs[t->first_run + i];

            for (uint32_t k = 0; k < run->count && at < need; k++)
                ids[at++] = run->first + k;
        }
        need = need < t->keep ? need : t->keep;
        turn = t->base;
    }
}
