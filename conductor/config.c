/* The daemon's configuration: one option table drives everything. */
#include "conductor/config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum option_type { OPTION_STRING, OPTION_INT, OPTION_NUMBER, OPTION_ADDRESS };

struct option_def {
    const char *name;
    enum option_type type;
    size_t offset;
    const char *unit;
    double min, max; /* of numbers; of a string's length, unless max is 0 */
    double step;     /* numbers are multiples of it; 0: any */
    const char *initial;
    const char *help;
};

#define AT(field) offsetof(struct config, field)

static const struct option_def options[] = {
    {"listen", OPTION_ADDRESS, AT(listen), "host:port", 0, 0, 0,
     "127.0.0.1:8080",
     "where clients reach the HTTP API; port 0 takes any free one"},
    {"worker_listen", OPTION_ADDRESS, AT(worker_listen), "host:port", 0, 0, 0,
     "127.0.0.1:8081", "where workers register; port 0 takes any free one"},
    {"model", OPTION_STRING, AT(model), "", 1, 63, 0, "tiny",
     "the served model; a worker of another model is refused"},
    {"block_tokens", OPTION_INT, AT(block_tokens), "tokens", 16, 512, 16, "256",
     "tokens in one KV block; a worker of another size is refused"},
    {"policy", OPTION_STRING, AT(policy), "", 0, 0, 0, "plan",
     "how a request's prefill instance is chosen: random, round_robin, "
     "least_loaded, local_cache, global_cache or plan"},
    {"kvcache_balancing_threshold", OPTION_NUMBER,
     AT(kvcache_balancing_threshold), "ratio", 1, 1e6, 0, "1",
     "global_cache: fetch blocks when the best match elsewhere is longer than "
     "the local one by more than this factor"},
    {"cost_model", OPTION_STRING, AT(cost_model), "file", 0, 0, 0, "",
     "the model that conductor-fit wrote; needed for every policy"},
    {"seed", OPTION_INT, AT(seed), "", 0, 9e15, 0, "1",
     "seed of the random policy"},
    {"slo_ttft_ms", OPTION_INT, AT(slo_ttft_ms), "ms", 0, 86400000, 0, "0",
     "default limit on the time to first token; 0 = none"},
    {"slo_tbt_ms", OPTION_INT, AT(slo_tbt_ms), "ms", 0, 86400000, 0, "0",
     "default limit on the time between tokens; 0 = none"},
    {"max_body_bytes", OPTION_INT, AT(max_body_bytes), "bytes", 1024, 1 << 28,
     0, "16777216", "longest request body; a longer one is answered 413"},
    {"max_body_total_bytes", OPTION_INT, AT(max_body_total_bytes), "bytes",
     1 << 20, 1e12, 0, "1073741824",
     "request bodies being received, all together; what does not fit is "
     "answered 503"},
    {"max_connections", OPTION_INT, AT(max_connections), "", 1, 100000, 0,
     "4096", "open client connections"},
    {"max_in_flight", OPTION_INT, AT(max_in_flight), "requests", 1, 1000000, 0,
     "4096", "requests between arrival and last token; more are answered 429"},
    {"max_instances", OPTION_INT, AT(max_instances), "instances", 1, 4096, 0,
     "256", "registered workers; more are refused"},
    {"max_queue_per_instance", OPTION_INT, AT(max_queue_per_instance),
     "requests", 1, 1023, 0, "512", "prefills waiting on one instance"},
    {"index_max_blocks", OPTION_INT, AT(index_max_blocks), "blocks", 1024,
     1000000000, 0, "4194304", "distinct blocks that the prefix index knows"},
    {"heartbeat_ms", OPTION_INT, AT(heartbeat_ms), "ms", 10, 60000, 0, "500",
     "how often a worker reports its state"},
    {"worker_timeout_ms", OPTION_INT, AT(worker_timeout_ms), "ms", 100, 600000,
     0, "5000",
     "a worker that is silent for this long is taken as gone; at least two "
     "heartbeat_ms"},
    {"max_retries", OPTION_INT, AT(max_retries), "", 0, 100, 0, "3",
     "other choices tried when a worker fails before the first token"},
    {"link_mbps", OPTION_INT, AT(link_mbps), "Mbit/s", 1, 10000000, 0, "10000",
     "first guess of what a link between workers carries; measured later"},
    {"disk_mbps", OPTION_INT, AT(disk_mbps), "Mbit/s", 1, 10000000, 0, "8000",
     "first guess of what a worker reads from its disk; measured later"},
    {"explain_requests", OPTION_INT, AT(explain_requests), "requests", 0, 10000,
     0, "256", "last requests that GET /admin/explain/ID tells of; 0 = none"},
    {"log_level", OPTION_STRING, AT(log_level), "", 0, 0, 0, "info",
     "error, warn, info or debug"},
};

#define N_OPTIONS (sizeof(options) / sizeof(options[0]))

static const struct option_def *option_find(const char *name)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    }
    return NULL;
}

static char *string_at(const struct config *c, const struct option_def *o)
{
    return (char *)(uintptr_t)c + o->offset;
}

int config_split_address(const char *text, char *host, uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || colon[1] == '\0')
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long value = strtoul(colon + 1, &end, 10);
    if (errno || *end || value > UINT16_MAX || colon[1] < '0' || colon[1] > '9')
        return -EINVAL;
    const char *from = text, *to = colon;
    if (text[0] == '[' && colon[-1] == ']') {
        from++;
        to--;
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return -EINVAL;
    }
    size_t n = (size_t)(to - from);
    if (n == 0 || n >= CONFIG_STRING_MAX)
        return -EINVAL;
    memcpy(host, from, n);
    host[n] = '\0';
    *port = (uint16_t)value;
    return 0;
}

static int set_string(struct config *c, const struct option_def *o,
                      const char *value, char err[CONFIG_ERROR_MAX])
{
    char host[CONFIG_STRING_MAX];
    uint16_t port;
    if (strlen(value) >= CONFIG_STRING_MAX) {
        snprintf(err, CONFIG_ERROR_MAX, "%s: longer than %d bytes", o->name,
                 CONFIG_STRING_MAX - 1);
        return -EINVAL;
    }
    if (o->max > 0 &&
        ((double)strlen(value) < o->min || (double)strlen(value) > o->max)) {
        snprintf(err, CONFIG_ERROR_MAX, "%s: must be %.0f to %.0f bytes long",
                 o->name, o->min, o->max);
        return -EINVAL;
    }
    if (o->type == OPTION_ADDRESS && config_split_address(value, host, &port)) {
        snprintf(err, CONFIG_ERROR_MAX,
                 "%s: \"%s\" is not host:port (for example 127.0.0.1:8080)",
                 o->name, value);
        return -EINVAL;
    }
    snprintf(string_at(c, o), CONFIG_STRING_MAX, "%s", value);
    return 0;
}

static int set_number(struct config *c, const struct option_def *o,
                      double value, const char *text,
                      char err[CONFIG_ERROR_MAX])
{
    if (!isfinite(value) || value < o->min || value > o->max) {
        snprintf(err, CONFIG_ERROR_MAX, "%s: %s is outside %.10g to %.10g%s%s",
                 o->name, text, o->min, o->max, *o->unit ? " " : "", o->unit);
        return -ERANGE;
    }
    if (o->step > 0 && fmod(value, o->step) != 0) {
        snprintf(err, CONFIG_ERROR_MAX, "%s: %s is no multiple of %.10g",
                 o->name, text, o->step);
        return -ERANGE;
    }
    if (o->type == OPTION_INT) {
        int64_t whole = (int64_t)value;
        memcpy(string_at(c, o), &whole, sizeof(whole));
    } else {
        memcpy(string_at(c, o), &value, sizeof(value));
    }
    return 0;
}

int config_set(struct config *c, const char *name, const char *value,
               char err[CONFIG_ERROR_MAX])
{
    const struct option_def *o = option_find(name);
    if (!o) {
        snprintf(err, CONFIG_ERROR_MAX,
                 "%s: no such option (--config-reference lists them)", name);
        return -ENOENT;
    }
    if (o->type == OPTION_STRING || o->type == OPTION_ADDRESS)
        return set_string(c, o, value, err);
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end ||
        (o->type == OPTION_INT && number != floor(number))) {
        snprintf(err, CONFIG_ERROR_MAX, "%s: \"%s\" is not %s", name, value,
                 o->type == OPTION_INT ? "a whole number" : "a number");
        return -EINVAL;
    }
    return set_number(c, o, number, value, err);
}

int config_check(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    if (c->worker_timeout_ms < 2 * c->heartbeat_ms) {
        snprintf(
            err, CONFIG_ERROR_MAX,
            "worker_timeout_ms: %lld is less than two heartbeat_ms of %lld: a "
            "worker would be taken as gone between two reports",
            (long long)c->worker_timeout_ms, (long long)c->heartbeat_ms);
        return -EINVAL;
    }
    if (c->max_body_total_bytes < c->max_body_bytes) {
        snprintf(
            err, CONFIG_ERROR_MAX,
            "max_body_total_bytes: %lld is less than max_body_bytes, %lld: "
            "the longest body would never be taken",
            (long long)c->max_body_total_bytes, (long long)c->max_body_bytes);
        return -EINVAL;
    }
    return 0;
}

void config_defaults(struct config *c)
{
    char err[CONFIG_ERROR_MAX];
    memset(c, 0, sizeof(*c));
    for (size_t i = 0; i < N_OPTIONS; i++) {
        /* The table's own defaults are valid: a unit test sets each. */
        int rc = config_set(c, options[i].name, options[i].initial, err);
        (void)rc;
    }
}

static const char *json_type_name(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string",
                                        "a number",  "a number", "a boolean",
                                        "a boolean", "null"};
    return names[json_typeof(v)];
}

static int set_json(struct config *c, const char *name, const json_t *v,
                    char err[CONFIG_ERROR_MAX])
{
    const struct option_def *o = option_find(name);
    bool text = o && (o->type == OPTION_STRING || o->type == OPTION_ADDRESS);
    if (!o)
        return config_set(c, name, "", err);
    if (text && json_is_string(v))
        return set_string(c, o, json_string_value(v), err);
    bool whole = json_is_integer(v);
    if (!text && (whole || (o->type == OPTION_NUMBER && json_is_real(v)))) {
        char shown[32];
        double number = json_number_value(v);
        snprintf(shown, sizeof(shown), "%.17g", number);
        return set_number(c, o, number, shown, err);
    }
    snprintf(err, CONFIG_ERROR_MAX, "%s: expected %s, got %s", name,
             text ? "a string"
                  : (o->type == OPTION_INT ? "a whole number" : "a number"),
             json_type_name(v));
    return -EINVAL;
}

static int from_json(struct config *c, json_t *root, char err[CONFIG_ERROR_MAX])
{
    struct config next;
    const char *name;
    json_t *value;
    config_defaults(&next);
    if (!json_is_object(root)) {
        snprintf(err, CONFIG_ERROR_MAX, "expected a JSON object, got %s",
                 json_type_name(root));
        return -EINVAL;
    }
    json_object_foreach(root, name, value)
    {
        int rc = set_json(&next, name, value, err);
        if (rc)
            return rc;
    }
    *c = next;
    return 0;
}

int config_parse(struct config *c, const char *text, size_t len,
                 char err[CONFIG_ERROR_MAX])
{
    json_error_t why;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        snprintf(err, CONFIG_ERROR_MAX, "line %d, column %d: %s", why.line,
                 why.column, why.text);
        return -EINVAL;
    }
    int rc = from_json(c, root, err);
    json_decref(root);
    return rc;
}

int config_load(struct config *c, const char *path, char err[CONFIG_ERROR_MAX])
{
    char text[CONFIG_ERROR_MAX];
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        if (why.line < 0)
            snprintf(err, CONFIG_ERROR_MAX, "%.200s: %s", path, why.text);
        else
            snprintf(err, CONFIG_ERROR_MAX, "%.200s:%d:%d: %s", path, why.line,
                     why.column, why.text);
        return -EINVAL;
    }
    int rc = from_json(c, root, text);
    json_decref(root);
    if (rc)
        snprintf(err, CONFIG_ERROR_MAX, "%.200s: %.300s", path, text);
    return rc;
}

static json_t *option_json(const struct config *c, const struct option_def *o)
{
    if (o->type == OPTION_INT) {
        int64_t v;
        memcpy(&v, string_at(c, o), sizeof(v));
        return json_integer(v);
    }
    if (o->type == OPTION_NUMBER) {
        double v;
        memcpy(&v, string_at(c, o), sizeof(v));
        return json_real(v);
    }
    return json_string(string_at(c, o));
}

int config_dump(const struct config *c, FILE *out)
{
    json_t *root = json_object();
    int rc = root ? 0 : -EIO;
    for (size_t i = 0; rc == 0 && i < N_OPTIONS; i++) {
        if (json_object_set_new(root, options[i].name,
                                option_json(c, &options[i])))
            rc = -EIO;
    }
    if (rc == 0 && json_dumpf(root, out, JSON_INDENT(2)))
        rc = -EIO;
    json_decref(root);
    if (rc == 0 && fputc('\n', out) == EOF)
        rc = -EIO;
    return rc;
}

static void reference_range(FILE *out, const struct option_def *o)
{
    if (o->max > 0 && o->type == OPTION_STRING)
        fprintf(out, "string, %.0f to %.0f bytes", o->min, o->max);
    else if (o->type == OPTION_STRING || o->type == OPTION_ADDRESS)
        fputs("string", out);
    else
        fprintf(out, "%s, %.10g to %.10g",
                o->type == OPTION_INT ? "integer" : "number", o->min, o->max);
    if (o->step > 0)
        fprintf(out, ", multiple of %.10g", o->step);
}

void config_reference(FILE *out)
{
    fputs("# Configuration\n\n"
          "One JSON object; every option may be left out. Written by\n"
          "`conductor --config-reference`.\n\n"
          "| option | type and range | unit | default | meaning |\n"
          "|---|---|---|---|---|\n",
          out);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option_def *o = &options[i];
        fprintf(out, "| `%s` | ", o->name);
        reference_range(out, o);
        fprintf(out, " | %s | `%s` | %s |\n", o->unit,
                *o->initial ? o->initial : "\"\"", o->help);
    }
}
