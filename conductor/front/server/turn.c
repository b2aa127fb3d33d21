/* A client's share of a turn of the loop: when it is used up, the client's
 * other connections are read in later turns, with those of others in
 * between. */
#include "base/loop/loop.h"
#include "conductor/front/server/internal.h"

/* Work of one client per turn; a request that was begun is finished. */
#define WORK_BYTES ((size_t)1 << 19)
/* Factor for bytes read: a copy, into new memory. */
#define READ_FACTOR 8u
/* Cost of a request: a fixed part, plus SLOW_FACTOR for each of the first
 * SLOW_BYTES of its body, since members beside the prompt are slow to parse. */
#define REQUEST_BYTES 4096u
/* Cost of a look at a head that may be incomplete, plus its bytes. */
#define LOOK_BYTES 1024u
#define SLOW_BYTES ((size_t)65536)
#define SLOW_FACTOR 16u
/* Connections of a client that may go on in a turn. */
#define RESUMED_MOST 16u

static void begin_turn(struct http_server *server, struct http_client *client)
{
    int64_t turn = loop_turn_us(server->loop);

    if (client->turn == turn)
        return;
    client->turn = turn;
    client->work = 0;
    client->n_resumed = 0;
}

static void add_work(struct http_conn *conn, size_t n)
{
    begin_turn(conn->server, conn->client);
    conn->client->work += n;
}

void http_turn_read(struct http_conn *conn, size_t n)
{
    add_work(conn, READ_FACTOR * n);
}

void http_turn_look(struct http_conn *conn, size_t n)
{
    add_work(conn, LOOK_BYTES + n);
}

void http_turn_request(struct http_conn *conn)
{
    size_t n = conn->body.len < SLOW_BYTES ? conn->body.len : SLOW_BYTES;

    add_work(conn, REQUEST_BYTES + SLOW_FACTOR * n);
}

bool http_turn_is_over(struct http_conn *conn)
{
    begin_turn(conn->server, conn->client);
    return conn->client->work >= WORK_BYTES;
}

void http_turn_put_off(struct http_conn *conn)
{
    struct http_server *server = conn->server;

    if (conn->put_off)
        return;
    conn->put_off = true;
    server->stats.put_off++;
    TAILQ_INSERT_TAIL(&server->put_off, conn, put_off_link);
    stream_pause(conn->stream, true);
    /* A deferred call would run in this turn; a timer does not. */
    loop_timer_start(&server->next_turn, 0);
}

void http_turn_forget(struct http_conn *conn)
{
    if (conn->put_off)
        TAILQ_REMOVE(&conn->server->put_off, conn, put_off_link);
    conn->put_off = false;
}

/* Connections put off first go on first. O(connections put off). */
static void on_next_turn(void *arg)
{
    struct http_server *server = arg;
    struct http_conn *conn, *next;

    for (conn = TAILQ_FIRST(&server->put_off); conn; conn = next) {
        next = TAILQ_NEXT(conn, put_off_link);
        begin_turn(server, conn->client);
        if (conn->client->n_resumed >= RESUMED_MOST)
            continue;
        conn->client->n_resumed++;
        http_turn_forget(conn);
        stream_pause(conn->stream, false);
    }
    if (!TAILQ_EMPTY(&server->put_off))
        loop_timer_start(&server->next_turn, 0);
}

void http_turns_init(struct http_server *server)
{
    TAILQ_INIT(&server->put_off);
    loop_timer_init(server->loop, &server->next_turn, on_next_turn, server);
}

void http_turns_fini(struct http_server *server)
{
    loop_timer_stop(&server->next_turn);
}
