/* The configuration written: as JSON that reads back, and as a page. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "conductor/config/internal.h"
#include "conductor/config/policy_text.h"

/* The settings of a policy_options' text as an object. */
static json_t *settings_json(const char *text)
{
    struct policy_settings settings;
    char error[CONFIG_ERROR_MAX];
    json_t *object = json_object();

    if (config_settings(text, &settings, error, sizeof(error)))
        return object;
    for (size_t i = 0; i < settings.n; i++)
        if (json_object_set_new(object, settings.at[i].name,
                                json_real(settings.at[i].value))) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *option_json(const struct option_spec *o)
{
    if (config_is_settings(o))
        return settings_json(o->value);
    if (config_is_switch(o))
        return json_boolean(*(const int64_t *)o->value);
    switch (o->kind) {
    case OPTION_COUNT:
        return json_integer(*(const json_int_t *)o->value);
    case OPTION_NUMBER:
        return json_real(*(const double *)o->value);
    case OPTION_CHOICE:
        return json_string(option_word(o, *(const uint8_t *)o->value));
    default:
        return json_string(o->value);
    }
}

int config_dump(const struct config *c, FILE *out)
{
    struct config copy = *c;
    struct option_spec specs[CONFIG_OPTIONS_MAX];
    const struct option_table table = config_table(&copy, specs);
    json_t *root = json_object();
    int rc = root ? 0 : -EIO;

    for (size_t i = 0; rc == 0 && i < table.count; i++)
        if (json_object_set_new(root, specs[i].name, option_json(&specs[i])))
            rc = -EIO;
    if (rc == 0 && c->engines.given &&
        json_object_set_new(root, "engines", engine_list_json(&c->engines)))
        rc = -EIO;
    if (rc == 0 && c->stores.n &&
        json_object_set_new(root, "stores", store_list_json(&c->stores)))
        rc = -EIO;
    if (rc == 0 && c->worker_costs.n &&
        json_object_set_new(root, "worker_costs",
                            worker_cost_list_json(&c->worker_costs)))
        rc = -EIO;
    if (rc == 0 && json_dumpf(root, out, JSON_INDENT(2)))
        rc = -EIO;
    json_decref(root);
    if (rc == 0 && fputc('\n', out) == EOF)
        rc = -EIO;
    return rc;
}

static void reference_range(FILE *out, const struct option_spec *o)
{
    if (config_is_settings(o))
        fputs("object of numbers", out);
    else if (config_is_switch(o))
        fputs("true or false", out);
    else if (o->max > 0 && config_is_text(o))
        fprintf(out, "string, %.0f to %.0f bytes", o->min, o->max);
    else if (config_is_text(o))
        fputs("string", out);
    else
        fprintf(out, "%s, %.10g to %.10g",
                o->kind == OPTION_COUNT ? "integer" : "number", o->min, o->max);
    if (o->step > 0)
        fprintf(out, ", multiple of %.10g", o->step);
}

void config_example(FILE *out)
{
    struct config c;
    struct option_spec specs[CONFIG_OPTIONS_MAX];
    const struct option_table table = config_table(&c, specs);

    config_defaults(&c);
    c.worker_listen[0] = '\0'; /* as it is with engines */
    fputs("{\n"
          "  // Your engines. docs/reference/configuration.md has all of their "
          "fields.\n"
          "  \"engines\": [\n"
          "    {\"name\": \"a\", \"kind\": \"auto\", \"url\": "
          "\"http://127.0.0.1:8001\"},\n"
          "    {\"name\": \"b\", \"kind\": \"auto\", \"url\": "
          "\"http://127.0.0.1:8002\"}\n"
          "  ],\n\n"
          "  // Every other option with its default: remove the // before its "
          "name to set it.\n",
          out);
    for (size_t i = 0; i < table.count; i++) {
        const struct option_spec *o = &specs[i];
        char help[512], text[1024];
        json_t *value = option_json(o);
        char *json =
            json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

        option_help(o, help, sizeof(help));
        snprintf(text, sizeof(text), "%s%s%s%s", help, *o->metavar ? " (" : "",
                 o->metavar, *o->metavar ? ")" : "");
        fputs("\n  // ", out);
        options_print_wrapped(out, text, 5, "  // ");
        fprintf(out, "  // \"%s\": %s,\n", o->name, json ? json : "");
        free(json);
        json_decref(value);
    }
    fputs("}\n", out);
}

static void tenants_reference(FILE *out)
{
    fputs(
        "\n## tenants\n\n"
        "`tenants_file` is JSON with a member `tenants`, an array of at most "
        "63 objects;\n"
        "[limits.md](../operate/limits.md#tenants) says what they are for.\n\n"
        "| field | default | meaning |\n|---|---|---|\n"
        "| `name` | required | name in metrics and explain: letters, digits, "
        "`.`, `_`, `-`; not `other` |\n"
        "| `weight` | `1` | from 0.01 to 100: its share relative to the other "
        "tenants' weights |\n"
        "| `sha256` | required | array of SHA-256 sums, at least one, in "
        "lower-case hexadecimal: one for each value of `tenant_header` that "
        "belongs to the tenant (`printf %s KEY \\| sha256sum`) |\n"
        "| `slo_ttft_ms`, `slo_tpot_ms` | `0` | with `api_keys` required: SLOs "
        "of the tenant's requests that name none; 0 = the configuration's |\n"
        "| `requests_per_minute`, `tokens_per_minute` | `0` | with `api_keys` "
        "required: rate limits; tokens of prompt and answer count when a "
        "request ends; a minute's worth may come at once; 0 = no limit |\n"
        "| `max_in_flight` | `0` | with `api_keys` required: most requests in "
        "flight; 0 = no limit |\n",
        out);
}

void config_reference(FILE *out)
{
    struct config c;
    struct option_spec specs[CONFIG_OPTIONS_MAX];
    const struct option_table table = config_table(&c, specs);

    fputs("# Configuration\n\n"
          "One JSON object; every option may be left out. Written by\n"
          "`conductor --config-reference`.\n\n"
          "| option | type and range | unit | default | meaning |\n"
          "|---|---|---|---|---|\n",
          out);
    for (size_t i = 0; i < table.count; i++) {
        const struct option_spec *o = &specs[i];
        char help[512];

        option_help(o, help, sizeof(help));
        fprintf(out, "| `%s` | ", o->name);
        reference_range(out, o);
        fprintf(out, " | %s | `%s` | %s%s |\n", o->metavar,
                config_is_switch(o)     ? "false"
                : *o->initial           ? o->initial
                : config_is_settings(o) ? "{}"
                                        : "\"\"",
                help, o->reloads ? "; taken on reload" : "");
    }
    engine_list_reference(out);
    store_list_reference(out);
    tenants_reference(out);
    worker_cost_list_reference(out);
    policy_reference(out);
}
