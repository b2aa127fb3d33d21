/* Shared by the files of the world; private to them. */
#ifndef TESTS_WORLD_INTERNAL_H
#define TESTS_WORLD_INTERNAL_H

#include "base/loop/loop.h"
#include "base/loop/virtual.h"
#include "base/loop/virtual_net.h"
#include "predictor/cost_model.h"
#include "tests/world/world.h"
#include "traces/random.h"
#include "workers/options.h"

#define WORLD_WORKERS 4u
#define WORLD_CLIENTS 6u
#define WORLD_BLOCK_TOKENS 16
#define WORLD_BLOCK_TOKENS_TEXT "16"
#define WORLD_SECOND_US INT64_C(1000000)

/* Addresses of the virtual net: 10.0.0.1, 10.0.0.10..., 10.0.1.1... */
#define WORLD_CONDUCTOR 0x0a000001u
#define WORLD_WORKER 0x0a00000au
#define WORLD_CLIENT 0x0a000101u
#define WORLD_HTTP_PORT 8080

struct config;
struct engine;
struct front;
struct models;
struct reference;
struct secret;
struct worker;
struct world;
struct world_client;

struct world_conductor {
    struct world *world;
    struct config *config;
    struct loop *loop; /* NULL = it does not run */
    struct models *models;
    struct front *front;
};

struct world_worker {
    struct world *world;
    uint32_t i;
    struct loop *loop; /* NULL = it does not run */
    struct engine *engine;
    struct secret *secret;
    struct worker *worker;
    struct worker_options options;
    char name[8], address[24];
};

struct world {
    struct world_options options;
    struct world_result *result;
    struct random_state ties; /* of the virtual time */
    struct random_state random;
    struct virtual_time *time;
    struct virtual_net *net;
    struct cost_model cost;
    char secret_file[32]; /* of this play; "" = none */
    struct reference *reference;
    struct world_conductor conductor;
    struct world_worker workers[WORLD_WORKERS];
    struct world_client *clients[WORLD_CLIENTS];
    /* Faults: */
    struct loop *hand; /* of what is done to the others */
    struct loop_timer next;
    struct loop_timer restart[WORLD_WORKERS];
    struct loop_timer mend; /* all links */
    int64_t think_us;       /* of a client between requests, in the mean */
    int64_t until_us;       /* of requests and faults */
    int64_t broke_us; /* last fault that can break a client's connection */
};

/* --- world.c --- */

int64_t world_now_us(const struct world *w);

/* Writes a line to the log, with the time. */
void world_say(struct world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Logs a broken rule, and counts it as a violation. */
void world_violation(struct world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns a random number below `bound`, at least 1. */
uint32_t world_pick(struct world *w, uint32_t bound);

/* Makes the loop of a process at an address. Returns it owned, or NULL: out of
 * memory. */
[[nodiscard]] struct loop *world_join(struct world *w, uint32_t address);

/* --- conductor.c, worker.c --- */

/* Start the process. Return 0, or a negative errno; the reason was logged. */
[[nodiscard]] int world_conductor_start(struct world_conductor *c);
[[nodiscard]] int world_worker_start(struct world_worker *w);

/* Kill it, with its machine if `off`. No-ops if it does not run. */
void world_conductor_kill(struct world_conductor *c, bool off);
void world_worker_kill(struct world_worker *w, bool off);

/* --- reference.c: what the engine answers --- */

/* Makes a reference for models of this cost. Returns it owned, or NULL. */
[[nodiscard]] struct reference *reference_new(const struct cost_model *cost);
void reference_free(struct reference *r);

/* Writes the n characters that answer prompt[n_prompt] to text[n]. Returns 0,
 * or a negative errno. */
[[nodiscard]] int reference_answer(struct reference *r, const uint32_t *prompt,
                                   uint32_t n_prompt, char *text, uint32_t n);

/* --- client.c --- */

/* Makes client i. It sends one request after the other until the world's
 * until_us. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct world_client *world_client_new(struct world *w,
                                                    uint32_t i);
void world_client_free(struct world_client *c);

/* Returns whether the client waits for no answer and asks no more. */
bool world_client_quiet(const struct world_client *c);

/* Asks one more request, which must be answered whole. */
void world_client_last(struct world_client *c);

/* --- faults.c --- */

/* Begins with faults. Returns 0, or -ENOMEM. */
[[nodiscard]] int world_faults_start(struct world *w);

/* Ends them: links are mended, and processes run. */
void world_faults_end(struct world *w);

#endif
