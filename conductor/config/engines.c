/* The member "engines" of the configuration. */
#include "conductor/config/engines.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/entry.h"
#include "conductor/config/internal.h"
#include "conductor/connector/pair.h"

#define KV_BLOCKS_MAX (1 << 28)

static const char *const kinds[] = {"openai", "vllm", "sglang", NULL};
static const char *const roles[] = {"both", "prefill", "decode", NULL};
static const char *const indexes[] = {"auto", "events", "predicted", NULL};

#define AT(field) ENTRY_AT(engine_config, field)
#define TEXT(field) ENTRY_TEXT(engine_config, field)
#define WORD(field) AT(field), 0, 0
#define NAMES(field) AT(field), 0, 0, "[]"

static const struct entry_field fields[] = {
    {"name", TEXT(name), NULL,
     "name in logs, metrics and headers; printable, without blanks, and not "
     "the name of another engine or worker"},
    {"kind", WORD(kind), "openai",
     "`openai`: any server of OpenAI's API; `vllm`, `sglang`", kinds},
    {"url", TEXT(url_text), "",
     "base URL: `http://host[:port][/path]`, or `https://`; the paths of "
     "requests are appended, and a `/v1` at its end is left out. It is not the "
     "URL of an endpoint, such as `/v1/completions`. Without it the engine "
     "gets no requests and needs `model` and `kv_events`: the conductor reads "
     "its KV events for [other gateways](gateways.md#what-is-cached-where)"},
    {"tls_ca_file", TEXT(tls_ca_file), "",
     "PEM file with the certificates of the authorities that are trusted for "
     "https; without it, those that the machine trusts"},
    {"tls_insecure", WORD(tls_insecure), "false",
     "`true`: any certificate is accepted: anybody on the way can read and "
     "change everything",
     entry_no_yes},
    {"dns", WORD(dns), "false",
     "`true`: each address of the host of `url` is an engine named "
     "`name`@address, looked up every `engine_dns_ms`; `name` has at most 23 "
     "bytes. In `kv_events` and `kv_replay` that host is replaced by the "
     "address, too",
     entry_no_yes},
    {"model", TEXT(model), "",
     "model that it serves, as requests name it, at most 255 bytes; engines of "
     "one model share its requests. Without it, the model, `aliases` and "
     "`adapters` are those that the engine lists"},
    {"aliases", NAMES(aliases),
     "array of other names of the model that requests may use and the engine "
     "accepts; a request with such a name goes to engines that have it. At "
     "most 32, of 255 bytes each and 4064 in all; they need `model`",
     NULL, true},
    {"adapters", NAMES(adapters),
     "array of the LoRA adapters that requests name in place of the model; "
     "adapters do not share blocks; otherwise as `aliases`",
     NULL, true},
    {"role", WORD(role), "both",
     "`both`: it prefills and decodes; `prefill`: it computes prompts and "
     "hands their KV to an engine of role `decode`, which answers. "
     "[More](engines/pairs.md)",
     roles},
    {"kv_connector", WORD(kv_connector), "none",
     "how KV moves from prefill to decode engines, as they were started: "
     "`nixl`: vLLM's NixlConnector; `shared_storage`: vLLM's ExampleConnector; "
     "`offloading`: vLLM's OffloadingConnector with its tier `p2p`; "
     "`mooncake`: vLLM's MooncakeConnector; `sglang`: SGLang's own way; `none` "
     "with the role `both`",
     pair_connector_names},
    {"bootstrap_port", AT(bootstrap_port), 0, 65535, "",
     "port on the host of `url` where a `prefill` engine, as it was started, "
     "meets its decode engines. `sglang`: `--disaggregation-bootstrap-port`, "
     "8998 if not set; `mooncake`: `VLLM_MOONCAKE_BOOTSTRAP_PORT`, 8998 if not "
     "set; `offloading`: the `port` of its tier or "
     "`VLLM_P2P_SIDE_CHANNEL_PORT`, 5710 if not set, plus `dp_rank`"},
    {"index", WORD(index), "auto",
     "how its cached blocks are known: `predicted`: prompts sent to it are "
     "assumed cached, up to `kv_blocks`, least recently used evicted first; "
     "`events`: by its KV events; `auto`: by events where `kv_events` is set, "
     "predicted until the first one comes",
     indexes},
    {"kv_events", TEXT(kv_events), "",
     "address at which it publishes KV events over ZMQ: `tcp://host:port`; "
     "rank r of `dp_ranks`, or `dp_rank` r, at port + r"},
    {"kv_events_bind", WORD(kv_events_bind), "false",
     "`true`: `kv_events` is the conductor's own address, and the engine "
     "connects to it",
     entry_no_yes},
    {"kv_replay", TEXT(kv_replay), "",
     "address at which it replays lost KV events: `tcp://host:port`; rank r at "
     "port + r"},
    {"kv_topic", TEXT(kv_topic), "",
     "prefix of the topic of its KV events; without it, all topics"},
    {"dp_ranks", AT(dp_ranks), 0, 256, "",
     "number of data-parallel ranks that publish their own KV events; without "
     "it, 1"},
    {"dp_rank", AT(dp_rank), 0, 255, "",
     "this entry is one data-parallel rank, from 0, of the server at `url`: "
     "requests carry it in `X-data-parallel-rank`, and only KV events and "
     "metrics of this rank are used. Not with `dp_ranks` above 1",
     NULL, false, true},
    {"block_tokens", AT(block_tokens), 0, ENGINE_BLOCK_TOKENS_MAX, "",
     "tokens per KV block; without it, the size that its KV events or metrics "
     "tell, else that of the model's index: the largest size that divides "
     "those of all the model's engines (sizes below 16 do not count beside "
     "larger ones), 16 if none is known "
     "([more](decisions/075-blocks-of-mixed-engines.md))"},
    {"kv_blocks", AT(kv_blocks), 0, KV_BLOCKS_MAX, "",
     "number of its KV blocks; without it, the number that it tells, as far as "
     "`index_mib` has room, else 8192"},
    {"api_key_file", TEXT(api_key_file), "",
     "file with the API key that is sent to it, in place of the client's"},
    {"cost_model", TEXT(cost_model), "",
     "file with its cost model, by conductor-fit; without it, that of the "
     "model's first engine that has one, else costs are learned from first "
     "tokens. Its block size must be that of one of the model's engines"},
    {"health_path", TEXT(health_path), "/health",
     "path of its health checks; any status below 500, except 400, counts as "
     "healthy"},
    {"models_path", TEXT(models_path), "/v1/models",
     "path of its list of models, in OpenAI's format, read before it gets work "
     "and regularly after that; an `openai` engine without such a list is "
     "assumed to have `model`"},
    {"tokenize_path", TEXT(tokenize_path), "",
     "path that tokenizes a text, in vLLM's format; without it, `/tokenize` "
     "for `vllm` and `sglang`, none for `openai`"},
    {"metrics_path", TEXT(metrics_path), "",
     "path of its metrics, read after each successful health check: "
     "Prometheus's text with requests, KV blocks and the start time; without "
     "it, `/metrics` for `vllm` and `sglang`, none for `openai`"},
};

#define ENGINE_KINDS (sizeof(kinds) / sizeof(kinds[0]) - 1)

static void check_engine(struct fields *f, const struct fields_object *o,
                         void *all, size_t i)
{
    struct engine_config *e = (struct engine_config *)all + i;

    if (e->kind != ENGINE_OPENAI && !*e->metrics_path)
        snprintf(e->metrics_path, sizeof(e->metrics_path), "/metrics");
    if (e->kind != ENGINE_OPENAI && !*e->tokenize_path)
        snprintf(e->tokenize_path, sizeof(e->tokenize_path), "/tokenize");
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
        "that is no native worker;\n[engines/openai.md](engines/openai.md) "
        "has a complete configuration. With it,\nnative workers can "
        "register only if `worker_listen` is set.",
};

const char *engine_kind_name(size_t kind)
{
    return kind < ENGINE_KINDS ? kinds[kind] : NULL;
}

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
