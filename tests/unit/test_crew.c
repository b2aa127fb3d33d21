/* Threads that do jobs: none is lost, in order, and all come back. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/crew.h"
#include "base/loop/loop.h"
#include "base/loop/virtual.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

#define JOBS 2000u

struct task {
    struct crew_job job;
    uint32_t begun; /* the how manyth, from 1 */
};

struct work {
    sem_t gate; /* taken by the test: nothing goes on */
    atomic_uint n, n_over;
};

static struct task *task_of(struct crew_job *job)
{
    return (struct task *)(void *)job;
}

static void run(void *arg, struct crew_job *job)
{
    struct work *w = arg;

    task_of(job)->begun = atomic_fetch_add(&w->n, 1) + 1;
    sem_wait(&w->gate);
    sem_post(&w->gate);
}

static void over(void *arg)
{
    struct work *w = arg;

    atomic_fetch_add(&w->n_over, 1);
}

static const struct crew_ops ops = {run, over};

static void init(struct work *w, unsigned n, struct crew **crew)
{
    sem_init(&w->gate, 0, 1);
    atomic_init(&w->n, 0);
    atomic_init(&w->n_over, 0);
    CU_ASSERT_EQUAL_FATAL(crew_new(NULL, n, &ops, w, crew), 0);
}

static void fini(struct work *w, struct crew *crew)
{
    crew_free(crew);
    sem_destroy(&w->gate);
}

static void test_all_come_back(void)
{
    static struct task tasks[JOBS];
    bool seen[JOBS + 1] = {false};
    struct crew *crew;
    struct work w;

    init(&w, 9, &crew); /* no more than CREW_MAX */
    CU_ASSERT_PTR_NULL(crew_over(crew, false));
    for (uint32_t i = 0; i < JOBS; i++)
        crew_add(crew, &tasks[i].job, i % 3 == 0);
    for (uint32_t i = 0; i < JOBS; i++) {
        struct crew_job *job = crew_over(crew, true);

        CU_ASSERT_PTR_NOT_NULL_FATAL(job);
        CU_ASSERT_FATAL(task_of(job)->begun > 0 && task_of(job)->begun <= JOBS);
        CU_ASSERT_FALSE(seen[task_of(job)->begun]);
        seen[task_of(job)->begun] = true;
    }
    CU_ASSERT_PTR_NULL(crew_over(crew, false));
    crew_stop(crew, true);
    CU_ASSERT_EQUAL(atomic_load(&w.n_over), JOBS);
    fini(&w, crew);
}

/* One thread has the first job at its gate; the others wait. */
static void hold_first(struct work *w, struct crew *crew, struct task *tasks)
{
    sem_wait(&w->gate);
    crew_add(crew, &tasks[0].job, false);
    while (atomic_load(&w->n) == 0)
        usleep(100);
    for (int i = 1; i < 5; i++)
        crew_add(crew, &tasks[i].job, i >= 3);
}

static void test_order(void)
{
    static const uint32_t begun[] = {1, 4, 5, 2, 3};
    struct task tasks[5] = {0};
    struct crew *crew;
    struct work w;

    init(&w, 1, &crew);
    hold_first(&w, crew, tasks);
    sem_post(&w.gate);
    crew_stop(crew, true);
    for (int i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(tasks[i].begun, begun[i]);
    fini(&w, crew);
}

static void *let_go(void *arg)
{
    struct work *w = arg;

    usleep(20000);
    sem_post(&w->gate);
    return NULL;
}

/* A job that was begun ends; waiting jobs come back without a run. */
static void test_stop(void)
{
    struct task tasks[5] = {0};
    struct crew *crew;
    struct work w;
    pthread_t thread;
    uint32_t n = 0;

    init(&w, 1, &crew);
    hold_first(&w, crew, tasks);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, let_go, &w), 0);
    crew_stop(crew, false);
    pthread_join(thread, NULL);
    for (struct crew_job *job; (job = crew_over(crew, false)); n++)
        CU_ASSERT_EQUAL(task_of(job)->begun, task_of(job) == tasks);
    CU_ASSERT_EQUAL(n, 5);
    fini(&w, crew);
}

/* --- in virtual time ------------------------------------------------------ */

#define VIRTUAL_JOBS 60
#define HANDS 3

/* A play as text: the time of each run and of each return. */
struct story {
    struct virtual_time *time;
    struct loop_bell bell;
    struct crew *crew;
    struct task tasks[VIRTUAL_JOBS];
    char text[VIRTUAL_JOBS * 64];
    unsigned n_back;
};

static void add_line(struct story *s, const char *what, size_t i)
{
    size_t n = strlen(s->text);

    snprintf(s->text + n, sizeof(s->text) - n, "%lld %s %zu\n",
             (long long)virtual_time_us(s->time), what, i);
}

static void story_run(void *arg, struct crew_job *job)
{
    struct story *s = arg;

    add_line(s, "runs", (size_t)(task_of(job) - s->tasks));
}

static void story_over(void *arg)
{
    loop_ring(&((struct story *)arg)->bell);
}

static const struct crew_ops story_ops = {story_run, story_over};

static void on_bell(void *arg)
{
    struct story *s = arg;
    struct crew_job *job;

    while ((job = crew_over(s->crew, false))) {
        add_line(s, "is back", (size_t)(task_of(job) - s->tasks));
        s->n_back++;
    }
}

static uint32_t drawn(void *arg)
{
    return (uint32_t)random_u64(arg);
}

/* Plays until until_us, then stops the crew. Returns how many jobs were over by
 * then. */
static unsigned tell(struct story *s, uint64_t seed, int64_t until_us,
                     bool finish)
{
    struct random_state random;

    *s = (struct story){0};
    random_init(&random, seed);
    s->time = virtual_time_new(0, drawn, &random);
    struct loop *loop = s->time ? virtual_loop_new(s->time) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(loop);
    CU_ASSERT_EQUAL_FATAL(loop_bell_init(loop, &s->bell, false, on_bell, s), 0);
    CU_ASSERT_EQUAL_FATAL(crew_new(loop, HANDS, &story_ops, s, &s->crew), 0);
    for (size_t i = 0; i < VIRTUAL_JOBS; i++)
        crew_add(s->crew, &s->tasks[i].job, i % 4 == 3);
    CU_ASSERT_EQUAL(s->text[0], '\0'); /* from the loop alone */
    while (virtual_time_step(s->time, until_us))
        ;
    unsigned n = s->n_back;
    crew_stop(s->crew, finish);
    on_bell(s);
    CU_ASSERT_EQUAL(s->n_back, VIRTUAL_JOBS);
    crew_free(s->crew);
    loop_bell_fini(&s->bell);
    loop_free(loop);
    virtual_time_free(s->time);
    return n;
}

static unsigned count_of(const char *text, const char *word)
{
    unsigned n = 0;

    for (; (text = strstr(text, word)); text++)
        n++;
    return n;
}

static void test_virtual(void)
{
    static struct story one, again, other;

    CU_ASSERT_EQUAL(tell(&one, 7, INT64_MAX - 1, true), VIRTUAL_JOBS);
    CU_ASSERT_EQUAL(tell(&again, 7, INT64_MAX - 1, true), VIRTUAL_JOBS);
    CU_ASSERT_EQUAL(tell(&other, 8, INT64_MAX - 1, true), VIRTUAL_JOBS);
    CU_ASSERT_STRING_EQUAL(one.text, again.text);
    CU_ASSERT_STRING_NOT_EQUAL(one.text, other.text);
    CU_ASSERT_EQUAL(count_of(one.text, "runs"), VIRTUAL_JOBS);
    /* The first three began before the urgent ones came. */
    CU_ASSERT_TRUE(strstr(one.text, "runs 3\n") < strstr(one.text, "runs 4\n"));
}

/* Jobs that were begun end; waiting jobs run, or come back without a run. */
static void test_virtual_stop(void)
{
    static struct story s;
    unsigned n = tell(&s, 9, 3000, true);

    CU_ASSERT(n > 0 && n < VIRTUAL_JOBS - HANDS);
    CU_ASSERT_EQUAL(count_of(s.text, "runs"), VIRTUAL_JOBS);
    CU_ASSERT_EQUAL(tell(&s, 9, 3000, false), n);
    CU_ASSERT_EQUAL(count_of(s.text, "runs"), n + HANDS);
}

static void test_virtual_wait(void)
{
    static struct story s;
    uint32_t n = 0;
    struct random_state random;

    random_init(&random, 1);
    s.time = virtual_time_new(0, drawn, &random);
    struct loop *loop = s.time ? virtual_loop_new(s.time) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(loop);
    CU_ASSERT_EQUAL_FATAL(loop_bell_init(loop, &s.bell, false, on_bell, &s), 0);
    CU_ASSERT_EQUAL_FATAL(crew_new(loop, 1, &story_ops, &s, &s.crew), 0);
    CU_ASSERT_PTR_NULL(crew_over(s.crew, true)); /* nothing to wait for */
    for (size_t i = 0; i < 3; i++)
        crew_add(s.crew, &s.tasks[i].job, false);
    CU_ASSERT_PTR_NULL(crew_over(s.crew, false));
    while (crew_over(s.crew, true))
        n++;
    CU_ASSERT_EQUAL(n, 3);
    crew_free(s.crew);
    loop_bell_fini(&s.bell);
    CU_ASSERT_FALSE(virtual_time_step(s.time, 5000));
    loop_free(loop);
    virtual_time_free(s.time);
}

static const struct suite_test tests[] = {
    {"all come back", test_all_come_back},
    {"order", test_order},
    {"stopped", test_stop},
    {"in virtual time", test_virtual},
    {"stopped in virtual time", test_virtual_stop},
    {"awaited in virtual time", test_virtual_wait},
};
SUITE("crew", tests)
