/* A connection to Redis that a test moves by hand: each line of standard input
 * is a command, its words separated by spaces, and what becomes of it is a line
 * of standard output.
 *
 *   redis_probe URL TIMEOUT_MS MAX_FLIGHT MAX_BYTES [CA_FILE]
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dns.h"
#include "base/log.h"
#include "base/loop/libevent.h"
#include "base/loop/loop.h"
#include "base/redis/redis.h"
#include "base/tls.h"

#define WORDS_MAX 16

struct probe {
    struct loop *loop;
    struct redis *redis;
    struct bufferevent *input;
    long lines;
};

static void on_change(void *, bool up)
{
    puts(up ? "up" : "down");
}

static void on_done(void *arg, const struct redisReply *reply)
{
    long line = (long)arg;

    if (!reply)
        printf("%ld none\n", line);
    else if (reply->type == REDIS_REPLY_INTEGER)
        printf("%ld %lld\n", line, reply->integer);
    else if (reply->str)
        printf("%ld %.60s\n", line, reply->str);
    else
        printf("%ld nil or more\n", line);
}

static void send_line(struct probe *p, char *line)
{
    const char *words[WORDS_MAX];
    int n = 0, rc;

    p->lines++;
    for (char *word; n < WORDS_MAX && (word = strsep(&line, " "));)
        words[n++] = word;
    rc = redis_command(p->redis, (struct redis_done){on_done, (void *)p->lines},
                       n, words, NULL);
    if (rc)
        printf("%ld refused: %s\n", p->lines, strerror(-rc));
}

static void on_input(struct bufferevent *bev, void *arg)
{
    char *line;

    while ((line = evbuffer_readln(bufferevent_get_input(bev), NULL,
                                   EVBUFFER_EOL_LF))) {
        send_line(arg, line);
        free(line);
    }
}

static void on_end(struct bufferevent *, short, void *arg)
{
    struct probe *p = arg;

    loop_stop(p->loop);
}

int main(int argc, char **argv)
{
    struct probe p = {.loop = loop_new()};
    struct redis_options options = {.what = "probe"};
    struct redis_url url;
    char err[256];

    if (argc != 5 && argc != 6)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    log_init("redis_probe", LOG_INFO);
    if (redis_url_parse(argv[1], &url, err, sizeof(err))) {
        log_error("%s", err);
        return 2;
    }
    if (argc == 6 && !(options.tls = tls_new(argv[5], false, err, sizeof(err))))
        return 2;

    struct dns *dns = dns_new(p.loop, "");
    options.timeout_us = strtol(argv[2], NULL, 10) * 1000;
    options.max_flight = (unsigned)strtoul(argv[3], NULL, 10);
    options.max_bytes = strtoul(argv[4], NULL, 10);
    p.redis = redis_new(p.loop, dns, &url, &options,
                        (struct redis_watch){on_change, NULL});
    p.input = bufferevent_socket_new(loop_event_base(p.loop), 0, 0);
    bufferevent_setcb(p.input, on_input, NULL, on_end, &p);
    bufferevent_enable(p.input, EV_READ);
    loop_run(p.loop);

    struct redis_counts c = redis_counts(p.redis);

    redis_free(p.redis);
    tls_free(options.tls);
    printf("commands %llu replies %llu\n", (unsigned long long)c.commands,
           (unsigned long long)c.replies);
    bufferevent_free(p.input);
    dns_free(dns);
    loop_free(p.loop);
    return 0;
}
