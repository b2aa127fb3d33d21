/* See target.h. */
#include "tools/replay/live/target.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/loop/loop.h"
#include "tools/replay/live/exchange.h"

static uint32_t count_of(const json_t *object, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(object, key));

    return n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}

static const json_t *find_model(const json_t *list, const char *name)
{
    size_t i;
    json_t *one;

    json_array_foreach(list, i, one)
    {
        const char *id = json_string_value(json_object_get(one, "id"));

        if (id && (!name || strcmp(id, name) == 0))
            return one;
    }
    return NULL;
}

int replay_model_ask(struct loop *loop, const struct replay_server *server,
                     const char *command, const char *name,
                     struct replay_model *model)
{
    char error[512];
    json_t *page = NULL;
    int rc = exchange_json(loop, server, "/v1/models", 10000000, &page, error,
                           sizeof error);

    if (rc != 0)
        return replay_complain(command, "%s", error);
    const json_t *one = find_model(json_object_get(page, "data"), name);
    const json_t *vendor = json_object_get(one, "conductor");
    const char *policy = json_string_value(json_object_get(vendor, "policy"));
    const json_t *meta = json_object_get(one, "meta");
    uint32_t vocab = count_of(vendor, "vocab");
    uint32_t window = count_of(one, "max_model_len");
    *model = (struct replay_model){
        .vocab_tokens = vocab != 0 ? vocab : count_of(meta, "n_vocab"),
        .window_tokens = window != 0 ? window : count_of(meta, "n_ctx"),
        .block_tokens = count_of(vendor, "block_tokens")};
    if (!name)
        name = json_string_value(json_object_get(one, "id"));
    snprintf(model->name, sizeof model->name, "%s", name ? name : "");
    replay_copy_text(model->policy, sizeof model->policy, policy);
    json_decref(page);
    return name ? 0 : replay_complain(command, "/v1/models names no model");
}

uint32_t replay_model_vocab(const struct replay_model *model, uint64_t wanted)
{
    if (wanted != 0)
        return (uint32_t)wanted;
    return model->vocab_tokens != 0 ? model->vocab_tokens : 512;
}

int replay_target_parse(struct replay_target *t, const char *command)
{
    if (replay_server_parse(t->url, &t->server) == 0 && !t->server.https)
        return 0;
    return replay_refuse(
        command,
        "--url %s: must be http://HOST[:PORT][/PREFIX], without "
        "/v1/completions",
        t->url);
}

/* Raises the limit of open files: each request in flight has a connection. */
static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int replay_target_open(struct replay_target *t, const char *command)
{
    raise_file_limit();
    t->loop = loop_new();
    if (!t->loop)
        return replay_complain(command, "out of memory");
    return replay_model_ask(t->loop, &t->server, command, NULL, &t->model);
}

void replay_target_close(struct replay_target *t)
{
    if (t->loop)
        loop_free(t->loop);
}

struct trace_token_options replay_target_tokens(const struct replay_target *t,
                                                uint32_t block_tokens)
{
    return (struct trace_token_options){
        .block_tokens = block_tokens,
        .vocab_tokens = replay_model_vocab(&t->model, t->vocab),
        .seed = t->seed};
}
