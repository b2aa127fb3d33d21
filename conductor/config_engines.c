/* The member "engines" of the configuration: one table of fields drives
 * reading, dumping and the reference. */
#include "conductor/config_engines.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"

#define BLOCK_TOKENS_MAX 1024
#define KV_BLOCKS_MAX (1 << 28)

const char *engine_kind_name(size_t kind)
{
    static const char *const names[] = {"openai", "vllm", "sglang"};

    return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : NULL;
}

#define TEXT(field)                        \
    offsetof(struct engine_config, field), \
        sizeof(((struct engine_config *)0)->field)

static const struct field {
    const char *name;
    size_t at;
    size_t size;          /* of a text; 0: a number */
    int64_t most;         /* of a number */
    const char *fallback; /* of a text; NULL: it must be there */
    const char *help;
} table[] = {
    {"name", TEXT(name), 0, NULL,
     "what logs, metrics and headers call it; printable, without blanks, and "
     "no other engine's"},
    {"kind", 0, 0, 0, "openai",
     "`openai`: any server of OpenAI's API; `vllm`, `sglang`"},
    {"url", TEXT(url_text), 0, NULL,
     "where it is: `http://host[:port][/path]`; the requests' paths come "
     "behind it"},
    {"model", TEXT(model), 0, NULL,
     "the model that it serves, as requests name it; engines of one model "
     "share its requests"},
    {"role", 0, 0, 0, "both", "`both`: it prefills and decodes"},
    {"index", 0, 0, 0, "auto",
     "how its cached blocks are known: `predicted`: what was sent there is "
     "assumed cached, under `kv_blocks`, least recently used first out; "
     "`events`: by its KV events; `auto`: by events where `kv_events` is set, "
     "and predicted until the first of them"},
    {"kv_events", TEXT(kv_events), 0, "",
     "where it publishes KV events over ZMQ: `tcp://host:port`; rank r of "
     "`dp_ranks` at port + r"},
    {"kv_events_bind", 0, 0, 0, "false",
     "`true`: `kv_events` is the conductor's own address, and the engine "
     "connects to it"},
    {"kv_replay", TEXT(kv_replay), 0, "",
     "where it replays what was lost: `tcp://host:port`; rank r at port + r"},
    {"kv_topic", TEXT(kv_topic), 0, "",
     "prefix of the topic of its events; without it all are taken"},
    {"dp_ranks", offsetof(struct engine_config, dp_ranks), 0, 256, NULL,
     "data-parallel ranks that publish events of their own; without it 1"},
    {"block_tokens", offsetof(struct engine_config, block_tokens), 0,
     BLOCK_TOKENS_MAX, NULL,
     "tokens in one of its KV blocks; the same for all engines of a model; "
     "without it 16"},
    {"kv_blocks", offsetof(struct engine_config, kv_blocks), 0, KV_BLOCKS_MAX,
     NULL, "KV blocks that it has; without it what it tells, or 8192"},
    {"api_key_file", TEXT(api_key_file), 0, "",
     "file with the key that is sent to it, in place of the client's"},
    {"cost_model", TEXT(cost_model), 0, "",
     "file with the model's costs, by conductor-fit; without it they are "
     "learned from first tokens. The first engine of a model that has one "
     "tells it for all"},
    {"health_path", TEXT(health_path), 0, "/health",
     "what is asked for again and again; any answer below 500 is a healthy "
     "one"},
    {"tokenize_path", TEXT(tokenize_path), 0, "",
     "what is asked for the tokens of a text, in the words of vLLM; without it "
     "`/tokenize` for `vllm` and `sglang`, nothing for `openai`"},
    {"metrics_path", TEXT(metrics_path), 0, "",
     "what is asked for after that: Prometheus's text that tells requests, KV "
     "blocks and the time of the start; without it `/metrics` for `vllm` and "
     "`sglang`, nothing for `openai`"},
};

#define FIELDS (sizeof(table) / sizeof(table[0]))

static char *text_at(struct engine_config *e, const struct field *d)
{
    return (char *)e + d->at;
}

static int64_t *number_at(struct engine_config *e, const struct field *d)
{
    return (int64_t *)(void *)((char *)e + d->at);
}

/* One of the words of a field that is no plain text; its index. */
static uint8_t read_word(struct fields *f, const struct fields_object *o,
                         const char *key, const char *const *words,
                         const char *fallback)
{
    char word[32], all[96] = "";

    fields_text(f, o, key, word, sizeof(word), fallback);
    for (uint8_t i = 0; words[i]; i++) {
        if (strcmp(word, words[i]) == 0)
            return i;
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
                 i ? " or " : "", words[i]);
    }
    fields_refuse_value(f, o, key, all);
    return 0;
}

static void read_words(struct fields *f, const struct fields_object *o,
                       struct engine_config *e)
{
    static const char *const kinds[] = {"openai", "vllm", "sglang", NULL};
    static const char *const roles[] = {"both", NULL};
    static const char *const indexes[] = {"auto", "events", "predicted", NULL};

    e->kind = read_word(f, o, "kind", kinds, "openai");
    (void)read_word(f, o, "role", roles, "both");
    e->index = read_word(f, o, "index", indexes, "auto");
    e->kv_events_bind = fields_bool(f, o, "kv_events_bind", false);
    if (e->index == ENGINE_INDEX_EVENTS && !*e->kv_events)
        fields_refuse(f, o->path, "index", "\"events\" needs kv_events");
}

static bool is_path(const char *text)
{
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return *text == '/';
}

/* tcp://HOST:PORT */
static void check_endpoint(struct fields *f, const struct fields_object *o,
                           const char *key, const char *text)
{
    struct address a;

    if (*text && (strncmp(text, "tcp://", 6) != 0 ||
                  address_parse(text + 6, &a) || a.port == 0))
        fields_refuse_value(f, o, key, "tcp://HOST:PORT");
}

static void check_texts(struct fields *f, const struct fields_object *o,
                        struct engine_config *e)
{
    const char *why;

    for (const char *c = e->name; *c; c++)
        if (*c <= ' ' || *c > '~')
            fields_refuse_value(f, o, "name", "printable, without blanks");
    why = engine_url_parse(e->url_text, &e->url);
    if (why)
        fields_refuse(f, o->path, "url", "\"%s\": %s", e->url_text, why);
    else if (e->url.tls)
        fields_refuse(f, o->path, "url", "\"%s\": https is not spoken yet",
                      e->url_text);
    check_endpoint(f, o, "kv_events", e->kv_events);
    check_endpoint(f, o, "kv_replay", e->kv_replay);
    if (*e->kv_replay && !*e->kv_events)
        fields_refuse(f, o->path, "kv_replay", "needs kv_events");
    if (!is_path(e->health_path))
        fields_refuse_value(f, o, "health_path", "a path that begins with /");
    if (*e->tokenize_path && !is_path(e->tokenize_path))
        fields_refuse_value(f, o, "tokenize_path", "a path that begins with /");
    if (*e->metrics_path && !is_path(e->metrics_path))
        fields_refuse_value(f, o, "metrics_path", "a path that begins with /");
}

static void read_engine(struct fields *f, const struct fields_object *o,
                        struct engine_config *e)
{
    const char *known[FIELDS + 1] = {NULL};
    const int64_t none = 0;

    if (!json_is_object(o->json)) {
        fields_refuse(f, o->path, "", "expected an object");
        return;
    }
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *d = &table[i];

        known[i] = d->name;
        if (d->size && d->fallback && !json_object_get(o->json, d->name))
            snprintf(text_at(e, d), d->size, "%s", d->fallback);
        else if (d->size)
            fields_text(f, o, d->name, text_at(e, d), d->size, d->fallback);
        else if (d->most)
            *number_at(e, d) = fields_integer(f, o, d->name, 1, d->most, &none);
    }
    fields_known(f, o, known);
    read_words(f, o, e);
    if (e->kind != ENGINE_OPENAI && !*e->metrics_path)
        snprintf(e->metrics_path, sizeof(e->metrics_path), "/metrics");
    if (e->kind != ENGINE_OPENAI && !*e->tokenize_path)
        snprintf(e->tokenize_path, sizeof(e->tokenize_path), "/tokenize");
    if (f->rc == 0)
        check_texts(f, o, e);
}

/* What two engines must have in common, or not. */
static void check_pair(struct fields *f, const char *path,
                       const struct engine_config *a,
                       const struct engine_config *b)
{
    if (strcmp(a->name, b->name) == 0)
        fields_refuse(f, path, "name", "\"%s\" is another engine's, too",
                      a->name);
    if (strcmp(a->model, b->model) == 0 && a->block_tokens && b->block_tokens &&
        a->block_tokens != b->block_tokens)
        fields_refuse(f, path, "block_tokens",
                      "%lld, but engine %s of the same model has %lld",
                      (long long)a->block_tokens, b->name,
                      (long long)b->block_tokens);
}

void engine_list_read(struct fields *f, const json_t *value,
                      struct engine_list *out)
{
    size_t n = json_array_size(value);
    char path[32];

    *out = (struct engine_list){0};
    if (!json_is_array(value) || n == 0 || n > ENGINES_MAX) {
        fields_refuse_got(f, "", "engines", "an array of 1 to 4096 objects",
                          value);
        return;
    }
    out->at = calloc(n, sizeof(*out->at));
    if (!out->at) {
        fields_refuse(f, "", "engines", "out of memory");
        return;
    }
    for (out->n = 0; out->n < n && f->rc == 0; out->n++) {
        struct engine_config *e = &out->at[out->n];

        snprintf(path, sizeof(path), "engines[%zu].", out->n);
        read_engine(
            f, &(struct fields_object){json_array_get(value, out->n), path}, e);
        for (size_t i = 0; i < out->n && f->rc == 0; i++)
            check_pair(f, path, e, &out->at[i]);
    }
    if (f->rc)
        engine_list_free(out);
}

void engine_list_free(struct engine_list *list)
{
    free(list->at);
    *list = (struct engine_list){0};
}

static json_t *engine_json(struct engine_config *e)
{
    json_t *o = json_object();
    int bad =
        json_object_set_new(o, "kind", json_string(engine_kind_name(e->kind)));

    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *d = &table[i];

        if (d->size && *text_at(e, d))
            bad |= json_object_set_new(o, d->name, json_string(text_at(e, d)));
        else if (d->most && *number_at(e, d))
            bad |=
                json_object_set_new(o, d->name, json_integer(*number_at(e, d)));
    }
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
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
