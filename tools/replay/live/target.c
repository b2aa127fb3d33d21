/* See target.h. */
#include "tools/replay/live/target.h"

#include <sys/resource.h>

#include "base/event_loop.h"
#include "tools/replay/command.h"

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
    t->base = event_loop_new(1);
    if (!t->base)
        return replay_complain(command, "out of memory");
    return replay_model_ask(t->base, &t->server, command, NULL, &t->model);
}

void replay_target_close(struct replay_target *t)
{
    if (t->base)
        event_base_free(t->base);
}

struct trace_token_options replay_target_tokens(const struct replay_target *t,
                                                uint32_t block_tokens)
{
    return (struct trace_token_options){
        .block_tokens = block_tokens,
        .vocab_tokens = replay_model_vocab(&t->model, t->vocab),
        .seed = t->seed};
}

int replay_target_status(bool interrupted, bool failed)
{
    return interrupted ? REPLAY_EXIT_INTERRUPTED : failed ? 1 : 0;
}
