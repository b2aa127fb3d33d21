/* Pools, indexes and schedulers, as tests of core set them up. */
#ifndef TESTS_UNIT_CORE_RIG_H
#define TESTS_UNIT_CORE_RIG_H

#include <CUnit/CUnit.h>
#include <string.h>

#include "conductor/core/schedule/schedule.h"

/* An option of a policy. */
struct core_option {
    const char *name;
    double value;
};

/* Returns a scheduler with a policy and `n` of its options, or fails the test.
 * The caller owns it; it borrows the others. */
static inline struct scheduler *
core_scheduler(const char *policy, const struct core_option *options, size_t n,
               const struct estimate_model *model, struct pool *pool,
               struct prefix_index *index)
{
    const struct schedule_policy *by = schedule_policy_by_name(policy);
    double values[POLICY_OPTIONS_MAX];
    struct scheduler *s;

    CU_ASSERT_PTR_NOT_NULL_FATAL(by);
    policy_options_init(by, values);
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_EQUAL_FATAL(
            policy_options_set(by, values, options[i].name, options[i].value),
            0);
    s = scheduler_new(
        &(struct schedule_config){.policy = by, .options = values}, model, pool,
        index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    return s;
}

/* Of a rig `r`, which has a pool, an index and a scheduler: makes the scheduler
 * of this policy; the options are {name, value}, .. */
#define CORE_SCHEDULER(r, policy, model, ...)                               \
    ((r)->scheduler =                                                       \
         core_scheduler(policy, (const struct core_option[]){__VA_ARGS__},  \
                        sizeof((const struct core_option[]){__VA_ARGS__}) / \
                            sizeof(struct core_option),                     \
                        model, (r)->pool, (r)->index))

/* Its `decision` about its request is carried out. */
#define COMMIT(r, decision) \
    CU_ASSERT_EQUAL(        \
        schedule_commit((r)->scheduler, &(r)->request, &(r)->decision), 0)

/* Frees all three. */
#define CORE_FREE(r)                    \
    do {                                \
        scheduler_free((r)->scheduler); \
        prefix_index_free((r)->index);  \
        pool_free((r)->pool);           \
    } while (0)

static inline struct prefix_index *core_index(uint32_t max_instances,
                                              size_t max_bytes)
{
    return prefix_index_new(&(struct prefix_index_config){
        .max_instances = max_instances, .max_bytes = max_bytes});
}

/* Returns the id of a new instance, which starts. */
static inline uint32_t core_add(struct pool *pool,
                                const struct pool_instance_config *config)
{
    uint32_t id = POOL_NO_INSTANCE;

    CU_ASSERT_EQUAL_FATAL(pool_add(pool, config, &id), 0);
    return id;
}

#define ADDED(pool, ...) \
    core_add(pool, &(const struct pool_instance_config){__VA_ARGS__})

/* Likewise of one that is ready. */
static inline uint32_t core_ready(struct pool *pool,
                                  const struct pool_instance_config *config)
{
    uint32_t id = core_add(pool, config);

    CU_ASSERT_EQUAL_FATAL(pool_set_health(pool, id, HEALTH_READY), 0);
    return id;
}

#define READY(pool, ...) \
    core_ready(pool, &(const struct pool_instance_config){__VA_ARGS__})

/* An instance takes a prefill: fields of struct pool_prefill_request. */
#define ACCEPTS(pool, id, ...)                                            \
    CU_ASSERT_EQUAL_FATAL(                                                \
        pool_prefill_accept(                                              \
            pool, id, &(const struct pool_prefill_request){__VA_ARGS__}), \
        0)

/* A request on an instance books a channel: fields of struct pool_booking. */
#define BOOKS(pool, id, request, now_us, ...)                                  \
    CU_ASSERT_EQUAL_FATAL(pool_book(pool,                                      \
                                    &(const struct pool_booking){__VA_ARGS__}, \
                                    id, request, now_us),                      \
                          0)

/* A request's KV is pushed to an instance: fields of struct pool_push. */
#define PUSHES(pool, id, request, ...)                                   \
    CU_ASSERT_EQUAL_FATAL(                                               \
        pool_book_push(pool, &(const struct pool_push){__VA_ARGS__}, id, \
                       request),                                         \
        0)

#endif
