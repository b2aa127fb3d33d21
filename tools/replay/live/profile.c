/* conductor-replay profile: the costs of a running engine. */
#include "base/clock.h"
#include "tools/replay/command.h"
#include "tools/replay/live/profile_run.h"
#include "tools/replay/live/timing.h"

static const struct option_usage usage = {
    .name = "profile",
    .synopsis = "--url URL [OPTIONS]",
    .text = "Measures a running engine that speaks OpenAI's completions API "
            "and takes token ids, and\nwrites a profile for conductor-fit. The "
            "engine must have no other load meanwhile.\nPrefill time is "
            "measured from sending to the first token, over new and cached "
            "tokens;\ndecode step time is the mean of 16 steps, over requests "
            "that decode at once. A prefill\nfor which the engine reports "
            "other cached tokens than planned is left out.",
    .examples =
        "  conductor-replay profile --url http://127.0.0.1:8000 --out "
        "engine.csv\n"
        "  conductor-fit --out engine.json engine.csv\n"
        "  conductor-replay profile --url http://127.0.0.1:8000 --model qwen "
        "--engine vllm \\\n      --machine 'H100 SXM' --max-tokens 16384 "
        "--out engine.csv\n",
};

static int parse(int argc, char **argv, struct replay_profile_settings *s,
                 int *status)
{
    const struct option_spec specs[] = {
        {"url", OPTION_TEXT, &s->url, "URL", 0, 0, "the engine's URL",
         .required = true},
        {"key-file", OPTION_TEXT, &s->key_file, "FILE", 0, 0,
         "file with the API key of the engine"},
        {"ca-file", OPTION_TEXT, &s->ca_file, "FILE", 0, 0,
         "https: PEM with the certificate authorities to trust (default: the "
         "machine's)"},
        {"insecure", OPTION_FLAG, &s->insecure, NULL, 0, 0,
         "https: accept any certificate"},
        {"model", OPTION_TEXT, &s->model, "NAME", 0, 0,
         "model to request (default: the first in the engine's list)"},
        {"out", OPTION_OUTPUT, &s->out, "FILE", 0, 0,
         "write the CSV to this file (default: stdout)"},
        {"engine", OPTION_TEXT, &s->engine, "NAME", 0, 0,
         "kind of engine to write into the CSV (default openai)"},
        {"machine", OPTION_TEXT, &s->machine, "NAME", 0, 0,
         "name of the machine to write into the CSV (default: the URL's host)"},
        {"max-tokens", OPTION_COUNT, &s->max_tokens, "N",
         REPLAY_PROFILE_LEAST_TOKENS, 1e7,
         "longest prompt, in tokens (default 4096, or the engine's limit)"},
        {"max-batch", OPTION_COUNT, &s->max_batch, "N", 1, TIMING_BATCH_MAX,
         "most requests that decode at once (default 64)"},
        {"max-kv", OPTION_COUNT, &s->max_kv, "N", REPLAY_PROFILE_LEAST_TOKENS,
         1e9, "most tokens of requests that decode at once (default 65536)"},
        {"repeats", OPTION_COUNT, &s->repeats, "N", 1, 1000,
         "repeats of every point (default 3)"},
        {"block-tokens", OPTION_COUNT, &s->block_tokens, "N", 1, 65536,
         "tokens per KV block of the engine (default 16)"},
        {"vocab", OPTION_COUNT, &s->vocab, "N", REPLAY_PROFILE_FIRST_ID + 2,
         UINT32_MAX,
         "token ids stay below N (default: the engine's vocabulary, or 512)"},
        {"seed", OPTION_COUNT, &s->seed, "S", 0, 9e15,
         "seed of the token ids (default: a new one each time)"},
        {"timeout", OPTION_NUMBER, &s->timeout_s, "S", 1e-3, 1e6,
         "time limit for one answer, in seconds (default 300)"},
    };

    return replay_parse(&usage, OPTION_TABLE(specs), argc, argv, status);
}

int replay_command_profile(int argc, char **argv)
{
    struct replay_profile_settings s = {.engine = "openai",
                                        .max_batch = 64,
                                        .max_kv = 65536,
                                        .repeats = 3,
                                        .block_tokens = 16,
                                        .timeout_s = 300};
    struct replay_server server = {0};
    char error[512];
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (replay_server_parse(s.url, &server) != 0)
        return replay_refuse(
            usage.name,
            "--url %s: must be http[s]://HOST[:PORT][/PREFIX], "
            "without /v1/completions",
            s.url);
    if (!server.https && (s.insecure || s.ca_file))
        return replay_refuse(usage.name, "%s: only with https",
                             s.insecure ? "--insecure" : "--ca-file");
    if (s.insecure && s.ca_file)
        return replay_refuse(
            usage.name,
            "--insecure: not with --ca-file, which names the authorities");
    server.has_options = true;
    if (s.key_file &&
        replay_server_key(&server, s.key_file, error, sizeof error) != 0)
        return replay_refuse(usage.name, "--key-file %s", error);
    if (replay_server_trust(&server, s.ca_file ? s.ca_file : "", s.insecure,
                            error, sizeof error) != 0)
        return replay_refuse(usage.name, "--ca-file %s", error);
    if (s.seed == 0)
        s.seed = (uint64_t)clock_now_us();
    status = replay_profile_run(&s, &server);
    replay_server_fini(&server);
    return status;
}
