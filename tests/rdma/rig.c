/* Two sides of the transport rdma in one process. */
#include "tests/rdma/rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop/loop.h"
#include "base/stream/stream.h"

static char log_lines[1 << 20];
static uint64_t random_state = 1;

void rig_seed(uint64_t seed)
{
    random_state = seed * 2 + 1;
}

uint32_t rig_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

void rig_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n--- the end of the log\n%s", log_lines);
    fflush(stdout);
    exit(1);
}

/* The last of what was logged is kept. */
static void take_line(int, const char *line)
{
    char stamped[400];

    snprintf(stamped, sizeof(stamped), "%7.3f %s", (double)clock_now_us() / 1e6,
             line);
    size_t n = strlen(log_lines), more = strlen(stamped) + 1;
    if (n + more >= sizeof(log_lines)) {
        memmove(log_lines, log_lines + n / 2, n - n / 2 + 1);
        n -= n / 2;
    }
    memcpy(log_lines + n, stamped, more);
    log_lines[n + more - 1] = '\n';
    log_lines[n + more] = '\0';
}

uint32_t rig_log_count(const char *text)
{
    uint32_t n = 0;

    for (const char *at = log_lines; (at = strstr(at, text)); at++)
        n++;
    return n;
}

void rig_show_log(void)
{
    printf("\n%s", log_lines);
}

void rig_shell(const char *form, uint32_t number)
{
    char command[200];

    snprintf(command, sizeof(command), form, number, number, number);
    if (system(command) != 0)
        rig_fail("failed: %s", command);
}

/* --- callbacks --- */

static void on_done(void *arg, uint64_t op_id, int rc)
{
    struct rig *rig = arg;
    struct rig_op *op = &rig->ops[op_id % RIG_OPS];

    if (!op->busy || op->rc <= 0)
        rig_fail("op %lu ended twice", op_id);
    op->rc = rc;
    op->busy = false;
    rig->n_busy--;
    rig->n_ended++;
}

static void on_stands(void *arg)
{
    ((struct rig *)arg)->stands = 1;
}

static void on_closed(void *arg, int rc, const char *why)
{
    struct rig *rig = arg;

    take_line(0, why);
    if (rig->n_busy > 0)
        rig_fail("closed with %u ops", rig->n_busy);
    rig->closed = rc;
}

static void on_revoked(void *arg, uint64_t)
{
    ((struct rig *)arg)->n_revoked++;
}

static void on_broken(void *, const char *why)
{
    rig_fail("broken: %s", why);
}

static void on_withdrawn(void *arg)
{
    ((struct rig *)arg)->n_withdrawn++;
}

static const struct transport_path_ops path_ops = {
    .stands = on_stands, .done = on_done, .closed = on_closed};
static const struct transport_offer_ops offer_ops = {
    .revoked = on_revoked, .broken = on_broken, .withdrawn = on_withdrawn};

/* --- both sides --- */

static void on_alarm(void *)
{
}

void rig_turn(struct rig *rig, int64_t us)
{
    loop_timer_start(&rig->alarm, us > 0 ? us : 1);
    loop_turn(rig->loop, -1);
}

void rig_sleep(struct rig *rig, int64_t us)
{
    static const int never = 0;

    rig_wait(rig, &never, us);
}

void rig_wait(struct rig *rig, const int *what, int64_t us)
{
    int64_t end_us = clock_now_us() + us;

    while (*what == 0 && clock_now_us() < end_us)
        rig_turn(rig, end_us - clock_now_us());
}

bool rig_drain(struct rig *rig, int64_t us)
{
    int64_t end_us = clock_now_us() + us;

    while (rig->n_busy > 0 && clock_now_us() < end_us)
        rig_turn(rig, 20000);
    return rig->n_busy == 0;
}

static struct transport *make_side(struct rig *rig, const char *letter,
                                   const struct rig_config *c, uint8_t **slab)
{
    struct rdma_config config = {.loop = rig->loop,
                                 .stream_loop = rig->streams,
                                 .listen_host = "127.0.0.1",
                                 .end_points = c->end_points,
                                 .stall_us = c->stall_us,
                                 .log = take_line};
    char devices[200] = "", err[300];
    struct transport *t;

    for (uint32_t i = 0; i < c->rails; i++)
        snprintf(devices + strlen(devices), 16, "%srxe%s%u", i ? "," : "",
                 letter, i);
    config.devices = devices;
    if (rdma_transport_load(&config, &t, err, sizeof(err)) < 0)
        rig_fail("no transport: %s", err);
    *slab = mmap(NULL, RIG_SLAB_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (*slab == MAP_FAILED || t->ops->reg(t, *slab, RIG_SLAB_BYTES, -1) != 0)
        rig_fail("no memory can be registered");
    return t;
}

void rig_open(struct rig *rig)
{
    struct transport_peer peer = {.host = "127.0.0.1",
                                  .descriptor = rig->descriptor,
                                  .n_descriptor = rig->n_descriptor};

    rig->stands = rig->closed = 0;
    rig->path = rig->asker->ops->open(rig->asker, &peer, &path_ops, rig);
    if (!rig->path)
        rig_fail("no path");
    rig_wait(rig, &rig->stands, 10000000);
    if (!rig->stands)
        rig_fail("the path does not stand");
}

static void begin_loop(struct rig *rig)
{
    rig->loop = loop_new();
    rig->streams = stream_loop_new(rig->loop);
    loop_timer_init(rig->loop, &rig->alarm, on_alarm, NULL);
}

static void begin_holder(struct rig *rig, const struct rig_config *config)
{
    struct transport_range all = {.bytes = RIG_SLAB_BYTES};

    rig->holder = make_side(rig, "b", config, &rig->theirs);
    rig->offer = rig->holder->ops->offer(rig->holder, &offer_ops, rig,
                                         rig->descriptor, &rig->n_descriptor);
    if (!rig->offer)
        rig_fail("no offer");
    if (rig->holder->ops->grant(rig->offer, RIG_GRANT, &all, 1) != 0)
        rig_fail("no grant");
}

void rig_begin(struct rig *rig, const struct rig_config *config)
{
    *rig = (struct rig){0};
    begin_loop(rig);
    rig->asker = make_side(rig, "a", config, &rig->mine);
    begin_holder(rig, config);
    rig_open(rig);
}

pid_t rig_begin_apart(struct rig *rig, const struct rig_config *config,
                      bool asks)
{
    int ends[2];
    pid_t other;

    *rig = (struct rig){0};
    fflush(stdout);
    if (pipe(ends) != 0 || (other = fork()) < 0)
        rig_fail("no second process");
    if (other == 0)
        asks = !asks;
    begin_loop(rig);
    if (asks) {
        ssize_t n = read(ends[0], rig->descriptor, sizeof(rig->descriptor));

        rig->n_descriptor = n > 0 ? (size_t)n : 0;
        rig->asker = make_side(rig, "a", config, &rig->mine);
        rig_open(rig);
    } else {
        begin_holder(rig, config);
        if (write(ends[1], rig->descriptor, rig->n_descriptor) < 0)
            rig_fail("no pipe");
    }
    close(ends[0]);
    close(ends[1]);
    return other;
}

void rig_end(struct rig *rig)
{
    if (!rig_drain(rig, 20000000))
        rig_fail("%u ops never end", rig->n_busy);
    if (rig->asker)
        rig->asker->ops->close(rig->path);
    if (rig->holder) {
        rig->holder->ops->withdraw(rig->offer);
        rig_wait(rig, &rig->n_withdrawn, 10000000);
        if (rig->n_withdrawn != 1)
            rig_fail("the offer is not withdrawn");
        rig->holder->ops->free(rig->holder);
        munmap(rig->theirs, RIG_SLAB_BYTES);
    }
    if (rig->asker) {
        rig->asker->ops->free(rig->asker);
        munmap(rig->mine, RIG_SLAB_BYTES);
    }
    loop_timer_stop(&rig->alarm);
    stream_loop_free(rig->streams);
    loop_free(rig->loop);
}

void rig_check_paint(const uint8_t *memory, uint64_t bytes, const char *what)
{
    if (memory[0] != RIG_PAINT || memcmp(memory, memory + 1, bytes - 1) != 0)
        rig_fail("%s, and then touched", what);
}

int rig_start(struct rig *rig, uint32_t place)
{
    struct rig_op *op = &rig->ops[place];
    int rc;

    op->id = rig->n_ended * RIG_OPS + place;
    op->bytes = 0;
    for (uint32_t i = 0; i < op->n; i++)
        op->bytes += op->slices[i].bytes;
    rc = rig->path->ops->read(rig->path, op->id, RIG_GRANT, op->slices, op->n);
    if (rc == 0) {
        op->busy = true;
        op->rc = 1;
        rig->n_busy++;
    }
    return rc;
}
