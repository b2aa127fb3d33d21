/*
 * A gateway that asks POST /v1/schedule where to send prompts of token ids that
 * share documents, and reports their ends: as fast as answers come, or at a
 * rate, where a request's time counts from when it was due.
 *
 * Usage: bench_schedule PORT DECISIONS RATE OPEN CONNECTIONS
 *   RATE  decisions a second; 0: as fast as they are answered
 *   OPEN  tickets that are open before the oldest is reported; none is where
 *         that is all of them
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"

#define TOKENS 4096
#define SHARED 3072
#define DOCUMENTS 200
#define ENDS 512 /* of prompts; each comes with a number of its own */
#define ID_BYTES 7
#define MAX_CONNECTIONS 256
#define ANSWER_BYTES 8192
#define TICKET_BYTES 64

struct connection {
    int fd;
    bool reports; /* what it is asked is a report */
    int64_t due_us;
    char answer[ANSWER_BYTES]; /* (n) */
    size_t n;
};

/* Times of answers to one kind of question. */
struct times {
    uint32_t *us; /* (n) */
    size_t n;
};

static struct {
    char documents[DOCUMENTS][SHARED * ID_BYTES];
    char ends[ENDS][(TOKENS - SHARED) * ID_BYTES];
    struct connection at[MAX_CONNECTIONS];
    int idle[MAX_CONNECTIONS], n_idle;
    char (*tickets)[TICKET_BYTES]; /* of all decisions, in order of answers */
    size_t asked, answered, reported;
    uint64_t cached, bits;
    struct times decisions, reports;
} b;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* xorshift64: the same prompts in every run. */
static uint64_t draw(uint64_t below)
{
    b.bits ^= b.bits << 13;
    b.bits ^= b.bits >> 7;
    b.bits ^= b.bits << 17;
    return b.bits % below;
}

/* n ids of six digits, each with its comma but the last, and blanks. */
static void write_ids(char *at, size_t n, char last)
{
    for (size_t i = 0; i < n; i++)
        at +=
            sprintf(at, "%06llu%c", (unsigned long long)(100000 + draw(28000)),
                    i + 1 == n ? last : ',');
}

static void make_prompts(void)
{
    static char text[SHARED * ID_BYTES + 1];

    b.bits = 4711; /* the same documents in every run, other ends */
    for (int i = 0; i < DOCUMENTS; i++) {
        write_ids(text, SHARED, ',');
        memcpy(b.documents[i], text, sizeof(b.documents[i]));
    }
    b.bits ^= (uint64_t)clock_now_us();
    for (int i = 0; i < ENDS; i++) {
        write_ids(text, TOKENS - SHARED, ']');
        memcpy(b.ends[i], text, sizeof(b.ends[i]));
    }
}

static int connect_to(const char *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(port)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
        die("connect");
    return fd;
}

static void send_all(int fd, struct iovec *parts, int n)
{
    while (n) {
        ssize_t sent = writev(fd, parts, n);

        if (sent < 0)
            die("send");
        for (; n && (size_t)sent >= parts->iov_len; parts++, n--)
            sent -= (ssize_t)parts->iov_len;
        if (n) {
            parts->iov_base = (char *)parts->iov_base + sent;
            parts->iov_len -= (size_t)sent;
        }
    }
}

static const char head[] =
    "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    "Content-Length: %zu\r\n\r\n%s";

static void ask(struct connection *c, int64_t due_us)
{
    static const char begin[] =
        "{\"model\":\"m\",\"max_tokens\":200,\"prompt\":[";
    char *document = b.documents[draw(DOCUMENTS)], *end = b.ends[draw(ENDS)];
    char text[512], own[ID_BYTES + 1];
    size_t n = sizeof(begin) - 1 + sizeof(b.documents[0]) + sizeof(b.ends[0]);
    struct iovec parts[] = {{text, 0},
                            {document, sizeof(b.documents[0])},
                            {end, sizeof(b.ends[0])},
                            {"}", 1}};

    snprintf(own, sizeof(own), "%06zu", 100000 + b.asked++ % 900000);
    memcpy(end, own, ID_BYTES - 1);
    parts[0].iov_len = (size_t)snprintf(text, sizeof(text), head,
                                        "/v1/schedule", n + 1, begin);
    c->reports = false;
    c->due_us = due_us;
    send_all(c->fd, parts, 4);
}

static void report(struct connection *c, int64_t due_us)
{
    char text[512], body[160];
    int n = snprintf(body, sizeof(body),
                     "{\"ticket\":\"%s\",\"output_tokens\":200}",
                     b.tickets[b.reported++]);
    struct iovec part = {text, 0};

    part.iov_len = (size_t)snprintf(text, sizeof(text), head,
                                    "/v1/schedule/done", (size_t)n, body);
    c->reports = true;
    c->due_us = due_us;
    send_all(c->fd, &part, 1);
}

static void take_answer(struct connection *c, int64_t now_us)
{
    struct times *t = c->reports ? &b.reports : &b.decisions;
    const char *ticket = strstr(c->answer, "\"ticket\":\""),
               *cached = strstr(c->answer, "\"cached_tokens\":");

    if (strncmp(c->answer, "HTTP/1.1 200", 12) != 0 ||
        (!c->reports && (!ticket || !cached))) {
        fprintf(stderr, "bench_schedule: %s\n", c->answer);
        exit(1);
    }
    t->us[t->n++] = (uint32_t)(now_us - c->due_us);
    c->n = 0;
    b.idle[b.n_idle++] = (int)(c - b.at);
    if (c->reports)
        return;
    b.cached += strtoul(cached + 16, NULL, 10);
    sscanf(ticket + 10, "%63[^\"]", b.tickets[b.answered++]);
}

/* Whether its answer is whole. */
static bool is_whole(struct connection *c)
{
    const char *body = strstr(c->answer, "\r\n\r\n"),
               *length = strcasestr(c->answer, "content-length:");

    return body && length && length < body &&
           c->n >=
               (size_t)(body + 4 - c->answer) + strtoul(length + 15, NULL, 10);
}

static void read_answer(struct connection *c)
{
    ssize_t n = recv(c->fd, c->answer + c->n, sizeof(c->answer) - 1 - c->n, 0);

    if (n <= 0)
        die("recv");
    c->n += (size_t)n;
    c->answer[c->n] = '\0';
    if (is_whole(c))
        take_answer(c, clock_now_us());
}

/* Sends what is due; reports go first. */
static void send_due(size_t decisions, size_t open, int64_t begin_us,
                     double rate)
{
    while (b.n_idle) {
        int64_t now_us = clock_now_us(), due_us = now_us;
        struct connection *c = &b.at[b.idle[b.n_idle - 1]];

        if (b.answered - b.reported > open) {
            b.n_idle--;
            report(c, now_us);
            continue;
        }
        if (rate > 0)
            due_us = begin_us + (int64_t)((double)b.asked / rate * 1e6);
        if (b.asked == decisions || due_us > now_us)
            return;
        b.n_idle--;
        ask(c, due_us);
    }
}

static int by_size(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, c = *(const uint32_t *)y;

    return (a > c) - (a < c);
}

static void print_times(const char *what, struct times *t, double seconds)
{
    if (t->n == 0)
        return;
    qsort(t->us, t->n, sizeof(*t->us), by_size);
    printf("%-10s %7.0f a second; answered after us: p50 %u, p90 %u, p99 %u, "
           "most %u\n",
           what, (double)t->n / seconds, t->us[t->n / 2], t->us[t->n * 9 / 10],
           t->us[t->n * 99 / 100], t->us[t->n - 1]);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: bench_schedule PORT DECISIONS RATE OPEN "
                        "CONNECTIONS\n");
        return 2;
    }
    size_t decisions = strtoul(argv[2], NULL, 10),
           open = strtoul(argv[4], NULL, 10);
    double rate = atof(argv[3]);
    int epoll = epoll_create1(0), n = atoi(argv[5]);
    struct epoll_event events[MAX_CONNECTIONS];

    make_prompts();
    b.tickets = calloc(decisions, sizeof(*b.tickets));
    b.decisions.us = calloc(decisions, sizeof(uint32_t));
    b.reports.us = calloc(decisions, sizeof(uint32_t));
    if (!b.tickets || !b.decisions.us || !b.reports.us || n < 1 ||
        n > MAX_CONNECTIONS)
        die("bench_schedule");
    for (int i = 0; i < n; i++) {
        b.at[i].fd = connect_to(argv[1]);
        b.idle[b.n_idle++] = i;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &b.at[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, b.at[i].fd, &e))
            die("epoll_ctl");
    }
    int64_t begin_us = clock_now_us();
    while (b.answered < decisions || b.n_idle < n ||
           b.answered - b.reported > open) {
        send_due(decisions, open, begin_us, rate);
        int got = epoll_wait(epoll, events, MAX_CONNECTIONS, rate > 0 ? 0 : -1);

        for (int i = 0; i < got; i++)
            read_answer(events[i].data.ptr);
    }
    double seconds = (double)(clock_now_us() - begin_us) / 1e6;
    print_times("decisions", &b.decisions, seconds);
    print_times("reports", &b.reports, seconds);
    printf("%zu open at the end, %.0f of %d tokens cached\n",
           b.answered - b.reported, (double)b.cached / (double)b.answered,
           TOKENS);
    return 0;
}
