/* See flight.h. */
#include "tools/replay/live/flight.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/event_loop.h"

static void on_signal(evutil_socket_t, short, void *arg)
{
    struct replay_flight *f = arg;

    f->interrupted = true;
    event_base_loopbreak(f->params.base);
}

int replay_flight_init(struct replay_flight *f, size_t count)
{
    bool good = (f->requests = calloc(count, sizeof f->requests[0]));

    f->count = count;
    for (size_t i = 0; good && i < 2; i++) {
        f->signals[i] =
            evsignal_new(f->params.base, i ? SIGTERM : SIGINT, on_signal, f);
        good = f->signals[i] && event_add(f->signals[i], NULL) == 0;
    }
    return good ? 0 : -ENOMEM;
}

static void on_done(void *arg, struct replay_record *record)
{
    struct replay_flight *f = arg;

    f->requests[record - f->records] = NULL;
    f->in_flight--;
    f->params.done(f->params.arg, record);
}

int replay_flight_send(struct replay_flight *f, size_t i, struct evbuffer *body)
{
    struct replay_request_params params = f->params;

    params.record = &f->records[i];
    params.idle = &f->idle;
    params.done = on_done;
    params.arg = f;
    int rc =
        body ? replay_request_start(&params, body, &f->requests[i]) : -ENOMEM;
    f->in_flight += rc == 0;
    return rc;
}

void replay_flight_drop(struct replay_flight *f)
{
    for (size_t i = 0; f->in_flight > 0 && i < f->count; i++) {
        if (!f->requests[i])
            continue;
        replay_request_cancel(f->requests[i], "interrupted");
        f->records[i].outcome = REPLAY_PENDING;
        f->requests[i] = NULL;
        f->in_flight--;
    }
}

void replay_flight_fini(struct replay_flight *f)
{
    if (f->requests)
        replay_flight_drop(f);
    for (size_t i = 0; i < 2; i++)
        event_loop_drop(f->signals[i]);
    free(f->requests);
    replay_idle_fini(&f->idle);
}
