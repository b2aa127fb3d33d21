/* The two loops: libevent and virtual time make the same calls in the same
 * order. And what libevent says is a line of the log. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/loop/loop.h"
#include "base/loop/virtual.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

static void loop_again(void *loop)
{
    CU_ASSERT_EQUAL(loop_turn(loop, 0), -EIO);
}

/* Reads the standard error while libevent complains of a loop in
 * a loop. */
static void complain(char *text, size_t size)
{
    struct loop *loop = loop_new();
    struct loop_timer timer;
    FILE *out = tmpfile();
    int before = dup(STDERR_FILENO);

    CU_ASSERT_PTR_NOT_NULL_FATAL(loop);
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    fflush(stderr);
    dup2(fileno(out), STDERR_FILENO);
    loop_timer_init(loop, &timer, loop_again, loop);
    loop_timer_start(&timer, 0);
    loop_run(loop);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(out);
    text[fread(text, 1, size - 1, out)] = '\0';
    fclose(out);
    loop_free(loop);
}

static void test_messages(void)
{
    char text[1000];

    complain(text, sizeof(text));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, " warn "));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "libevent: event_base_loop: "));
    CU_ASSERT_PTR_EQUAL(strchr(text, '\n'), strrchr(text, '\n'));
}

/* --- the same calls ------------------------------------------------------- */

#define TIMERS 12
#define CALLS_MAX 400
#define SEEDS 40

struct game;

struct piece {
    struct game *game;
    struct loop_timer timer;
    unsigned number;
};

/* Calls that stop each other, as a seed says: timers; or deferred calls, which
 * defer each other, too. (A timer that is late waits in a loop of libevent
 * behind calls deferred meanwhile, so the two are not mixed.) */
struct game {
    struct loop *loop;
    struct random_state random;
    bool defers;
    struct loop_timer begin, end;
    struct piece pieces[TIMERS];
    char calls[CALLS_MAX + 1]; /* a letter for each */
    unsigned n;
};

static void on_piece(void *arg)
{
    struct piece *p = arg;
    struct game *g = p->game;
    struct loop_timer *other =
        &g->pieces[random_below(&g->random, TIMERS)].timer;

    if (g->n == CALLS_MAX)
        return;
    g->calls[g->n++] = (char)('a' + p->number);
    if (random_below(&g->random, 4) == 0)
        loop_timer_stop(other);
    else if (g->defers && !loop_timer_pending(other))
        loop_defer(other);
}

static void on_end(void *arg)
{
    struct game *g = arg;

    for (size_t i = 0; i < TIMERS; i++)
        loop_timer_stop(&g->pieces[i].timer);
    loop_stop(g->loop);
}

/* All in one call, so that a loop of libevent counts from one time. */
static void on_begin(void *arg)
{
    struct game *g = arg;

    for (unsigned i = 0; i < TIMERS; i++)
        if (g->defers)
            loop_defer(&g->pieces[i].timer);
        else
            loop_timer_start(&g->pieces[i].timer,
                             1000 + 37 * random_below(&g->random, 90) + i);
    loop_timer_start(&g->end, 8000);
}

static struct game play(struct loop *loop, uint64_t seed)
{
    struct game g = {.loop = loop, .defers = seed % 2};

    CU_ASSERT_PTR_NOT_NULL_FATAL(loop);
    random_init(&g.random, seed);
    for (unsigned i = 0; i < TIMERS; i++) {
        g.pieces[i].game = &g;
        g.pieces[i].number = i;
        loop_timer_init(loop, &g.pieces[i].timer, on_piece, &g.pieces[i]);
    }
    loop_timer_init(loop, &g.begin, on_begin, &g);
    loop_timer_init(loop, &g.end, on_end, &g);
    loop_timer_start(&g.begin, 0);
    CU_ASSERT_EQUAL(loop_run(loop), 0);
    loop_free(loop);
    return g;
}

/* Ties in the order of starting, as libevent's active queue has them. */
static uint32_t in_order(void *arg)
{
    return ++*(uint32_t *)arg;
}

static void test_same_calls(void)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint32_t n = 0;
        struct virtual_time *time = virtual_time_new(1000, in_order, &n);

        CU_ASSERT_PTR_NOT_NULL_FATAL(time);
        struct game mine = play(virtual_loop_new(time), seed);
        struct game real = play(loop_new(), seed);

        CU_ASSERT(mine.n >= TIMERS / 4);
        CU_ASSERT_STRING_EQUAL(mine.calls, real.calls);
        if (strcmp(mine.calls, real.calls) != 0)
            printf("\nseed %u: %s, %s\n", (unsigned)seed, mine.calls,
                   real.calls);
        CU_ASSERT_EQUAL(virtual_time_us(time), 1000 + 1 + 8000);
        virtual_time_free(time);
    }
}

/* --- virtual time --------------------------------------------------------- */

static uint32_t drawn(void *arg)
{
    return (uint32_t)random_u64(arg);
}

static void note(void *arg)
{
    struct piece *p = arg;

    p->game->calls[p->game->n++] = (char)('a' + p->number);
}

/* Timers of two processes, all due at once. Writes the order of their calls. */
static void run_at_once(uint64_t seed, char calls[CALLS_MAX + 1])
{
    struct random_state random;
    struct game g = {0};

    random_init(&random, seed);
    struct virtual_time *time = virtual_time_new(0, drawn, &random);
    CU_ASSERT_PTR_NOT_NULL_FATAL(time);
    struct loop *loops[2] = {virtual_loop_new(time), virtual_loop_new(time)};
    CU_ASSERT_FATAL(loops[0] && loops[1]);
    for (unsigned i = 0; i < TIMERS; i++) {
        g.pieces[i] = (struct piece){.game = &g, .number = i};
        loop_timer_init(loops[i % 2], &g.pieces[i].timer, note, &g.pieces[i]);
        loop_timer_start(&g.pieces[i].timer, 50);
    }
    while (virtual_time_step(time, 100))
        ;
    CU_ASSERT_EQUAL(g.n, TIMERS);
    CU_ASSERT_EQUAL(virtual_time_us(time), 100);
    strcpy(calls, g.calls);
    loop_free(loops[0]);
    loop_free(loops[1]);
    virtual_time_free(time);
}

static void test_seeds(void)
{
    char first[CALLS_MAX + 1], again[CALLS_MAX + 1], other[CALLS_MAX + 1];

    run_at_once(7, first);
    run_at_once(7, again);
    run_at_once(8, other);
    CU_ASSERT_STRING_EQUAL(first, again);
    CU_ASSERT_STRING_NOT_EQUAL(first, other);
}

/* A process that stands still makes its calls when it goes on, and a timer that
 * repeats then counts from there. */
static void test_pause(void)
{
    uint32_t n = 0;
    struct game g = {0};
    struct virtual_time *time = virtual_time_new(0, in_order, &n);
    struct loop *a = time ? virtual_loop_new(time) : NULL;
    struct loop *b = time ? virtual_loop_new(time) : NULL;

    CU_ASSERT_FATAL(a && b);
    for (unsigned i = 0; i < 2; i++) {
        g.pieces[i] = (struct piece){.game = &g, .number = i};
        loop_timer_init(i ? b : a, &g.pieces[i].timer, note, &g.pieces[i]);
        loop_timer_repeat(&g.pieces[i].timer, 10);
    }
    virtual_loop_pause(a, 35);
    while (virtual_time_step(time, 50))
        ;
    CU_ASSERT_STRING_EQUAL(g.calls, "bbbabab");
    virtual_loop_pause(a, 1000);
    virtual_loop_pause(a, 0);
    while (virtual_time_step(time, 55))
        ;
    CU_ASSERT_STRING_EQUAL(g.calls, "bbbababa");
    for (unsigned i = 0; i < 2; i++)
        loop_timer_stop(&g.pieces[i].timer);
    CU_ASSERT_FALSE(virtual_time_step(time, 1000));
    loop_free(a);
    loop_free(b);
    virtual_time_free(time);
}

/* A time later than 64 bits can say never comes. */
static void test_far(void)
{
    static const int64_t us[] = {INT64_MAX, 5, 11, INT64_MAX - 1};
    uint32_t n = 0;
    struct game g = {0};
    struct virtual_time *time = virtual_time_new(INT64_MAX - 10, in_order, &n);
    struct loop *loop = time ? virtual_loop_new(time) : NULL;

    CU_ASSERT_PTR_NOT_NULL_FATAL(loop);
    for (unsigned i = 0; i < 4; i++) {
        g.pieces[i] = (struct piece){.game = &g, .number = i};
        loop_timer_init(loop, &g.pieces[i].timer, note, &g.pieces[i]);
        if (i == 3)
            loop_timer_repeat(&g.pieces[i].timer, us[i]);
        else
            loop_timer_start(&g.pieces[i].timer, us[i]);
    }
    CU_ASSERT_EQUAL(loop_turn(loop, INT64_MAX), 0);
    CU_ASSERT_EQUAL(loop_turn(loop, 100), 0);
    CU_ASSERT_STRING_EQUAL(g.calls, "b");
    CU_ASSERT_EQUAL(virtual_time_us(time), INT64_MAX - 5);
    CU_ASSERT_TRUE(loop_timer_pending(&g.pieces[0].timer));
    for (unsigned i = 0; i < 4; i++)
        loop_timer_stop(&g.pieces[i].timer);
    loop_free(loop);
    virtual_time_free(time);
}

/* --- watches -------------------------------------------------------------- */

static unsigned seen[8];
static size_t n_seen;

static void on_ready(void *arg, unsigned what)
{
    const struct loop_watch *w = arg;
    char byte;

    if (what & LOOP_READ)
        (void)!read(w->fd, &byte, 1);
    seen[n_seen++ % 8] = what;
}

static void expect_seen(size_t n, unsigned last)
{
    CU_ASSERT_EQUAL(n_seen, n);
    CU_ASSERT_EQUAL(seen[(n - 1) % 8], last);
}

/* ready: makes the descriptor readable. */
static void watch(struct loop *loop, int fd, void (*ready)(struct loop *, int))
{
    struct loop_watch w = {0};

    n_seen = 0;
    loop_watch_stop(&w); /* nothing is waited for yet */
    loop_watch_init(loop, &w, fd, LOOP_READ, on_ready, &w);
    CU_ASSERT_FALSE(loop_watch_pending(&w));
    CU_ASSERT_EQUAL(loop_watch_start(&w, 1000), 0);
    CU_ASSERT_TRUE(loop_watch_pending(&w));
    loop_turn(loop, -1);
    expect_seen(1, LOOP_LATE);
    ready(loop, fd);
    loop_turn(loop, 0);
    expect_seen(2, LOOP_READ);
    loop_watch_stop(&w);
    loop_watch_init(loop, &w, fd, LOOP_READ | LOOP_ONCE, on_ready, &w);
    CU_ASSERT_EQUAL(loop_watch_start(&w, 0), 0);
    ready(loop, fd);
    loop_turn(loop, 0);
    expect_seen(3, LOOP_READ);
    CU_ASSERT_FALSE(loop_watch_pending(&w));
    loop_turn(loop, 0);
    expect_seen(3, LOOP_READ);
    loop_watch_report(&w, LOOP_WRITE); /* though it was not started */
    loop_turn(loop, 0);
    expect_seen(4, LOOP_WRITE);
    loop_watch_start(&w, 0);
    ready(loop, fd);
    loop_watch_stop(&w);
    loop_turn(loop, 0);
    expect_seen(4, LOOP_WRITE);
    loop_free(loop);
}

static int other_end;

static void write_byte(struct loop *, int)
{
    CU_ASSERT_EQUAL(write(other_end, "x", 1), 1);
}

static void tell_ready(struct loop *loop, int fd)
{
    virtual_ready(loop, fd, LOOP_READ | LOOP_WRITE);
}

static void test_watches(void)
{
    uint32_t n = 0;
    struct virtual_time *time = virtual_time_new(0, in_order, &n);
    int fd[2];

    CU_ASSERT_PTR_NOT_NULL_FATAL(time);
    watch(virtual_loop_new(time), -1, tell_ready);
    CU_ASSERT_EQUAL(virtual_time_us(time), 1000);
    virtual_time_free(time);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    other_end = fd[1];
    watch(loop_new(), fd[0], write_byte);
    close(fd[0]);
    close(fd[1]);
}

/* --- intervals ------------------------------------------------------------ */

struct often {
    struct loop_timer timer, defers, early, late;
    struct loop *loop;
    int n, left;
    bool is_early, is_late;
};

static void on_often(void *arg)
{
    struct often *o = arg;

    if (++o->n == 4)
        loop_stop(o->loop);
}

static void set(void *flag)
{
    *(bool *)flag = true;
}

static void on_defers(void *arg)
{
    struct often *o = arg;

    if (o->left-- > 0)
        loop_defer(&o->timer);
    else
        loop_timer_stop(&o->defers);
}

/* Deferred three times, the timer goes on an interval after the last. */
static void defer_often(struct loop *loop)
{
    struct often o = {.loop = loop, .left = 3};

    loop_timer_init(loop, &o.timer, on_often, &o);
    loop_timer_repeat(&o.timer, 50000);
    loop_timer_init(loop, &o.defers, on_defers, &o);
    loop_timer_repeat(&o.defers, 1);
    loop_timer_init(loop, &o.early, set, &o.is_early);
    loop_timer_start(&o.early, 25000);
    loop_timer_init(loop, &o.late, set, &o.is_late);
    loop_timer_start(&o.late, 150000);
    CU_ASSERT_EQUAL(loop_run(loop), 0);
    CU_ASSERT_EQUAL(o.n, 4);
    CU_ASSERT_TRUE(o.is_early);
    /* Not behind the three intervals that were never waited for. */
    CU_ASSERT_FALSE(o.is_late);
    loop_timer_stop(&o.late);
    loop_timer_stop(&o.timer);
    loop_timer_repeat(&o.timer, 0); /* as often as it can */
    o.n = 0;
    CU_ASSERT_EQUAL(loop_run(loop), 0);
    CU_ASSERT_EQUAL(o.n, 4);
    loop_timer_stop(&o.timer);
    loop_timer_stop(&o.defers);
    loop_free(loop);
}

static void test_intervals(void)
{
    uint32_t n = 0;
    struct virtual_time *time = virtual_time_new(0, in_order, &n);

    CU_ASSERT_PTR_NOT_NULL_FATAL(time);
    defer_often(virtual_loop_new(time));
    virtual_time_free(time);
    defer_often(loop_new());
}

/* Patience ends with the watch that had it. */
static void test_patience(void)
{
    struct loop *loop = loop_new();
    struct loop_watch w = {0};
    int fd[2];

    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    other_end = fd[1];
    n_seen = 0;
    loop_watch_init(loop, &w, fd[0], LOOP_READ, on_ready, &w);
    for (int stopped = 0; stopped < 2; stopped++) {
        loop_watch_start(&w, 1000);
        if (stopped)
            loop_watch_stop(&w);
        loop_watch_start(&w, 0);
        write_byte(loop, fd[0]);
        loop_turn(loop, 0);
        expect_seen((size_t)stopped + 1, LOOP_READ);
        loop_turn(loop, 5000);
        expect_seen((size_t)stopped + 1, LOOP_READ);
    }
    loop_watch_stop(&w);
    loop_free(loop);
    close(fd[0]);
    close(fd[1]);
}

/* --- clocks and random numbers -------------------------------------------- */

static void test_virtual_wall(void)
{
    uint32_t n = 0;
    struct virtual_time *time = virtual_time_new(500, in_order, &n);
    struct loop *a = time ? virtual_loop_new(time) : NULL;
    struct loop *b = time ? virtual_loop_new(time) : NULL;

    CU_ASSERT_FATAL(a && b);
    CU_ASSERT_EQUAL(loop_wall_us(a), VIRTUAL_WALL_US + 500);
    CU_ASSERT_FALSE(virtual_time_step(time, 700));
    CU_ASSERT_EQUAL(loop_wall_us(a), VIRTUAL_WALL_US + 700);
    virtual_loop_set_wall(a, 40); /* it jumps back, for one process */
    CU_ASSERT_FALSE(virtual_time_step(time, 1000));
    CU_ASSERT_EQUAL(loop_wall_us(a), 340);
    CU_ASSERT_EQUAL(loop_wall_us(b), VIRTUAL_WALL_US + 1000);
    CU_ASSERT_EQUAL(loop_now_us(a), 1000);
    loop_free(a);
    loop_free(b);
    virtual_time_free(time);
}

#define NUMBERS 100

/* Draws numbers of the second of two processes. */
static void draw_numbers(uint64_t seed, unsigned n_first,
                         uint64_t numbers[NUMBERS])
{
    struct random_state random;

    random_init(&random, seed);
    struct virtual_time *time = virtual_time_new(0, drawn, &random);
    struct loop *first = time ? virtual_loop_new(time) : NULL;
    struct loop *second = time ? virtual_loop_new(time) : NULL;

    CU_ASSERT_FATAL(first && second);
    for (unsigned i = 0; i < n_first; i++)
        loop_random(first);
    for (unsigned i = 0; i < NUMBERS; i++)
        numbers[i] = loop_random(second);
    loop_free(first);
    loop_free(second);
    virtual_time_free(time);
}

/* A process's numbers follow from the seed alone. */
static void test_virtual_random(void)
{
    uint64_t one[NUMBERS], again[NUMBERS], other[NUMBERS];

    draw_numbers(7, 0, one);
    draw_numbers(7, 5, again);
    draw_numbers(8, 0, other);
    CU_ASSERT_EQUAL(memcmp(one, again, sizeof(one)), 0);
    for (unsigned i = 0; i < NUMBERS; i++)
        CU_ASSERT_NOT_EQUAL(one[i], other[i]);
}

/* Two loops of libevent draw different numbers, and all bytes are filled. */
static void test_real_random(void)
{
    struct loop *loops[2] = {loop_new(), loop_new()};
    uint8_t bytes[2][21] = {{0}}, seen_bits[21] = {0};

    CU_ASSERT_FATAL(loops[0] && loops[1]);
    for (unsigned i = 0; i < NUMBERS; i++) {
        uint64_t a = loop_random(loops[0]);

        CU_ASSERT_NOT_EQUAL(a, loop_random(loops[0]));
        CU_ASSERT_NOT_EQUAL(a, loop_random(loops[1]));
        loop_random_bytes(loops[0], bytes[0], 20);
        loop_random_bytes(loops[1], bytes[1], 20);
        CU_ASSERT_NOT_EQUAL(memcmp(bytes[0], bytes[1], 20), 0);
        for (unsigned k = 0; k < 21; k++)
            seen_bits[k] |= bytes[0][k];
    }
    for (unsigned k = 0; k < 20; k++)
        CU_ASSERT_EQUAL(seen_bits[k], 0xff);
    CU_ASSERT_EQUAL(seen_bits[20], 0);
    CU_ASSERT_TRUE(loop_wall_us(loops[0]) > VIRTUAL_WALL_US);
    loop_free(loops[0]);
    loop_free(loops[1]);
}

static void on_bell(void *arg)
{
    ++*(int *)arg;
}

static void test_bell(void)
{
    struct loop *loop = loop_new();
    struct loop_bell bell = {0};
    int n = 0;

    loop_bell_fini(&bell); /* it was never made */
    CU_ASSERT_EQUAL_FATAL(loop_bell_init(loop, &bell, true, on_bell, &n), 0);
    loop_turn(loop, 0);
    CU_ASSERT_EQUAL(n, 0);
    loop_ring(&bell);
    loop_ring(&bell);
    loop_turn(loop, 0);
    loop_turn(loop, 0);
    CU_ASSERT_EQUAL(n, 1);
    loop_bell_fini(&bell);
    loop_free(loop);
}

static const struct suite_test tests[] = {
    {"messages of libevent", test_messages},
    {"the same calls", test_same_calls},
    {"seeds", test_seeds},
    {"a pause", test_pause},
    {"far away", test_far},
    {"watches", test_watches},
    {"intervals", test_intervals},
    {"patience", test_patience},
    {"a virtual time of day", test_virtual_wall},
    {"a process's random numbers", test_virtual_random},
    {"random numbers of the machine", test_real_random},
    {"a bell", test_bell},
};
SUITE("loop", tests)
