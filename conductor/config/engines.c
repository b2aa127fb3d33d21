/* The member "engines" of the configuration. */
#include "conductor/config/engines.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_fields.h"
#include "conductor/config/entry.h"
#include "conductor/config/internal.h"
#include "conductor/connector/pair.h"

#define KV_BLOCKS_MAX (1 << 28)

static const char *const roles[] = {"both", "prefill", "decode", NULL};
static const char *const indexes[] = {"auto", "events", "predicted", NULL};

#define AT(field) ENTRY_AT(engine_config, field)
#define TEXT(field) ENTRY_TEXT(engine_config, field)
#define WORD(field) AT(field), 0, 0
#define NAMES(field) AT(field), 0, 0, "[]"

static const struct entry_field fields[] = {
    {"name", TEXT(name), NULL,
     "name in logs, metrics and headers: printable, without blanks, unique "
     "among engines and workers"},
    {"kind", WORD(kind), "auto",
     "software of the server: `vllm`, `sglang`, or `openai` for any other "
     "server of OpenAI's API; `auto`: the engine is asked, also for its blocks "
     "and where it publishes KV events. With `model`, or without `url`, the "
     "default is `openai`",
     engine_kinds},
    {"url", TEXT(url_text), "",
     "base URL: `http://host[:port][/path]`, or `https://`; requests' paths "
     "are appended to it, after a `/v1` at its end is removed; not the URL of "
     "an endpoint, such as `/v1/completions`. Without a URL the engine gets no "
     "requests and needs `model` and `kv_events`: the conductor reads its KV "
     "events for [other "
     "gateways](../operate/gateways.md#what-is-cached-where)"},
    {"tls_ca_file", TEXT(tls_ca_file), "",
     "PEM file with the certificate authorities trusted for https; without it, "
     "the machine's"},
    {"tls_insecure", WORD(tls_insecure), "false",
     "`true`: any certificate is accepted, so anyone on the network path can "
     "read and change the traffic",
     entry_no_yes},
    {"dns", WORD(dns), "false",
     "`true`: the host of `url` is looked up every `engine_dns_ms`, and each "
     "of its addresses is an engine named `name`@address; `name` has at most "
     "23 bytes. In `kv_events` and `kv_replay` the address replaces that host, "
     "too",
     entry_no_yes},
    {"model", TEXT(model), "",
     "name of the model in requests, at most 255 bytes; engines with the same "
     "model share its requests. Without it, the model, `aliases` and "
     "`adapters` are read from the engine's list of models"},
    {"aliases", NAMES(aliases),
     "array of further names of the model that the engine accepts; a request "
     "with such a name goes only to engines that have it. At most 32, of 255 "
     "bytes each and 4064 in all; they need `model`",
     NULL, true},
    {"adapters", NAMES(adapters),
     "array of LoRA adapters, which requests name in place of the model; "
     "adapters do not share blocks. Limits as for `aliases`",
     NULL, true},
    {"role", WORD(role), "both",
     "`both`: the engine prefills and decodes; `prefill`: it computes prompts "
     "and hands their KV to an engine of role `decode`, which answers the "
     "request. [More](../engines/pairs.md)",
     roles},
    {"kv_connector", WORD(kv_connector), "none",
     "how KV moves from prefill to decode engines, as set when they were "
     "started: `nixl`: vLLM's NixlConnector; `shared_storage`: vLLM's "
     "ExampleConnector; `offloading`: vLLM's OffloadingConnector with its tier "
     "`p2p`; `mooncake`: vLLM's MooncakeConnector; `sglang`: SGLang's own "
     "connector; `none` with the role `both`",
     pair_connector_names},
    {"bootstrap_port", AT(bootstrap_port), 0, 65535, "",
     "port on the host of `url` at which decode engines reach a `prefill` "
     "engine, as set when it was started: `sglang`: "
     "`--disaggregation-bootstrap-port`, default 8998; `mooncake`: "
     "`VLLM_MOONCAKE_BOOTSTRAP_PORT`, default 8998; `offloading`: the `port` "
     "of its tier or `VLLM_P2P_SIDE_CHANNEL_PORT` (default 5710), plus "
     "`dp_rank`"},
    {"index", WORD(index), "auto",
     "how the conductor knows the engine's cached blocks: `predicted`: prompts "
     "sent to the engine count as cached, up to `kv_blocks`, least recently "
     "used evicted first; `events`: its KV events tell; `auto`: events if "
     "`kv_events` is set, predicted until the first event",
     indexes},
    {"kv_events", TEXT(kv_events), "",
     "address at which the engine publishes KV events over ZMQ: "
     "`tcp://host:port`; data-parallel rank r publishes at port + r"},
    {"kv_events_bind", WORD(kv_events_bind), "false",
     "`true`: `kv_events` is the conductor's own address, and the engine "
     "connects to it",
     entry_no_yes},
    {"kv_replay", TEXT(kv_replay), "",
     "address at which the engine replays lost KV events: `tcp://host:port`; "
     "rank r at port + r"},
    {"kv_topic", TEXT(kv_topic), "",
     "only KV events whose topic begins with this text are read; without it, "
     "all"},
    {"dp_ranks", AT(dp_ranks), 0, 256, "",
     "number of data-parallel ranks that publish their own KV events; without "
     "it, 1"},
    {"dp_rank", AT(dp_rank), 0, 255, "",
     "number, from 0, of the one data-parallel rank of the server at `url` "
     "that this entry stands for: requests carry it in `X-data-parallel-rank`, "
     "and only KV events and metrics of this rank are used. Not with "
     "`dp_ranks` above 1",
     NULL, false, true},
    {"block_tokens", AT(block_tokens), 0, ENGINE_BLOCK_TOKENS_MAX, "",
     "tokens per KV block; without it, the size in its KV events or metrics, "
     "else the block size of the model's index: the largest that divides the "
     "block sizes of all the model's engines (sizes below 16 do not count "
     "beside larger ones), or 16 if none is known "
     "([more](../internals/decisions/075-blocks-of-mixed-engines.md))"},
    {"kv_blocks", AT(kv_blocks), 0, KV_BLOCKS_MAX, "",
     "number of the engine's KV blocks; without it, the number that the engine "
     "reports, as far as `index_mib` has room, else 8192"},
    {"api_key_file", TEXT(api_key_file), "",
     "file with the API key sent to the engine in place of the client's"},
    {"cost_model", TEXT(cost_model), "",
     "file with the engine's cost model, from conductor-fit; without it, the "
     "first cost model of another engine of the model, else costs are learned "
     "from times to first token. Its block size must be that of one of the "
     "model's engines"},
    {"health_path", TEXT(health_path), "/health",
     "path of health checks; any status below 500, except 400, counts as "
     "healthy"},
    {"models_path", TEXT(models_path), "/v1/models",
     "path of the engine's list of models, in OpenAI's format, read before the "
     "engine gets work and regularly after that; an `openai` engine without "
     "such a list is assumed to have `model`"},
    {"tokenize_path", TEXT(tokenize_path), "",
     "path at which the engine tokenizes a text, in vLLM's format; without it, "
     "`/tokenize` for `vllm` and `sglang`, none for `openai`"},
    {"metrics_path", TEXT(metrics_path), "",
     "path of the engine's metrics, read after each successful health check: "
     "Prometheus text with requests, KV blocks and the start time; without it, "
     "`/metrics` for `vllm` and `sglang`, none for `openai`"},
};

static void check_engine(struct fields *f, const struct fields_object *o,
                         void *all, size_t i)
{
    struct engine_config *e = (struct engine_config *)all + i;

    /* Only an engine that has to tell its model is asked for more. */
    if (!json_object_get(o->json, "kind") && (*e->model || !*e->url_text))
        e->kind = ENGINE_OPENAI;
    engine_config_paths(e);
    if (f->rc == 0)
        engine_config_check(f, o, e);
}

static const struct entry_table table = {
    .fields = fields,
    .n_fields = sizeof(fields) / sizeof(fields[0]),
    .bytes = sizeof(struct engine_config),
    .list = "engines",
    .most = ENGINES_MAX,
    .check = check_engine,
    .about =
        "`engines` is an array of objects, one for each inference server "
        "that is no native worker;\n[engines/openai.md](../engines/openai.md) "
        "has a complete configuration. With it,\nnative workers can "
        "register only if `worker_listen` is set.",
};

const char *engine_role_name(size_t role)
{
    return role < sizeof(roles) / sizeof(roles[0]) ? roles[role] : NULL;
}

void engine_config_read(struct fields *f, const struct fields_object *o,
                        struct engine_config *out)
{
    entry_read(f, o, &table, out, 0);
}

/* Checks the entries of a list against each other. */
static void check_list(struct fields *f, const struct engine_list *list)
{
    const struct engine_config **all = calloc(list->n + 1, sizeof(*all));
    struct engine_clash clash;
    char path[32];

    for (size_t i = 0; all && i < list->n; i++)
        all[i] = &list->at[i];
    if (!all) {
        fields_refuse(f, "", "engines", "out of memory");
    } else if (engine_configs_clash(all, list->n, &clash)) {
        snprintf(path, sizeof(path), "engines[%zu].", clash.at);
        fields_refuse(f, path, clash.key, "%s", clash.why);
    }
    free(all);
}

void engine_list_read(struct fields *f, const json_t *value,
                      struct engine_list *out)
{
    *out = (struct engine_list){.given = true};
    out->at = entry_list_read(f, value, &table, &out->n);
    if (f->rc == 0)
        check_list(f, out);
    if (f->rc)
        engine_list_free(out);
}

/* Checks an engine of the command line against one that was there before. */
static void check_two(struct fields *f, const struct engine_config *before,
                      const struct engine_config *e)
{
    if (engine_url_compare(&before->url, &e->url) == 0)
        fields_refuse(f, "", "url",
                      "\"%s\": engine %s is given with it, too: %s",
                      e->url_text, before->name, before->url_text);
    else if (strcmp(before->name, e->name) == 0)
        fields_refuse(f, "", "name",
                      "\"%s\": is the name of the engine at %s, too: give "
                      "another one, as in --engine NAME=%s",
                      e->name, before->url_text, e->url_text);
}

int engine_list_add(struct engine_list *list, const char *text, char *err,
                    size_t size)
{
    const char *equals = strchr(text, '='), *scheme = strstr(text, "://");
    bool named = equals && (!scheme || equals < scheme);
    const char *url = named ? equals + 1 : text;
    const char *host = scheme ? scheme + 3 : url;
    int n_name = named ? (int)(equals - text) : (int)strcspn(host, "/?#");
    struct fields f = {"--engine ", text, err, size, 0};
    struct engine_config *more =
        list->n < ENGINES_MAX
            ? reallocarray(list->at, list->n + 1, sizeof(*more))
            : NULL;
    json_t *entry;

    if (!more)
        return error_say(err, size, -ENOMEM,
                         "--engine %.100s: out of memory, "
                         "or over %d engines",
                         text, ENGINES_MAX);
    list->at = more;
    if (strpbrk(url, " \t,"))
        return error_say(err, size, -EINVAL,
                         "--engine \"%.100s\": takes one [NAME=]URL: repeat "
                         "--engine for each",
                         text);
    if (n_name == 0)
        return error_say(err, size, -EINVAL,
                         "--engine \"%.100s\": must be [NAME=]URL, such as "
                         "http://127.0.0.1:8000",
                         text);
    list->given = true;
    entry =
        json_pack("{s:s%, s:o}", "name", named ? text : host, (size_t)n_name,
                  "url", json_sprintf("%s%s", scheme ? "" : "http://", url));
    if (!entry)
        return error_say(err, size, -EINVAL,
                         "--engine \"%.100s\": must be in UTF-8", text);
    engine_config_read(&f, &(struct fields_object){entry, ""},
                       &list->at[list->n]);
    json_decref(entry);
    for (size_t i = 0; f.rc == 0 && i < list->n; i++)
        check_two(&f, &list->at[i], &list->at[list->n]);
    if (f.rc == 0)
        list->n++;
    return f.rc;
}

bool engine_config_equal(const struct engine_config *a,
                         const struct engine_config *b)
{
    return entry_equal(&table, a, b);
}

void engine_list_free(struct engine_list *list)
{
    free(list->at);
    *list = (struct engine_list){0};
}

json_t *engine_list_json(const struct engine_list *list)
{
    return entry_list_json(&table, list->at, list->n);
}

void engine_list_reference(FILE *out)
{
    entry_reference(&table, out);
}
