/* The configuration read from JSON. */
#include <errno.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/internal.h"

/* {"name": number, ...} */
static void set_policy_options(struct fields *f, struct config *c,
                               json_t *object)
{
    char one[CONFIG_STRING_MAX], err[CONFIG_ERROR_MAX];
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        snprintf(one, sizeof(one), "%.100s=%.17g", name,
                 json_number_value(value));
        if (!json_is_number(value))
            fields_refuse_got(f, "policy_options.", name, "a number", value);
        else if (config_policy_option(c, one, err))
            fields_refuse(f, "", "", "%s", err);
    }
}

/* Writes what a value of the wrong type must be: with the range of a number,
 * and the form of a text that may not be empty. Returns the text. */
static const char *wanted(const struct option_spec *o,
                          char text[CONFIG_ERROR_MAX])
{
    bool is_text = config_is_text(o) && !config_is_settings(o);
    const char must[] = "must be ";
    const char *form = is_text && o->check ? o->check("") : NULL;

    if (!is_text && !config_is_switch(o) && !config_is_settings(o) &&
        option_set(o, "no number", text, CONFIG_ERROR_MAX) != 0 &&
        strncmp(text, must, strlen(must)) == 0)
        return text + strlen(must);
    snprintf(text, CONFIG_ERROR_MAX, "%s%s%s", config_type_name(o),
             form ? ": " : "", form ? form : "");
    return text;
}

static void set_json(struct fields *f, struct config *c, const char *name,
                     json_t *value)
{
    struct option_spec specs[CONFIG_OPTIONS_MAX];
    const struct option_table table = config_table(c, specs);
    const struct option_spec *o = option_find(&table, name, strlen(name));
    char number[32] = "", err[CONFIG_ERROR_MAX];

    if (json_is_integer(value))
        snprintf(number, sizeof(number), "%lld",
                 (long long)json_integer_value(value));
    else if (json_is_boolean(value) && o && config_is_switch(o))
        snprintf(number, sizeof(number), "%d", json_is_true(value));
    else if (json_is_real(value) && o && o->kind == OPTION_NUMBER)
        snprintf(number, sizeof(number), "%.17g", json_real_value(value));
    const char *text = !o || config_is_text(o) ? json_string_value(value)
                       : *number               ? number
                                               : NULL;
    if (o && o->value == c->policy_options && json_is_object(value))
        set_policy_options(f, c, value);
    else if (o && !text)
        fields_refuse_got(f, "", name, wanted(o, err), value);
    else if (config_set(c, name, text ? text : "", err))
        fields_refuse(f, "", "", "%s", err);
}

static void check_stores(struct fields *f, const struct config *c)
{
    for (size_t i = 0; i < c->stores.n && f->rc == 0 && !*c->engines_file;
         i++) {
        char path[32];
        size_t e = 0;

        snprintf(path, sizeof(path), "stores[%zu].", i);
        while (e < c->engines.n &&
               strcmp(c->engines.at[e].model, c->stores.at[i].model) != 0)
            e++;
        if (e == c->engines.n)
            fields_refuse(f, path, "model", "\"%s\": no engine serves it",
                          c->stores.at[i].model);
    }
}

static void read_options(struct fields *f, const struct fields_object *root,
                         void *into)
{
    struct config *c = into;
    const char *name;
    json_t *value;

    json_object_foreach(root->json, name, value)
    {
        if (strcmp(name, "engines") == 0)
            engine_list_read(f, value, &c->engines);
        else if (strcmp(name, "stores") == 0)
            store_list_read(f, value, &c->stores);
        else if (strcmp(name, "worker_costs") == 0)
            worker_cost_list_read(f, value, &c->worker_costs);
        else
            set_json(f, c, name, value);
    }
    check_stores(f, c);
    c->worker_listen_given = json_object_get(root->json, "worker_listen");
    if ((c->engines.given || *c->engines_file) && !c->worker_listen_given)
        c->worker_listen[0] = '\0';
}

int config_anchor(char file[CONFIG_STRING_MAX], const char *path)
{
    char whole[CONFIG_STRING_MAX];
    const char *slash = strrchr(path, '/');

    if (!slash || !*file || *file == '/')
        return 0;
    int n = snprintf(whole, sizeof(whole), "%.*s/%s", (int)(slash - path), path,
                     file);
    if (n < 0 || (size_t)n >= sizeof(whole))
        return -ENAMETOOLONG;
    memcpy(file, whole, sizeof(whole));
    return 0;
}

int worker_cost_list_anchor(struct worker_cost_list *list, const char *path)
{
    for (size_t i = 0; i < list->n; i++)
        if (config_anchor(list->at[i].cost_model, path))
            return -ENAMETOOLONG;
    return 0;
}

int engine_list_anchor(struct engine_list *list, const char *path)
{
    for (size_t i = 0; i < list->n; i++)
        if (config_anchor(list->at[i].api_key_file, path) ||
            config_anchor(list->at[i].cost_model, path) ||
            config_anchor(list->at[i].tls_ca_file, path))
            return -ENAMETOOLONG;
    return 0;
}

void config_fini(struct config *c)
{
    engine_list_free(&c->engines);
    store_list_free(&c->stores);
    worker_cost_list_free(&c->worker_costs);
}

/* Reads the file `name` where `text` is NULL. */
static int read_config(struct config *c, const char *name, const char *text,
                       size_t size, char err[CONFIG_ERROR_MAX])
{
    struct fields f = {"", name, err, CONFIG_ERROR_MAX, 0};
    struct config next;

    config_defaults(&next);
    int rc = fields_read(&f, text, size, read_options, &next);
    if (rc)
        config_fini(&next);
    else
        *c = next;
    return rc;
}

int config_parse(struct config *c, const char *text, size_t len,
                 char err[CONFIG_ERROR_MAX])
{
    return read_config(c, "configuration", text, len, err);
}

int config_load(struct config *c, const char *path, char err[CONFIG_ERROR_MAX])
{
    return read_config(c, path, NULL, CONFIG_FILE_MAX, err);
}
