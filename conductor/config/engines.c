/* The member "engines" of the configuration: one table of fields drives
 * reading, dumping and the reference. */
#include "conductor/config/engines.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_fields.h"
#include "conductor/config/internal.h"
#include "conductor/connector/pair.h"

#define KV_BLOCKS_MAX (1 << 28)

static const char *const kinds[] = {"openai", "vllm", "sglang", "auto", NULL};
static const char *const roles[] = {"both", "prefill", "decode", NULL};
static const char *const indexes[] = {"auto", "events", "predicted", NULL};
static const char *const no_yes[] = {"false", "true", NULL};

#define AT(field) offsetof(struct engine_config, field)
#define TEXT(field) AT(field), sizeof(((struct engine_config *)0)->field), 0
/* A word is kept as its number, in a byte; one of no_yes is a boolean of the
 * JSON. */
#define WORD(field) AT(field), 0, 0
#define NAMES(field) AT(field), 0, 0, "[]"

static const struct field {
    char name[32];
    size_t at;
    size_t size;          /* of a text; 0 = a number or a word */
    int64_t most;         /* of a number; else 0 */
    const char *fallback; /* of a text or a word; NULL: it must be there */
    const char *help;
    const char *const *words; /* the last is NULL; NULL: the field is no word */
    bool names;               /* it is an array of names */
    bool zero;                /* 0 is a value; -1 = not given */
} table[] = {
    {"name", TEXT(name), NULL,
     "name in logs, metrics and headers: printable, without blanks, unique "
     "among engines and workers"},
    {"kind", WORD(kind), "openai",
     "software of the server: `vllm`, `sglang`, or `openai` for any other "
     "server of OpenAI's API; `auto`: the engine is asked, also for its blocks "
     "and where it publishes KV events",
     kinds},
    {"url", TEXT(url_text), "",
     "base URL: `http://host[:port][/path]`, or `https://`; requests' paths "
     "are appended to it, after a `/v1` at its end is removed; not the URL of "
     "an endpoint, such as `/v1/completions`. Without a URL the engine gets no "
     "requests and needs `model` and `kv_events`: the conductor reads its KV "
     "events for [other gateways](gateways.md#what-is-cached-where)"},
    {"tls_ca_file", TEXT(tls_ca_file), "",
     "PEM file with the certificate authorities trusted for https; without it, "
     "the machine's"},
    {"tls_insecure", WORD(tls_insecure), "false",
     "`true`: any certificate is accepted, so anyone on the network path can "
     "read and change the traffic",
     no_yes},
    {"dns", WORD(dns), "false",
     "`true`: the host of `url` is looked up every `engine_dns_ms`, and each "
     "of its addresses is an engine named `name`@address; `name` has at most "
     "23 bytes. In `kv_events` and `kv_replay` the address replaces that host, "
     "too",
     no_yes},
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
     "request. [More](engines/pairs.md)",
     roles},
    {"kv_connector", WORD(kv_connector), "none",
     "how KV moves from prefill to decode engines, as set when they were "
     "started: `nixl`: vLLM's NixlConnector; `shared_storage`: vLLM's "
     "ExampleConnector; `offloading`: vLLM's OffloadingConnector with its tier "
     "`p2p`; `mooncake`: vLLM's MooncakeConnector; `sglang`: SGLang's own "
     "connector; `none` with the role `both`",
     pair_connector_names},
    {"bootstrap_port", AT(bootstrap_port), 0, 65535, NULL,
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
     no_yes},
    {"kv_replay", TEXT(kv_replay), "",
     "address at which the engine replays lost KV events: `tcp://host:port`; "
     "rank r at port + r"},
    {"kv_topic", TEXT(kv_topic), "",
     "only KV events whose topic begins with this text are read; without it, "
     "all"},
    {"dp_ranks", AT(dp_ranks), 0, 256, NULL,
     "number of data-parallel ranks that publish their own KV events; without "
     "it, 1"},
    {"dp_rank", AT(dp_rank), 0, 255, NULL,
     "number, from 0, of the one data-parallel rank of the server at `url` "
     "that this entry stands for: requests carry it in `X-data-parallel-rank`, "
     "and only KV events and metrics of this rank are used. Not with "
     "`dp_ranks` above 1",
     NULL, false, true},
    {"block_tokens", AT(block_tokens), 0, ENGINE_BLOCK_TOKENS_MAX, NULL,
     "tokens per KV block; without it, the size in its KV events or metrics, "
     "else the block size of the model's index: the largest that divides the "
     "block sizes of all the model's engines (sizes below 16 do not count "
     "beside larger ones), or 16 if none is known "
     "([more](decisions/075-blocks-of-mixed-engines.md))"},
    {"kv_blocks", AT(kv_blocks), 0, KV_BLOCKS_MAX, NULL,
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

#define FIELDS (sizeof(table) / sizeof(table[0]))
#define ENGINE_KINDS (sizeof(kinds) / sizeof(kinds[0]) - 1)

const char *engine_kind_name(size_t kind)
{
    return kind < ENGINE_KINDS ? kinds[kind] : NULL;
}

const char *engine_role_name(size_t role)
{
    return role < sizeof(roles) / sizeof(roles[0]) ? roles[role] : NULL;
}

static char *text_at(struct engine_config *e, const struct field *d)
{
    return (char *)e + d->at;
}

/* The value that stands for a number that is not given. */
static int64_t untold(const struct field *d)
{
    return d->zero ? -1 : 0;
}

static int64_t *number_at(struct engine_config *e, const struct field *d)
{
    return (int64_t *)(void *)((char *)e + d->at);
}

static uint8_t *word_at(struct engine_config *e, const struct field *d)
{
    return (uint8_t *)e + d->at;
}

static struct engine_names *names_at(struct engine_config *e,
                                     const struct field *d)
{
    return (struct engine_names *)(void *)((char *)e + d->at);
}

static void read_word(struct fields *f, const struct fields_object *o,
                      const struct field *d, uint8_t *word)
{
    char text[32], all[96] = "";

    if (d->words == no_yes) {
        *word = fields_bool(f, o, d->name, false);
        return;
    }
    fields_text(f, o, d->name, text, sizeof(text), d->fallback);
    for (*word = 0; d->words[*word]; ++*word) {
        if (strcmp(text, d->words[*word]) == 0)
            return;
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
                 *word ? " or " : "", d->words[*word]);
    }
    *word = 0;
    fields_refuse_value(f, o, d->name, all);
}

static void read_field(struct fields *f, const struct fields_object *o,
                       const struct field *d, struct engine_config *e)
{
    const int64_t none = untold(d);

    if (d->names)
        engine_names_read(f, o, d->name, names_at(e, d));
    else if (d->words)
        read_word(f, o, d, word_at(e, d));
    else if (d->most)
        *number_at(e, d) =
            fields_integer(f, o, d->name, none + 1, d->most, &none);
    else if (d->fallback && !json_object_get(o->json, d->name))
        snprintf(text_at(e, d), d->size, "%s", d->fallback);
    else
        fields_text(f, o, d->name, text_at(e, d), d->size, d->fallback);
}

void engine_config_paths(struct engine_config *e)
{
    if (e->kind == ENGINE_OPENAI || e->kind == ENGINE_AUTO)
        return;
    if (!*e->metrics_path)
        snprintf(e->metrics_path, sizeof(e->metrics_path), "/metrics");
    if (!*e->tokenize_path)
        snprintf(e->tokenize_path, sizeof(e->tokenize_path), "/tokenize");
}

void engine_config_read(struct fields *f, const struct fields_object *o,
                        struct engine_config *out)
{
    char known[FIELDS * sizeof(table[0].name)] = "";
    size_t n = 0;

    memset(out, 0, sizeof(*out));
    if (!json_is_object(o->json)) {
        fields_refuse_got(f, o->path, "", "an object", o->json);
        return;
    }
    for (size_t i = 0; i < FIELDS; i++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, "%s ",
                              table[i].name);
    fields_known(f, o, known);
    for (size_t i = 0; i < FIELDS; i++)
        read_field(f, o, &table[i], out);
    engine_config_paths(out);
    if (f->rc == 0)
        engine_config_check(f, o, out);
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
    size_t n = json_array_size(value);
    char path[32];

    *out = (struct engine_list){.given = true};
    if (!json_is_array(value) || n > ENGINES_MAX) {
        fields_refuse_got(f, "", "engines", "an array of 0 to 4096 objects",
                          value);
        return;
    }
    out->at = calloc(n + 1, sizeof(*out->at));
    if (!out->at) {
        fields_refuse(f, "", "engines", "out of memory");
        return;
    }
    for (; out->n < n && f->rc == 0; out->n++) {
        snprintf(path, sizeof(path), "engines[%zu].", out->n);
        engine_config_read(
            f, &(struct fields_object){json_array_get(value, out->n), path},
            &out->at[out->n]);
    }
    if (f->rc == 0)
        check_list(f, out);
    if (f->rc)
        engine_list_free(out);
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
    json_t *entry = NULL;

    if (!more)
        return error_say(err, size, -ENOMEM,
                         "--engine %.100s: out of memory, "
                         "or over %d engines",
                         text, ENGINES_MAX);
    list->at = more;
    list->given = true;
    entry = json_pack("{s:s%, s:s, s:o}", "name", named ? text : host,
                      (size_t)n_name, "kind", "auto", "url",
                      json_sprintf("%s%s", scheme ? "" : "http://", url));
    if (entry)
        engine_config_read(&f, &(struct fields_object){entry, ""},
                           &list->at[list->n]);
    else
        fields_refuse(&f, "", "", "must be [NAME=]URL");
    json_decref(entry);
    if (f.rc == 0) {
        list->n++;
        check_list(&f, list);
    }
    return f.rc;
}

bool engine_config_equal(const struct engine_config *a,
                         const struct engine_config *b)
{
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *d = &table[i];
        const char *x = (const char *)a + d->at, *y = (const char *)b + d->at;

        if (d->names   ? memcmp(x, y, sizeof(struct engine_names)) != 0
            : d->words ? *x != *y
            : d->most  ? memcmp(x, y, sizeof(int64_t)) != 0
                       : strcmp(x, y) != 0)
            return false;
    }
    return true;
}

void engine_list_free(struct engine_list *list)
{
    free(list->at);
    *list = (struct engine_list){0};
}

/* Whether the field has a value to write. */
static bool is_told(struct engine_config *e, const struct field *d)
{
    return d->names   ? names_at(e, d)->n > 0
           : d->words ? true
           : d->most  ? *number_at(e, d) > untold(d)
                      : *text_at(e, d) != '\0';
}

/* Returns its value; NULL: out of memory. */
static json_t *field_json(struct engine_config *e, const struct field *d)
{
    if (d->names)
        return engine_names_json(names_at(e, d));
    if (d->words == no_yes)
        return json_boolean(*word_at(e, d));
    if (d->words)
        return json_string(d->words[*word_at(e, d)]);
    return d->most ? json_integer(*number_at(e, d))
                   : json_string(text_at(e, d));
}

static json_t *engine_json(struct engine_config *e)
{
    json_t *o = json_object();

    for (size_t i = 0; i < FIELDS; i++)
        if (is_told(e, &table[i]) &&
            json_object_set_new(o, table[i].name, field_json(e, &table[i]))) {
            json_decref(o);
            return NULL;
        }
    return o;
}

json_t *engine_list_json(const struct engine_list *list)
{
    json_t *all = json_array();

    for (size_t i = 0; i < list->n; i++)
        if (json_array_append_new(all, engine_json(&list->at[i]))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

void engine_list_reference(FILE *out)
{
    fputs("\n## engines\n\n"
          "`engines` is an array of objects, one for each inference server "
          "that is no native worker;\n[engines/openai.md](engines/openai.md) "
          "has a complete "
          "configuration. With it,\nnative workers can register only if "
          "`worker_listen` is set.\n\n"
          "| field | default | meaning |\n|---|---|---|\n",
          out);
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *d = &table[i];

        fprintf(out, "| `%s` | %s%s%s | %s |\n", d->name,
                d->fallback && *d->fallback ? "`" : "",
                d->most        ? ""
                : !d->fallback ? "required"
                               : d->fallback,
                d->fallback && *d->fallback ? "`" : "", d->help);
    }
}
