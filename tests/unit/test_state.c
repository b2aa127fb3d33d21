/* The service where an invariant of its own is broken: a request comes into a
 * state that it cannot have. Two engines, which answer nothing. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"
#include "conductor/service/setup.h"
#include "tests/unit/suite.h"

#define TURNS_MAX 100

#define ENGINE(name)                                                           \
    "{\"name\": \"" name "\", \"kind\": \"vllm\", \"model\": \"m\", \"url\": " \
    "\"http://127.0.0.1:%d\"}"
static const char engines[] =
    "{\"worker_listen\": \"\", \"engines\": [" ENGINE("e") "," ENGINE("f") "]}";

struct rig {
    struct loop *loop;
    int listener; /* of the engine, that takes connections and says nothing */
    struct config config;
    struct models *models;
    struct service *service;
    struct service_request *request;
    unsigned scheduled, failed;
    int status;
    char code[32];
};

static void on_scheduled(void *arg, const struct service_decision *)
{
    ((struct rig *)arg)->scheduled++;
}

static void on_answer(void *, const struct http_head *)
{
}

static void on_bytes(void *, const char *, size_t)
{
}

static void on_done(void *, const struct service_result *)
{
}

static void on_failed(void *arg, const struct service_failure *failure)
{
    struct rig *r = arg;

    r->failed++;
    r->status = failure->http_status;
    snprintf(r->code, sizeof(r->code), "%s", failure->code);
}

static const struct service_reply_ops ops = {
    .scheduled = on_scheduled,
    .answer = on_answer,
    .bytes = on_bytes,
    .done = on_done,
    .failed = on_failed,
};

static struct engine *engine(const struct rig *r)
{
    return r->service->engines.by_slot[0];
}

/* A request arrives; the engine counts as ready. */
static void begin(struct rig *r)
{
    const struct service_forward forward = {
        .method = "POST",
        .path = "/v1/completions",
        .headers = "",
        .authorization = "",
        .cache_salt = "",
        .body = "{}",
        .n = 2,
        .stream = true,
        .prompt = true,
    };
    const struct service_request_params params = {
        .n_tokens = 0, .max_tokens = 4, .forward = &forward};
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    char err[CONFIG_ERROR_MAX] = "", text[512];

    *r = (struct rig){.loop = loop_new(),
                      .listener = socket(AF_INET, SOCK_STREAM, 0)};
    CU_ASSERT_EQUAL_FATAL(bind(r->listener, (struct sockaddr *)&at, n), 0);
    CU_ASSERT_EQUAL_FATAL(listen(r->listener, 8), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(r->listener, (struct sockaddr *)&at, &n),
                          0);
    snprintf(text, sizeof(text), engines, ntohs(at.sin_port),
             ntohs(at.sin_port));
    CU_ASSERT_EQUAL_FATAL(config_parse(&r->config, text, strlen(text), err), 0);
    r->models = models_new(r->loop, &r->config, err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->models);
    r->service = models_first(r->models);
    loop_timer_stop(
        &r->service->tick.timer); /* real time has no part in this */
    loop_timer_stop(&engine(r)->health.timer);
    CU_ASSERT_EQUAL_FATAL(
        pool_set_health(r->service->pool, engine(r)->id, HEALTH_READY), 0);
    r->request = service_submit(r->service, &params, &ops, r);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->request);
}

static void turns(struct rig *r)
{
    for (int i = 0; i < TURNS_MAX && !r->failed; i++)
        loop_turn(r->loop, 0);
}

/* It has failed, and nothing of it is left. */
static void check_failed(struct rig *r)
{
    const struct pool_instance *in = pool_get(r->service->pool, engine(r)->id);

    CU_ASSERT_EQUAL(r->failed, 1);
    CU_ASSERT_EQUAL(r->status, 500);
    CU_ASSERT_STRING_EQUAL(r->code, "internal_error");
    CU_ASSERT_EQUAL(in->n_waiting + in->n_running, 0);
    CU_ASSERT_EQUAL(in->n_decodes, 0);
    CU_ASSERT_EQUAL(r->service->requests.n_free, r->service->requests.size);
}

static void end(struct rig *r)
{
    models_free(r->models);
    config_fini(&r->config);
    loop_free(r->loop);
    close(r->listener);
}

#define RIG_TEST(test) SUITE_TEST(test, struct rig, r, begin(r), end(r))

/* When it is decided, and its work is booked. */
RIG_TEST(test_scheduled)
{
    r->request->state = REQUEST_TRANSFERRING;
    turns(r);
    check_failed(r);
    CU_ASSERT_EQUAL(r->scheduled, 0);
}

/* When its first token comes. */
RIG_TEST(test_first_token)
{
    for (int i = 0; i < TURNS_MAX && !r->scheduled && !r->failed; i++)
        loop_turn(r->loop, 0);
    CU_ASSERT_EQUAL_FATAL(r->scheduled, 1);
    CU_ASSERT_EQUAL(pool_get(r->service->pool, engine(r)->id)->n_running, 1);
    r->request->state = REQUEST_WAITING;
    forward_first_token(r->request, 1);
    CU_ASSERT_EQUAL(r->failed, 0); /* not within somebody's call */
    turns(r);
    check_failed(r);
}

/* While it is in the inbox. */
RIG_TEST(test_received)
{
    CU_ASSERT_FALSE(service_request_set_state(r->request, REQUEST_DECODING));
    turns(r);
    check_failed(r);
}

/* The drain's limit comes while a request is in the inbox, or, with the
 * engine's queue full, while it waits for room. */
static void cut_off(bool full)
{
    struct pool_prefill_request other = {.request_id = 1, .predicted_us = 1};
    struct rig r;

    begin(&r);
    while (full &&
           pool_prefill_accept(r.service->pool, engine(&r)->id, &other) == 0)
        other.request_id++;
    for (int i = 0;
         full && i < TURNS_MAX && r.request->state != REQUEST_WAITING; i++)
        loop_turn(r.loop, 0);
    CU_ASSERT_EQUAL_FATAL(r.request->state,
                          full ? REQUEST_WAITING : REQUEST_RECEIVED);
    CU_ASSERT_EQUAL(models_cut(r.models), 1);
    CU_ASSERT_EQUAL(r.failed, 1);
    CU_ASSERT_EQUAL(r.status, 503);
    CU_ASSERT_STRING_EQUAL(r.code, "shutting_down");
    CU_ASSERT_TRUE(TAILQ_EMPTY(&r.service->requests.inbox));
    CU_ASSERT_TRUE(TAILQ_EMPTY(&r.service->dispatch.waiting));
    CU_ASSERT_EQUAL(r.service->dispatch.n_waiting, 0);
    loop_turn(r.loop, 0);
    end(&r);
}

static void test_cut_off(void)
{
    cut_off(false);
    cut_off(true);
}

/* What the daemon does in all other tests. */
RIG_TEST(test_aborts)
{
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        setenv(BUG_ABORTS, "1", 1);
        (void)service_request_set_state(r->request, REQUEST_DECODING);
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    service_cancel(r->request, SERVICE_CLIENT_LEFT);
}

/* The service counts the engines that tokenize and those whose events came. */
RIG_TEST(test_tokenizes)
{
    struct service *s;
    char err[CONFIG_ERROR_MAX] = "";

    service_cancel(r->request, SERVICE_CLIENT_LEFT);
    s = r->service;
    CU_ASSERT_EQUAL(s->engines.n_asked, 2);
    CU_ASSERT_FALSE(service_tokenizes(s));
    s->engines.n_heard++; /* as events.c does */
    s->engines.by_slot[1]->events.heard = true;
    CU_ASSERT_TRUE(service_tokenizes(s));
    forward_tick(s);
    CU_ASSERT_EQUAL(s->engines.n_heard, 1);
    s->engines.n_heard = s->engines.n_asked =
        7; /* a bug: what there is counts */
    forward_tick(s);
    CU_ASSERT_EQUAL(s->engines.n_heard, 1);
    CU_ASSERT_EQUAL(s->engines.n_asked, 2);
    r->config.engines.n = 1;
    CU_ASSERT_EQUAL(models_reload(r->models, &r->config, err), 0);
    for (int i = 0; i < 2000 && s->engines.n == 2; i++) {
        usleep(1000); /* it goes with a timer */
        loop_turn(r->loop, 0);
    }
    CU_ASSERT_EQUAL(s->engines.n, 1);
    CU_ASSERT_EQUAL(s->engines.n_heard, 0);
    CU_ASSERT_EQUAL(s->engines.n_asked, 1);
    CU_ASSERT_FALSE(service_tokenizes(s));
    r->config.engines.n = 2;
}

static const struct suite_test tests[] = {
    {"refused when it is scheduled", test_scheduled},
    {"refused when its first token comes", test_first_token},
    {"refused in the inbox", test_received},
    {"cut off in the inbox, and in the wait list", test_cut_off},
    {"tests abort", test_aborts},
    {"engines that tokenize are counted", test_tokenizes},
};

int main(void)
{
    unsetenv(BUG_ABORTS);
    return SUITE_RUN("state", tests);
}
