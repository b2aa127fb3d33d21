/* See loop.h. */
#include "traces/recorded/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "traces/lines.h"
#include "traces/random.h"
#include "traces/recorded/session.h"

#define ERROR_BYTES 512

/* Ids of shared blocks begin here; all other ids are below. */
#define SHARED_ID (UINT64_C(1) << 62)

/* A session in flight. */
struct slot {
    struct recorded_session session;
    uint64_t number;  /* order of start */
    uint64_t base_id; /* offset of its block ids */
    uint32_t n_turns; /* turns before the first prompt that is too long */
    uint32_t unanswered;
    uint32_t in_flight;
    bool lost;
    /* Per turn: number of answers it still waits for, and its earliest
     * start. */
    struct slot_turn {
        uint32_t waits;
        int64_t due_us;
    } * turns;
    size_t turns_room;
};

/* A turn that waits for its start time, or is in flight. */
struct place {
    int64_t due_us;
    uint64_t number; /* turn number, once in flight */
    uint32_t slot;
    uint32_t turn;
};

struct places {
    struct place *at;
    size_t n;
    size_t room;
};

struct closed_loop {
    struct closed_loop_options options;
    struct trace_lines *lines;
    bool found; /* this pass over the file has found a usable session */
    uint64_t next_id;
    struct slot *slots;    /* (in_flight) */
    struct places waiting; /* turns that wait only for their start time */
    size_t first;          /* index in `waiting` of the next to start */
    struct places flying;  /* started, not ended */
    uint64_t *ids;         /* of one prompt, in the file's blocks */
    size_t ids_room;
    struct closed_loop_counts counts;
    char error[ERROR_BYTES];
};

static int say(struct closed_loop *loop, uint64_t line, int rc, const char *why)
{
    const char *path = loop->options.path;

    if (rc == -ENOMEM)
        why = "out of memory";
    return line > 0
               ? error_say(loop->error, ERROR_BYTES, rc, "%s:%llu: %s", path,
                           (unsigned long long)line, why)
               : error_say(loop->error, ERROR_BYTES, rc, "%s: %s", path, why);
}

static int say_trace(struct closed_loop *loop, int rc,
                     const struct trace_error *why)
{
    trace_error_format(why, loop->options.path, loop->error, ERROR_BYTES);
    return rc;
}

/* Reads the next line; at the end of the file, the first line again. */
static int next_line(struct closed_loop *loop, const char **line, size_t *bytes)
{
    struct trace_error why = {0};
    int rc = loop->lines ? trace_lines_next(loop->lines, line, bytes, &why) : 0;

    if (rc != 0)
        return rc < 0 ? say_trace(loop, rc, &why) : 0;
    if (loop->lines && !loop->found)
        return say(loop, 0, -EINVAL,
                   "no session has a first prompt within the limit");
    trace_lines_free(loop->lines);
    loop->lines = NULL;
    loop->found = false;
    rc = trace_lines_open(loop->options.path, true, &loop->lines, &why);
    if (rc == 0)
        rc = trace_lines_next(loop->lines, line, bytes, &why);
    if (rc < 0)
        return say_trace(loop, rc, &why);
    return rc == 1 ? 0 : say(loop, 0, -EINVAL, "is empty");
}

static uint32_t turns_within(const struct recorded_session *s, uint32_t most)
{
    uint32_t n = 0;

    while (n < s->n_turns && s->turns[n].input_tokens <= most)
        n++;
    return n;
}

static int read_session(struct closed_loop *loop, struct slot *slot)
{
    uint32_t block_tokens = loop->options.block_tokens;
    char why[ERROR_BYTES / 2] = "";
    const char *line = NULL;
    size_t bytes = 0;

    do {
        int rc = next_line(loop, &line, &bytes);

        if (rc != 0)
            return rc;
        rc =
            recorded_session_read(line, bytes, &slot->session, why, sizeof why);
        if (rc == 0 && block_tokens % slot->session.block_tokens != 0)
            rc = error_say(why, sizeof why, -EINVAL,
                           "block_tokens: %u: must divide %u, the blocks of "
                           "the cluster or server",
                           slot->session.block_tokens, block_tokens);
        if (rc != 0)
            return say(loop, trace_lines_number(loop->lines), rc, why);
        slot->n_turns =
            turns_within(&slot->session, loop->options.input_max_tokens);
    } while (slot->n_turns == 0);
    loop->found = true;
    return 0;
}

static bool comes_before(const struct closed_loop *loop, const struct place *a,
                         const struct place *b)
{
    uint64_t x = loop->slots[a->slot].number;
    uint64_t y = loop->slots[b->slot].number;

    if (a->due_us != b->due_us)
        return a->due_us < b->due_us;
    return x != y ? x < y : a->turn < b->turn;
}

static void find_first(struct closed_loop *loop)
{
    const struct places *w = &loop->waiting;

    loop->first = 0;
    for (size_t i = 1; i < w->n; i++)
        if (comes_before(loop, &w->at[i], &w->at[loop->first]))
            loop->first = i;
}

static int add_place(struct places *p, const struct place *place)
{
    if (array_reserve(p->at, p->room, p->n + 1) != 0)
        return -ENOMEM;
    p->at[p->n++] = *place;
    return 0;
}

static void drop_place(struct places *p, size_t i)
{
    p->at[i] = p->at[--p->n];
}

/* Handles the end of one of a turn's awaited answers; the turn starts at due_us
 * or later. */
static int come_nearer(struct closed_loop *loop, struct slot *slot,
                       uint32_t turn, int64_t due_us)
{
    struct slot_turn *t = &slot->turns[turn];

    if (due_us > t->due_us)
        t->due_us = due_us;
    if (t->waits > 0)
        t->waits--;
    if (t->waits > 0)
        return 0;
    const struct place place = {.due_us = t->due_us,
                                .slot = (uint32_t)(slot - loop->slots),
                                .turn = turn};
    return add_place(&loop->waiting, &place);
}

/* Begins another session in an ended one's slot, if one is due. */
static int begin_session(struct closed_loop *loop, struct slot *slot,
                         int64_t at_us)
{
    const struct closed_loop_options *o = &loop->options;
    int rc;

    if ((o->sessions > 0 && loop->counts.started == o->sessions) ||
        (o->until_us > 0 && at_us >= o->until_us))
        return 0;
    rc = read_session(loop, slot);
    if (rc != 0)
        return rc;
    if (array_reserve(slot->turns, slot->turns_room, slot->n_turns) != 0)
        return say(loop, 0, -ENOMEM, "");
    for (uint32_t i = 0; i < slot->n_turns; i++)
        slot->turns[i] =
            (struct slot_turn){.waits = slot->session.turns[i].waits};
    slot->number = loop->counts.started++;
    slot->base_id = loop->next_id;
    /* Reserves ids for the prompts' partial last blocks, too. */
    loop->next_id += slot->session.last_id + 1 + slot->n_turns;
    slot->unanswered = slot->n_turns;
    slot->lost = false;
    rc = come_nearer(loop, slot, 0, at_us);
    return rc == 0 ? 0 : say(loop, 0, rc, "");
}

int closed_loop_open(const struct closed_loop_options *options,
                     struct closed_loop **loop, char *error, size_t size)
{
    struct closed_loop *l = calloc(1, sizeof *l);
    int rc = l ? 0 : -ENOMEM;

    if (l) {
        l->options = *options;
        l->slots = calloc(options->in_flight, sizeof *l->slots);
        rc = l->slots ? 0 : -ENOMEM;
    }
    for (uint32_t i = 0; rc == 0 && i < options->in_flight; i++)
        rc = begin_session(l, &l->slots[i], 0);
    if (rc == 0) {
        find_first(l);
        *loop = l;
        return 0;
    }
    snprintf(error, size, "%s",
             l && l->error[0] != '\0' ? l->error : "out of memory");
    closed_loop_free(l);
    return rc;
}

void closed_loop_free(struct closed_loop *loop)
{
    if (!loop)
        return;
    for (uint32_t i = 0; loop->slots && i < loop->options.in_flight; i++) {
        recorded_session_fini(&loop->slots[i].session);
        free(loop->slots[i].turns);
    }
    free(loop->slots);
    free(loop->waiting.at);
    free(loop->flying.at);
    free(loop->ids);
    trace_lines_free(loop->lines);
    free(loop);
}

int64_t closed_loop_due_us(const struct closed_loop *loop)
{
    int64_t due_us =
        loop->waiting.n > 0 ? loop->waiting.at[loop->first].due_us : -1;
    int64_t until_us = loop->options.until_us;

    return until_us > 0 && due_us >= until_us ? -1 : due_us;
}

/* Maps the session's ids of a prompt's n blocks to the loop's ids. A shared
 * block is always in its place of the first prompt, since an id also stands for
 * all blocks before it. O(n). */
static void show_ids(const struct slot *slot, uint64_t *ids, uint32_t n)
{
    const struct recorded_session *s = &slot->session;
    const struct recorded_run *run = s->runs; /* all of the first prompt */
    uint32_t in_run = 0;

    for (uint32_t at = 0; at < n; at++) {
        bool shared = at < s->shared_blocks && ids[at] == run->first + in_run;

        ids[at] =
            shared
                ? SHARED_ID | (random_mix(s->shared_key + at) & (SHARED_ID - 1))
                : slot->base_id + ids[at];
        if (at < s->shared_blocks && ++in_run == run->count) {
            run++;
            in_run = 0;
        }
    }
}

/* Writes the prompt in the requests' block size, a multiple of the file's. A
 * block gets the id of the last file block in it, which stands for all before
 * it. */
static int fill_request(struct closed_loop *loop, const struct place *place,
                        struct trace_request *request)
{
    const struct slot *slot = &loop->slots[place->slot];
    const struct recorded_session *s = &slot->session;
    const struct recorded_turn *t = &s->turns[place->turn];
    uint32_t of = loop->options.block_tokens / s->block_tokens;
    size_t n = t->input_tokens / loop->options.block_tokens;

    if (array_reserve(loop->ids, loop->ids_room,
                      recorded_blocks(s, place->turn) + (size_t)1) != 0 ||
        trace_request_reserve(request, n + 1) != 0)
        return -ENOMEM;
    recorded_session_ids(s, place->turn, loop->ids);
    show_ids(slot, loop->ids, recorded_blocks(s, place->turn));
    for (size_t i = 0; i < n; i++)
        request->hash_ids[i] = loop->ids[(i + 1) * of - 1];
    if (t->input_tokens % loop->options.block_tokens != 0)
        request->hash_ids[n++] = slot->base_id + s->last_id + 1 + place->turn;
    request->block_count = n;
    request->arrival_us = place->due_us;
    request->input_tokens = t->input_tokens;
    request->output_tokens = t->output_tokens;
    request->tenant = 0;
    request->priority = 0;
    return 0;
}

int closed_loop_next(struct closed_loop *loop, struct trace_request *request)
{
    struct place place;
    int rc;

    if (closed_loop_due_us(loop) < 0)
        return 0;
    place = loop->waiting.at[loop->first];
    place.number = loop->counts.turns;
    rc = fill_request(loop, &place, request);
    if (rc == 0)
        rc = add_place(&loop->flying, &place);
    if (rc != 0)
        return say(loop, 0, rc, "");
    drop_place(&loop->waiting, loop->first);
    find_first(loop);
    loop->slots[place.slot].in_flight++;
    loop->counts.turns++;
    return 1;
}

/* Notifies the turns that wait for the answer of `turn`. */
static int answer(struct closed_loop *loop, struct slot *slot, uint32_t turn,
                  int64_t at_us)
{
    const struct recorded_turn *turns = slot->session.turns;
    uint32_t joins = turns[turn].joins;
    int rc = 0;

    slot->unanswered--;
    for (uint32_t i = turn + 1; rc == 0 && i < slot->n_turns; i++) {
        int64_t pause_us = turns[i].pause_us;

        if (turns[i].after != turn)
            continue;
        if (pause_us > loop->options.think_max_us)
            pause_us = loop->options.think_max_us;
        rc = come_nearer(loop, slot, i, at_us + pause_us);
    }
    if (rc == 0 && joins != RECORDED_NONE && joins < slot->n_turns)
        rc = come_nearer(loop, slot, joins, at_us);
    return rc;
}

/* Cancels the remaining turns of a session. */
static void give_up(struct closed_loop *loop, struct slot *slot)
{
    uint32_t index = (uint32_t)(slot - loop->slots);

    slot->lost = true;
    for (size_t i = loop->waiting.n; i-- > 0;)
        if (loop->waiting.at[i].slot == index)
            drop_place(&loop->waiting, i);
}

/* Removes turn `number` from the turns in flight. */
static struct place land(struct closed_loop *loop, uint64_t number)
{
    struct places *f = &loop->flying;
    size_t i = 0;

    while (f->at[i].number != number)
        i++;
    struct place place = f->at[i];

    drop_place(f, i);
    return place;
}

int closed_loop_ended(struct closed_loop *loop, uint64_t number, int64_t at_us,
                      bool answered)
{
    int64_t until_us = loop->options.until_us;
    struct place place = land(loop, number);
    struct slot *slot = &loop->slots[place.slot];
    int rc = 0;

    slot->in_flight--;
    if (!answered)
        give_up(loop, slot);
    else if (!slot->lost)
        rc = answer(loop, slot, place.turn, at_us);
    if (rc != 0)
        return say(loop, 0, rc, "");
    if (slot->lost ? slot->in_flight == 0 : slot->unanswered == 0) {
        loop->counts.lost += slot->lost;
        loop->counts.finished +=
            !slot->lost && (until_us == 0 || at_us <= until_us);
        rc = begin_session(loop, slot, at_us);
    }
    find_first(loop);
    return rc;
}

const char *closed_loop_error(const struct closed_loop *loop)
{
    return loop->error;
}

struct closed_loop_counts closed_loop_counts(const struct closed_loop *loop)
{
    return loop->counts;
}
