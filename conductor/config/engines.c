/* The member "engines" of the configuration: one table of fields drives
 * reading, dumping and the reference. */
#include "conductor/config/engines.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/internal.h"
#include "conductor/connector/pair.h"

#define KV_BLOCKS_MAX (1 << 28)

static const char *const kinds[] = {"openai", "vllm", "sglang", NULL};
static const char *const roles[] = {"both", "prefill", "decode", NULL};
static const char *const indexes[] = {"auto", "events", "predicted", NULL};
static const char *const no_yes[] = {"false", "true", NULL};

#define AT(field) offsetof(struct engine_config, field)
#define TEXT(field) AT(field), sizeof(((struct engine_config *)0)->field), 0
/* A word's number is kept in a byte; that of no_yes is a boolean of the JSON.
 */
#define WORD(field) AT(field), 0, 0
#define NAMES(field) AT(field), 0, 0, "[]"

static const struct field {
    char name[32];
    size_t at;
    size_t size;          /* of a text; 0 = a number or a word */
    int64_t most;         /* of a number; else 0 */
    const char *fallback; /* of a text or a word; NULL: it must be there */
    const char *help;
    const char *const *words; /* ends with NULL; NULL: it is no word */
    bool names;               /* it is an array of names */
    bool zero;                /* 0 is a value; -1 = not given */
} table[] = {
    {"name", TEXT(name), NULL,
     "what logs, metrics and headers call it; printable, without blanks, and "
     "no other engine's or worker's"},
    {"kind", WORD(kind), "openai",
     "`openai`: any server of OpenAI's API; `vllm`, `sglang`", kinds},
    {"url", TEXT(url_text), "",
     "where it is: `http://host[:port][/path]`, or `https://`; the requests' "
     "paths come behind it, and a `/v1` at its end is left out; it is not the "
     "address of an endpoint, as `/v1/completions`. Without it the engine is "
     "only listened to: what it holds is known to [other "
     "gateways](gateways.md#what-is-cached-where), and it gets no request; it "
     "needs `model` and `kv_events`"},
    {"tls_ca_file", TEXT(tls_ca_file), "",
     "file with the certificates (PEM) of the authorities that are trusted "
     "with https; without it those that the machine trusts"},
    {"tls_insecure", WORD(tls_insecure), "false",
     "`true`: any certificate will do: whoever is between reads and changes "
     "all",
     no_yes},
    {"dns", WORD(dns), "false",
     "`true`: each address that the host of `url` has is an engine, called "
     "`name`@address; `name` has at most 23 bytes. They are looked up again "
     "and again; that host stands for the address in `kv_events` and "
     "`kv_replay`, too",
     no_yes},
    {"model", TEXT(model), "",
     "the model that it serves, as requests name it, of at most 255 bytes; "
     "engines of one model share its requests. Without it the model, `aliases` "
     "and `adapters` are "
     "what it tells"},
    {"aliases", NAMES(aliases),
     "array of other names of that model that requests may use, and that the "
     "engine knows: requests that use one go to the engines that have it; at "
     "most 32, of 255 bytes each and 4064 in all. They need "
     "`model`",
     NULL, true},
    {"adapters", NAMES(adapters),
     "array of the LoRA adapters that requests name in place of the model; "
     "their blocks are no other adapter's; as `aliases`",
     NULL, true},
    {"role", WORD(role), "both",
     "`both`: it prefills and decodes; `prefill`: it computes prompts, and "
     "hands "
     "their KV to one with `decode`, which answers. [More](engines/pairs.md)",
     roles},
    {"kv_connector", WORD(kv_connector), "none",
     "how KV goes from its prefill to its decode engines, as they were "
     "started: `nixl`: vLLM's NixlConnector; `shared_storage`: vLLM's "
     "ExampleConnector; `offloading`: vLLM's OffloadingConnector with its tier "
     "`p2p`; `mooncake`: vLLM's MooncakeConnector; `sglang`: SGLang's own way; "
     "`none` with the role `both`",
     pair_connector_names},
    {"bootstrap_port", AT(bootstrap_port), 0, 65535, NULL,
     "where an engine of the role `prefill` meets its decode engines, as it "
     "was started, on the host of `url`: of `sglang` "
     "`--disaggregation-bootstrap-port`, without it 8998; of `mooncake` "
     "`VLLM_MOONCAKE_BOOTSTRAP_PORT`, without it 8998; of `offloading` the "
     "`port` of its tier or `VLLM_P2P_SIDE_CHANNEL_PORT`, without it 5710, "
     "and `dp_rank` is added"},
    {"index", WORD(index), "auto",
     "how its cached blocks are known: `predicted`: what was sent there is "
     "assumed cached, under `kv_blocks`, least recently used first out; "
     "`events`: by its KV events; `auto`: by events where `kv_events` is set, "
     "and predicted until the first of them",
     indexes},
    {"kv_events", TEXT(kv_events), "",
     "where it publishes KV events over ZMQ: `tcp://host:port`; rank r of "
     "`dp_ranks`, or `dp_rank` r, at port + r"},
    {"kv_events_bind", WORD(kv_events_bind), "false",
     "`true`: `kv_events` is the conductor's own address, and the engine "
     "connects to it",
     no_yes},
    {"kv_replay", TEXT(kv_replay), "",
     "where it replays what was lost: `tcp://host:port`; rank r at port + r"},
    {"kv_topic", TEXT(kv_topic), "",
     "prefix of the topic of its events; without it all are taken"},
    {"dp_ranks", AT(dp_ranks), 0, 256, NULL,
     "data-parallel ranks that publish events of their own; without it 1"},
    {"dp_rank", AT(dp_rank), 0, 255, NULL,
     "the engine is this one of the data-parallel ranks, from 0, of the server "
     "at `url`: requests say so in `X-data-parallel-rank`, and only its KV "
     "events and metrics are taken. Not with `dp_ranks` above 1",
     NULL, false, true},
    {"block_tokens", AT(block_tokens), 0, ENGINE_BLOCK_TOKENS_MAX, NULL,
     "tokens in one of its KV blocks; without it what its KV events or metrics "
     "tell, or as many as the model's index has. That is the largest size that "
     "divides those of all its engines, no sizes below 16 counted beside "
     "others, or 16 ([more](decisions/075-blocks-of-mixed-engines.md))"},
    {"kv_blocks", AT(kv_blocks), 0, KV_BLOCKS_MAX, NULL,
     "KV blocks that it has; without it what it tells, as far "
     "as `index_mib` has room for it, or 8192"},
    {"api_key_file", TEXT(api_key_file), "",
     "file with the key that is sent to it, in place of the client's"},
    {"cost_model", TEXT(cost_model), "",
     "file with its costs, by conductor-fit; without it those of the first "
     "engine of the model that has one, and if none has, learned from first "
     "tokens. Its block size must be that of one of them"},
    {"health_path", TEXT(health_path), "/health",
     "what is asked for again and again; any answer below 500 is a healthy "
     "one, but 400"},
    {"models_path", TEXT(models_path), "/v1/models",
     "what is asked for its models, before it gets work and again and again: a "
     "list as OpenAI's; an `openai` that answers with none is believed to have "
     "`model`"},
    {"tokenize_path", TEXT(tokenize_path), "",
     "what is asked for the tokens of a text, in the words of vLLM; without it "
     "`/tokenize` for `vllm` and `sglang`, nothing for `openai`"},
    {"metrics_path", TEXT(metrics_path), "",
     "what is asked for after each good answer for its health: Prometheus's "
     "text that tells requests, KV blocks and the time of the start; without "
     "it `/metrics` for `vllm` and "
     "`sglang`, nothing for `openai`"},
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

/* The value of a number that is not given. */
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
    if (out->kind != ENGINE_OPENAI && !*out->metrics_path)
        snprintf(out->metrics_path, sizeof(out->metrics_path), "/metrics");
    if (out->kind != ENGINE_OPENAI && !*out->tokenize_path)
        snprintf(out->tokenize_path, sizeof(out->tokenize_path), "/tokenize");
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

static json_t *field_json(struct engine_config *e, const struct field *d)
{
    if (d->names)
        return engine_names_json(names_at(e, d));
    if (d->words == no_yes)
        return json_boolean(*word_at(e, d));
    if (d->words)
        return json_string(d->words[*word_at(e, d)]);
    if (d->most)
        return *number_at(e, d) > untold(d) ? json_integer(*number_at(e, d))
                                            : NULL;
    return *text_at(e, d) ? json_string(text_at(e, d)) : NULL;
}

static json_t *engine_json(struct engine_config *e)
{
    json_t *o = json_object();

    for (size_t i = 0; i < FIELDS; i++) {
        json_t *value = field_json(e, &table[i]);

        if (value && json_object_set_new(o, table[i].name, value)) {
            json_decref(o);
            return NULL;
        }
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
          "`engines` is an array of objects, one for each server that others "
          "wrote;\n[engines/openai.md](engines/openai.md) has a complete "
          "configuration. With it,\nnative workers are served too only if "
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
