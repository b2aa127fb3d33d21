/* The model of Redis behind a port, for programs and tests that want a server
 * with faults: redis_model --port P. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "base/options.h"
#include "tests/world/redis/front.h"
#include "tests/world/redis/mr.h"

#define LAG_WRITES 1000

static int64_t real_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void on_end(void *arg, unsigned)
{
    loop_stop(arg);
}

static int serve(struct loop *loop, const char *host, uint32_t port,
                 const char *password)
{
    const struct mr_options options = {.clock_us =
                                           real_us() - loop_now_us(loop),
                                       .password = password,
                                       .lag = LAG_WRITES,
                                       .faults = true};
    struct mr *m = mr_new(&options, loop_now_us(loop));
    struct mr_front *front = NULL;
    struct loop_watch end = {0};
    char err[256];
    int rc =
        mr_front_new(loop, m, host, (uint16_t)port, &front, err, sizeof(err));

    if (rc) {
        log_error("%s", err);
    } else {
        loop_signal_init(loop, &end, SIGTERM, on_end, loop);
        rc = loop_watch_start(&end, 0);
        log_info("the model of Redis listens at %s:%u", host,
                 mr_front_port(front));
    }
    if (rc == 0)
        rc = loop_run(loop);
    loop_watch_stop(&end);
    mr_front_free(front);
    mr_free(m);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    const char *host = "127.0.0.1", *password = NULL;
    uint32_t port = 0;
    const struct option_spec specs[] = {
        {"port", OPTION_U32, &port, "PORT", 0, 65535,
         "port to listen at; 0 = any"},
        {"bind", OPTION_TEXT, &host, "HOST", 0, 0, "address to listen at"},
        {"requirepass", OPTION_TEXT, &password, "PASSWORD", 0, 0,
         "password that clients must give"},
    };
    const struct option_usage usage = {
        .name = "redis_model",
        .synopsis = "--port PORT",
        .text = "Serves the model of Redis. The command FAULT makes it fail: "
                "jump MS, restart, fail-over WRITES, evict KEYS, slow US, "
                "stall MS, role 0|1|2.",
        .examples = ""};
    struct loop *loop;
    int rc;

    signal(SIGPIPE, SIG_IGN);
    log_init("redis_model", LOG_INFO);
    if (options_start(&usage, OPTION_TABLE(specs), argc, argv, &rc))
        return rc;
    loop = loop_new();
    if (!loop)
        return EXIT_FAILURE;
    rc = serve(loop, host, port, password);
    loop_free(loop);
    return rc;
}
