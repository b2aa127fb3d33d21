/* Unanswered commands, and their answers. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/redis/internal.h"

/* Follows a cluster's "MOVED SLOT HOST:PORT". */
static void follow(struct redis *r, const char *error)
{
    const char *to = strrchr(error, ' ');

    if (to && address_parse(to + 1, &r->to) == 0)
        r->directed = true;
    redis_leave(r, error);
}

/* Handles errors that concern the server, not the command. */
static void judge(struct redis *r, const char *error)
{
    r->counts.errors++;
    if (strncmp(error, "MOVED ", 6) == 0)
        follow(r, error);
    else if (strncmp(error, "READONLY", 8) == 0 ||
             strncmp(error, "LOADING", 7) == 0 ||
             strncmp(error, "MASTERDOWN", 10) == 0)
        redis_leave(r, error);
}

/* Handles a reply; when its context is freed, NULL for every flight. */
static void on_reply(redisAsyncContext *, void *reply, void *arg)
{
    struct flight *f = arg;
    struct redis *r = f->redis;
    const redisReply *given = reply;

    r->oldest = f->next;
    if (!r->oldest)
        r->newest = &r->oldest;
    r->counts.in_flight--;
    r->counts.bytes_in_flight -= f->bytes;
    if (given) {
        r->counts.replies++;
        r->counts.round_trip_us +=
            (uint64_t)(loop_now_us(r->loop) - f->sent_us);
        if (given->type == REDIS_REPLY_ERROR)
            judge(r, given->str);
    } else {
        r->counts.unanswered++;
    }
    if (f->done.fn)
        f->done.fn(f->done.arg, given);
    free(f);
}

size_t redis_size_of(int argc, const char *const argv[], const size_t lens[])
{
    size_t bytes = 0;

    for (int i = 0; i < argc; i++)
        bytes += (lens ? lens[i] : strlen(argv[i])) + 16;
    return bytes;
}

int redis_send(struct redis *r, struct redis_done done, int argc,
               const char *const argv[], const size_t lens[])
{
    size_t bytes = redis_size_of(argc, argv, lens);
    struct flight *f = malloc(sizeof(*f));

    if (!f)
        return -ENOMEM;
    *f = (struct flight){r, done, NULL, loop_now_us(r->loop), bytes};
    if (redisAsyncCommandArgv(r->ac, on_reply, f, argc, (const char **)argv,
                              lens)) {
        free(f);
        return -ENOTCONN;
    }
    if (!r->oldest && r->step == UP)
        redis_deadline(r, r->options.timeout_us);
    *r->newest = f;
    r->newest = &f->next;
    r->counts.commands++;
    r->counts.in_flight++;
    r->counts.bytes_in_flight += bytes;
    return 0;
}
