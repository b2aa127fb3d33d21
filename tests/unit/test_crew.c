/* Threads that do jobs: none is lost, in order, and all come back. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/crew.h"
#include "tests/unit/suite.h"

#define JOBS 2000u

struct task {
    struct crew_job job;
    uint32_t begun; /* the how manyth, from 1 */
};

struct work {
    sem_t gate; /* taken by the test: nothing goes on */
    atomic_uint n;
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

static void init(struct work *w, unsigned n, int *bell, struct crew **crew)
{
    sem_init(&w->gate, 0, 1);
    atomic_init(&w->n, 0);
    *bell = eventfd(0, EFD_NONBLOCK);
    CU_ASSERT_EQUAL_FATAL(crew_new(n, *bell, run, w, crew), 0);
}

static void fini(struct work *w, int bell, struct crew *crew)
{
    crew_free(crew);
    close(bell);
    sem_destroy(&w->gate);
}

static void test_all_come_back(void)
{
    static struct task tasks[JOBS];
    bool seen[JOBS + 1] = {false};
    struct crew *crew;
    struct work w;
    uint64_t rung = 0;
    int bell;

    init(&w, 9, &bell, &crew); /* no more than CREW_MAX */
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
    CU_ASSERT_EQUAL(read(bell, &rung, sizeof(rung)), sizeof(rung));
    CU_ASSERT_EQUAL(rung, JOBS);
    fini(&w, bell, crew);
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
    int bell;

    init(&w, 1, &bell, &crew);
    hold_first(&w, crew, tasks);
    sem_post(&w.gate);
    crew_stop(crew, true);
    for (int i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(tasks[i].begun, begun[i]);
    fini(&w, bell, crew);
}

static void *let_go(void *arg)
{
    struct work *w = arg;

    usleep(20000);
    sem_post(&w->gate);
    return NULL;
}

/* What was begun ends; what waits comes back as it is. */
static void test_stop(void)
{
    struct task tasks[5] = {0};
    struct crew *crew;
    struct work w;
    pthread_t thread;
    uint32_t n = 0;
    int bell;

    init(&w, 1, &bell, &crew);
    hold_first(&w, crew, tasks);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, let_go, &w), 0);
    crew_stop(crew, false);
    pthread_join(thread, NULL);
    for (struct crew_job *job; (job = crew_over(crew, false)); n++)
        CU_ASSERT_EQUAL(task_of(job)->begun, task_of(job) == tasks);
    CU_ASSERT_EQUAL(n, 5);
    fini(&w, bell, crew);
}

static const struct suite_test tests[] = {
    {"all come back", test_all_come_back},
    {"order", test_order},
    {"stopped", test_stop},
};
SUITE("crew", tests)
