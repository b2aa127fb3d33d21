/*
 * A loop calls back when a time, a socket, a signal or a thread is due.
 * Everything outside base/ waits through this interface and names no library.
 * libevent is behind loop_new(); virtual.h has a loop on a virtual clock, which
 * a test moves.
 *
 *   struct loop_timer  a call at a time, once or repeated; a deferred call
 *   struct loop_watch  a descriptor that can be read or written; a signal
 *   struct loop_bell   a call that any thread asks for
 *
 * It also has the clocks and the random numbers of its process. All three are
 * members of their owners' structs: starting one allocates nothing that has to
 * be freed. A turn of the loop takes what the kernel reports and what is due,
 * calls each, and then everything deferred meanwhile.
 *
 * Rules: only the loop's own thread calls these functions, except loop_ring().
 * A call may stop, start and free its own timer or watch, or any other: a
 * stopped one is not called. Before its memory goes, stop it. One that was
 * never initialized (all zero) may be stopped.
 */
#ifndef BASE_LOOP_LOOP_H
#define BASE_LOOP_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;

/* Room in a timer or watch for what the loop itself keeps of it. */
struct loop_private {
    uint64_t words[16];
};

struct loop_timer {
    struct loop *loop; /* NULL = not initialized */
    void (*run)(void *arg);
    void *arg;
    bool repeats;
    struct loop_private own;
};

/* A watch waits for some of these, and reports them; LOOP_ONCE: it stops when
 * it reports. */
#define LOOP_LATE 1u /* nothing came within its patience */
#define LOOP_READ 2u
#define LOOP_WRITE 4u
#define LOOP_ONCE 64u

struct loop_watch {
    struct loop *loop; /* NULL = not initialized */
    void (*run)(void *arg, unsigned what);
    void *arg;
    int fd; /* borrowed; or the signal's number */
    unsigned what;
    struct loop_private own;
};

struct loop_bell {
    void (*heard)(void *arg);
    void *arg;
    struct loop_watch watch; /* of an eventfd; of -1 without threads */
};

/* Makes a loop of libevent with precise timers: by default libevent reads a
 * coarse clock that ticks every 4 ms, as long as a short prefill. libevent's
 * messages go to the log. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct loop *loop_new(void);

/* Frees it, after all its timers, watches and bells. NULL is a no-op. */
void loop_free(struct loop *loop);

/* Runs turns until loop_stop(), or until nothing is waited for. Returns 0, or
 * -EIO: the kernel cannot be asked. */
int loop_run(struct loop *loop);

/* Ends loop_run() after the call that is running. */
void loop_stop(struct loop *loop);

/* Runs one turn. Waits at most wait_us for something to do; -1 = without
 * limit; 0 = not at all, and turns follow until nothing is ready. Returns as
 * loop_run(). */
int loop_turn(struct loop *loop, int64_t wait_us);

/* Returns the loop's time: microseconds of its monotonic clock. */
int64_t loop_now_us(const struct loop *loop);

/* Returns the time of day: microseconds since 1970 in UTC. It may jump. */
int64_t loop_wall_us(const struct loop *loop);

/* Returns a random number that nobody can guess. */
uint64_t loop_random(struct loop *loop);

/* Fills out[n] with such numbers. */
void loop_random_bytes(struct loop *loop, uint8_t *out, size_t n);

/* Returns a time that is the same through a turn and differs between turns; it
 * belongs to no other clock. */
int64_t loop_turn_us(const struct loop *loop);

/* loop_away_us(last_us, now_us, every_us): call it from a timer that repeats
 * every every_us; *last_us is 0 at first. Returns how long (us) this process
 * did not run (stopped, or without a processor): it read nothing then, so the
 * silence of others means nothing. 0 = late by less than every_us. */
int64_t loop_away_us(int64_t *last_us, int64_t now_us, int64_t every_us);

/* Initializes a timer, which is not pending then. */
void loop_timer_init(struct loop *loop, struct loop_timer *t,
                     void (*run)(void *arg), void *arg);

/* Makes it run once, in us microseconds, instead of when it would have run;
 * 0 = in the loop's next turn. Returns 0, or -ENOMEM. */
int loop_timer_start(struct loop_timer *t, int64_t us);

/* Makes it run every us microseconds. Returns 0, or -ENOMEM. */
int loop_timer_repeat(struct loop_timer *t, int64_t us);

/* Makes it run in this turn, after the calls that are due already. Outside a
 * turn: in the next one. A timer that repeats goes on. */
void loop_defer(struct loop_timer *t);

void loop_timer_stop(struct loop_timer *t);

/* Returns whether it will run. */
bool loop_timer_pending(const struct loop_timer *t);

/* Initializes a watch of a descriptor: `what` is LOOP_READ or LOOP_WRITE, with
 * LOOP_ONCE if the first report is to be the last. */
void loop_watch_init(struct loop *loop, struct loop_watch *w, int fd,
                     unsigned what, void (*run)(void *arg, unsigned what),
                     void *arg);

/* The same for a signal of the process, which `number` is also the report
 * of. */
void loop_signal_init(struct loop *loop, struct loop_watch *w, int number,
                      void (*run)(void *arg, unsigned what), void *arg);

/* Begins to watch. patience_us: reports LOOP_LATE when nothing came for so
 * long; 0 = never. Returns 0, or -ENOMEM. */
int loop_watch_start(struct loop_watch *w, int64_t patience_us);

void loop_watch_stop(struct loop_watch *w);
bool loop_watch_pending(const struct loop_watch *w);

/* Reports `what` in this turn, as if the kernel had. */
void loop_watch_report(struct loop_watch *w, unsigned what);

/* Returns whether other threads may work for the loop. In virtual time there
 * are none, because their order would not follow from the seed. */
bool loop_has_threads(const struct loop *loop);

/* Makes a bell: heard(arg) is called on the loop's thread; several rings before
 * that count as one. first: it comes before everything else of a turn. Returns
 * 0, or a negative errno. */
[[nodiscard]] int loop_bell_init(struct loop *loop, struct loop_bell *b,
                                 bool first, void (*heard)(void *arg),
                                 void *arg);

/* Silences it for good; no thread may ring it any more. A bell that was never
 * made (all zero) is a no-op. */
void loop_bell_fini(struct loop_bell *b);

/* Rings it. On any thread. */
void loop_ring(struct loop_bell *b);

#endif
