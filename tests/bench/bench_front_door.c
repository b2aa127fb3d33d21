/*
 * The clients and the engine on both sides of a proxy, in one program, so that
 * an event of a stream leaves the engine only when its client has the one
 * before: a proxy then reads and writes each event by itself.
 *
 * Usage: bench_front_door: prints the port where the engine listens, and then
 * takes lines "PORT CONNECTIONS REQUESTS EVENTS BYTES PROMPT" until the
 * end of its input:
 *   EVENTS  of each streamed answer; 0: a whole answer of 1 KB
 *   BYTES   of each request's body, about
 *   PROMPT  ids or text
 * Each connection asks for its next answer when it has the last. For each line
 * it prints the seconds that it took.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conductor/http/parse.h"
#include "tests/bench/bench.h"

#define MAX_CONNECTIONS 256
#define MAX_FDS 4096
#define IN_BYTES 65536
#define ANSWER_BYTES 1000

/* One end of a connection: a client's, or the engine's. */
struct end {
    int fd;
    struct end *peer; /* a client's: the engine's end that answers it now */
    bool is_client, headed, chunked;
    char in[IN_BYTES]; /* (n), what was read and not used */
    size_t n;
    int64_t left;    /* of a body of known length */
    const char *out; /* (n_out) not sent yet */
    size_t n_out;
    char name[80];       /* a client's number, as text; the request's id */
    char small[2048];    /* what is sent, if it is short */
    size_t events;       /* still to be sent, or to come */
    bool streams, named; /* the engine's answer */
    char last;           /* byte of a stream that came */
    struct http_chunked decoder;
};

static struct {
    int epoll, listener;
    struct end *ends[MAX_FDS]; /* by descriptor */
    struct end *clients[MAX_CONNECTIONS];
    char *request; /* (n_request): the body */
    size_t n_request, events, to_ask, to_come;
    uint16_t port;
} b;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(struct end *e, int op, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = e->fd};

    if (epoll_ctl(b.epoll, op, e->fd, &event))
        die("epoll_ctl");
}

static struct end *end_new(int fd, bool is_client)
{
    struct end *e = calloc(1, sizeof(*e));
    int on = 1;

    if (!e || fd < 0 || fd >= MAX_FDS)
        die("connection");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    e->fd = fd;
    e->is_client = is_client;
    b.ends[fd] = e;
    watch(e, EPOLL_CTL_ADD, EPOLLIN);
    return e;
}

static void end_free(struct end *e)
{
    if (e->is_client && b.to_come)
        die("the proxy closed a client's connection");
    for (size_t i = 0; i < MAX_CONNECTIONS; i++)
        if (b.clients[i] && b.clients[i]->peer == e)
            b.clients[i]->peer = NULL;
    b.ends[e->fd] = NULL;
    close(e->fd);
    free(e);
}

/* Sends what is to be sent, as far as the socket takes it. */
static void push(struct end *e)
{
    ssize_t n = 0;

    while (e->n_out && (n = send(e->fd, e->out, e->n_out,
                                 MSG_DONTWAIT | MSG_NOSIGNAL)) > 0) {
        e->out += n;
        e->n_out -= (size_t)n;
    }
    if (n < 0 && errno != EAGAIN)
        die("send");
}

/* All of it, or what is left waits for the socket. */
static void say(struct end *e, const char *bytes, size_t n)
{
    e->out = bytes;
    e->n_out = n;
    push(e);
    if (e->n_out)
        watch(e, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
}

static void ask(struct end *c)
{
    int n = snprintf(c->small, sizeof(c->small),
                     "POST /v1/completions HTTP/1.1\r\nHost: front\r\n"
                     "User-Agent: bench\r\nAccept: */*\r\nX-Client: %s\r\n"
                     "Content-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     c->name, b.n_request);

    b.to_ask--;
    c->headed = false;
    c->events = b.events;
    if ((size_t)n + b.n_request <= sizeof(c->small)) {
        memcpy(c->small + n, b.request, b.n_request);
        say(c, c->small, (size_t)n + b.n_request);
        return;
    }
    if (send(c->fd, c->small, (size_t)n, MSG_MORE) != n)
        die("send");
    say(c, b.request, b.n_request);
}

/* The next event of a stream, or its end. */
static void send_event(struct end *e)
{
    char data[256];
    int n = snprintf(data, sizeof(data),
                     "data: {\"id\":\"cmpl-%s\",\"object\":\"text_completion\","
                     "\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\" "
                     "word\",\"logprobs\":null,\"finish_reason\":null}]}\n\n",
                     e->named ? e->name : "0");
    int all = e->events ? snprintf(e->small, sizeof(e->small), "%x\r\n%s\r\n",
                                   (unsigned)n, data)
                        : snprintf(e->small, sizeof(e->small), "0\r\n\r\n");

    if (e->events)
        e->events--;
    else
        e->streams = false;
    say(e, e->small, (size_t)all);
}

static void answer(struct end *e)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s%s%s";
    char text[ANSWER_BYTES + 1], first[128], tail[64];
    int n = snprintf(first, sizeof(first), "{\"id\":\"cmpl-%s\",\"text\":\"",
                     e->named ? e->name : "0");

    memset(text, 'x', ANSWER_BYTES);
    memcpy(text, first, (size_t)n);
    memcpy(text + ANSWER_BYTES - 2, "\"}", 3);
    if (e->streams)
        snprintf(tail, sizeof(tail), "Transfer-Encoding: chunked\r\n\r\n");
    else
        snprintf(tail, sizeof(tail), "Content-Length: %d\r\n\r\n",
                 ANSWER_BYTES);
    n = snprintf(e->small, sizeof(e->small), head,
                 e->streams ? "text/event-stream" : "application/json",
                 "Server: engine\r\n", tail, e->streams ? "" : text);
    say(e, e->small, (size_t)n);
    if (e->streams)
        send_event(e);
}

/* A client has its whole answer. */
static void answered(struct end *c)
{
    c->peer = NULL;
    c->headed = false;
    b.to_come--;
    if (b.to_ask)
        ask(c);
}

static void copy_slice(char *to, size_t cap, struct http_slice s)
{
    size_t n = s.n < cap ? s.n : cap - 1;

    memcpy(to, s.at, n);
    to[n] = '\0';
}

/* The head of a request has come to the engine. */
static void take_request(struct end *e, const struct http_head *head)
{
    const struct http_slice *id = http_find(head, "x-request-id");
    const struct http_slice *client = http_find(head, "x-client");

    e->left = head->content_length > 0 ? head->content_length : 0;
    e->named = id;
    copy_slice(e->name, sizeof(e->name), id ? *id : (struct http_slice){"", 0});
    e->events = client ? b.events : 0; /* else it is asked for its health */
    e->streams = e->events > 0;
    if (client)
        b.clients[atoi(client->at) % MAX_CONNECTIONS]->peer = e;
}

static void take_head(struct end *e, const struct http_head *head)
{
    e->headed = true;
    e->chunked = head->chunked;
    e->decoder = (struct http_chunked){0};
    if (!e->is_client) {
        take_request(e, head);
        return;
    }
    e->left = head->content_length;
    if (head->status != 200)
        die("an answer is not 200");
}

/* Uses bytes of a client's chunked answer. Returns how many. */
static size_t take_chunk(struct end *c)
{
    struct http_piece piece;
    size_t used;
    int rc = http_chunked_next(&c->decoder, c->in, c->n, &used, &piece);

    if (rc < 0)
        die("a malformed answer");
    for (size_t i = 0; i < piece.n; i++) {
        if (piece.at[i] == '\n' && c->last == '\n' && c->peer)
            send_event(c->peer);
        c->last = piece.at[i];
    }
    if (rc > 0)
        answered(c);
    return used;
}

/* Uses what has come. Returns how many bytes; 0: more must come. */
static size_t use(struct end *e)
{
    struct http_head head;
    struct http_fault fault;
    size_t n = e->n;

    if (!e->headed) {
        long rc = e->is_client ? http_parse_answer(e->in, n, &head, &fault)
                               : http_parse_head(e->in, n, &head, &fault);

        if (rc < 0)
            die(fault.message);
        if (rc == 0)
            return 0;
        take_head(e, &head);
        n = (size_t)rc;
    } else if (e->chunked) {
        return take_chunk(e);
    } else {
        n = n < (size_t)e->left ? n : (size_t)e->left;
        e->left -= (int64_t)n;
    }
    if (e->chunked || e->left > 0)
        return n;
    e->headed = false;
    if (e->is_client)
        answered(e);
    else
        answer(e);
    return n;
}

static void on_readable(struct end *e)
{
    ssize_t got = recv(e->fd, e->in + e->n, IN_BYTES - e->n, MSG_DONTWAIT);
    size_t used;

    if (got == 0 || (got < 0 && errno != EAGAIN)) {
        end_free(e);
        return;
    }
    e->n += got > 0 ? (size_t)got : 0;
    while (e->n && (used = use(e)) > 0) {
        e->n -= used;
        memmove(e->in, e->in + used, e->n);
    }
}

static void on_writable(struct end *e)
{
    push(e);
    if (!e->n_out)
        watch(e, EPOLL_CTL_MOD, EPOLLIN);
}

static int listen_any(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, n) || listen(fd, 512) ||
        getsockname(fd, (struct sockaddr *)&at, &n))
        die("listen");
    b.port = ntohs(at.sin_port);
    return fd;
}

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
        die("connect");
    return fd;
}

/* One turn of the loop. Whether standard input has something. */
static bool turn(void)
{
    struct epoll_event events[MAX_CONNECTIONS];
    int n = epoll_wait(b.epoll, events, MAX_CONNECTIONS, -1);
    bool input = false;

    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd;

        if (fd == STDIN_FILENO)
            input = true;
        else if (fd == b.listener)
            while ((fd = accept(b.listener, NULL, NULL)) >= 0)
                end_new(fd, false);
        else if (b.ends[fd] && events[i].events & EPOLLOUT)
            on_writable(b.ends[fd]);
        else if (b.ends[fd])
            on_readable(b.ends[fd]);
    }
    return input;
}

static void make_request(size_t bytes, bool ids, bool stream)
{
    char *at;

    free(b.request);
    b.request = at = malloc(bytes + 256);
    if (!at)
        die("request");
    at += sprintf(at, "{%s\"model\":\"m\",\"max_tokens\":16,\"prompt\":",
                  stream ? "\"stream\":true," : "");
    *at++ = ids ? '[' : '"';
    for (size_t i = 0; (size_t)(at - b.request) + 8 < bytes; i++)
        at += ids ? sprintf(at, "%zu,", 10000 + i % 50000)
                  : sprintf(at, "%s", "word ");
    b.n_request = (size_t)(at - b.request) - 1;
    b.n_request += (size_t)sprintf(at - 1, ids ? "]}" : "\"}");
}

/* Serves until every client has its answers. */
static void run(int port, size_t connections, size_t requests)
{
    b.to_ask = b.to_come = requests;
    for (size_t i = 0; i < connections; i++) {
        b.clients[i] = end_new(connect_to(port), true);
        snprintf(b.clients[i]->name, sizeof(b.clients[i]->name), "%zu", i);
    }
    for (size_t i = 0; i < connections && b.to_ask; i++)
        ask(b.clients[i]);
    while (b.to_come)
        (void)turn();
    for (size_t i = 0; i < connections; i++) {
        end_free(b.clients[i]);
        b.clients[i] = NULL;
    }
}

int main(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
    char line[256], prompt[8];
    size_t connections, requests, bytes;
    int port;

    b.epoll = epoll_create1(0);
    b.listener = listen_any();
    epoll_ctl(b.epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    event.data.fd = b.listener;
    epoll_ctl(b.epoll, EPOLL_CTL_ADD, b.listener, &event);
    setvbuf(stdin, NULL, _IONBF, 0);
    printf("%u\n", b.port);
    fflush(stdout);
    for (;;) {
        if (!turn())
            continue;
        if (!fgets(line, sizeof(line), stdin) ||
            sscanf(line, "%d %zu %zu %zu %zu %7s", &port, &connections,
                   &requests, &b.events, &bytes, prompt) != 6 ||
            connections > MAX_CONNECTIONS)
            return 0;
        make_request(bytes, strcmp(prompt, "ids") == 0, b.events > 0);
        double begin = now_s();
        run(port, connections, requests);
        printf("%.6f\n", now_s() - begin);
        fflush(stdout);
    }
}
