/* The daemon's configuration: the option table drives everything. */
#include "conductor/config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conductor/config_options.h"
#include "conductor/core/schedule/schedule.h"
#include "conductor/core/step/queue.h"

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

/* name_of(i): the i-th name that is allowed, or NULL. */
static int check_name(const struct option_def *o, const char *value,
                      const char *(*name_of)(size_t i),
                      char err[CONFIG_ERROR_MAX])
{
    int n = snprintf(err, CONFIG_ERROR_MAX, "%s: \"%.200s\" is not one of",
                     o->name, value);

    for (size_t i = 0; name_of(i); i++) {
        if (strcmp(name_of(i), value) == 0)
            return 0;
        n += snprintf(err + n, CONFIG_ERROR_MAX - (size_t)n, " %s", name_of(i));
    }
    return -EINVAL;
}

/* What a string must be beyond its length. */
static int check_text(const struct option_def *o, const char *value,
                      char err[CONFIG_ERROR_MAX])
{
    char host[CONFIG_STRING_MAX];
    uint16_t port;
    enum log_level level;

    if (o->type == OPTION_POLICY)
        return check_name(o, value, schedule_policy_name, err);
    if (o->type == OPTION_QUEUE_ORDER)
        return check_name(o, value, queue_order_name, err);
    if (o->type == OPTION_ADDRESS && config_split_address(value, host, &port)) {
        snprintf(err, CONFIG_ERROR_MAX,
                 "%s: \"%s\" is not host:port (for example 127.0.0.1:8080)",
                 o->name, value);
        return -EINVAL;
    }
    if (o->type == OPTION_LOG_LEVEL && log_level_parse(value, &level)) {
        snprintf(err, CONFIG_ERROR_MAX,
                 "%s: \"%.200s\" is not one of error, warn, info, debug",
                 o->name, value);
        return -EINVAL;
    }
    return 0;
}

static int set_string(struct config *c, const struct option_def *o,
                      const char *value, char err[CONFIG_ERROR_MAX])
{
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
    int rc = check_text(o, value, err);
    if (rc)
        return rc;
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
    const struct option_def *o = config_option_find(name);

    if (!o) {
        snprintf(err, CONFIG_ERROR_MAX,
                 "%s: no such option (--config-reference lists them)", name);
        return -ENOENT;
    }
    if (config_option_is_text(o))
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
    const struct option_def *o;
    for (size_t i = 0; (o = config_option(i)); i++) {
        /* The table's own defaults are valid: a unit test sets each. */
        int rc = config_set(c, o->name, o->initial, err);

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

static void wrong_type(const struct option_def *o, const json_t *v,
                       char err[CONFIG_ERROR_MAX])
{
    char *shown =
        json_is_null(v)
            ? NULL
            : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);

    snprintf(err, CONFIG_ERROR_MAX, "%s: expected %s, got %s%s%.100s", o->name,
             config_option_is_text(o)
                 ? "a string"
                 : (o->type == OPTION_INT ? "a whole number" : "a number"),
             json_type_name(v), shown ? " " : "", shown ? shown : "");
    free(shown);
}

static int set_json(struct config *c, const char *name, const json_t *v,
                    char err[CONFIG_ERROR_MAX])
{
    const struct option_def *o = config_option_find(name);
    bool text = o && config_option_is_text(o);

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
    wrong_type(o, v, err);
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
    const struct option_def *o;

    for (size_t i = 0; rc == 0 && (o = config_option(i)); i++)
        if (json_object_set_new(root, o->name, option_json(c, o)))
            rc = -EIO;
    if (rc == 0 && json_dumpf(root, out, JSON_INDENT(2)))
        rc = -EIO;
    json_decref(root);
    if (rc == 0 && fputc('\n', out) == EOF)
        rc = -EIO;
    return rc;
}
