/* Questions to a conductor, and messages about its errors. */
#include <event2/http.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "tools/ctl/ctl.h"
#include "tools/replay/live/exchange.h"

char *ctl_tame(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return text;
}

/* Buffer of an error message. */
struct trouble {
    char *text; /* (size) */
    size_t size;
};

static int fail(const struct ctl *ctl, const char *path, const char *why,
                struct trouble to)
{
    char name[REPLAY_SERVER_NAME_BYTES];

    replay_server_name(&ctl->server, name);
    snprintf(to.text, to.size, "%s%s: %s", name, path, why);
    ctl_tame(to.text);
    return 1;
}

/* Reports the server's error message, or its status. Returns 1. */
static int refused(const struct ctl *ctl, const char *path,
                   const struct exchange_answer *answer, struct trouble to)
{
    json_t *json = json_loadb(answer->body, answer->n, 0, NULL);
    const json_t *error = json_object_get(json, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    bool key = answer->status == 401;
    char text[700], unknown[CTL_FROM_BYTES + 80];

    snprintf(unknown, sizeof unknown,
             "no reason is given; is this a conductor's address? (address from "
             "%s)",
             ctl->from);
    snprintf(text, sizeof text, "%d: %s%s", answer->status,
             message ? message : unknown,
             !key ? ""
             : *ctl->server.authorization
                 ? " (the key in --key-file is wrong)"
                 : " (--key-file FILE sends the key in it)");
    json_decref(json);
    return fail(ctl, path, text, to);
}

/* exchange() with the conductor; its error names the source of the address. */
static int ask(struct ctl *ctl, const char *body, const char *path,
               struct exchange_answer *answer, struct trouble to)
{
    size_t n;

    if (exchange(ctl->loop, &ctl->server, body, path, ctl->timeout_us, answer,
                 to.text, to.size) == 0)
        return 0;
    n = strlen(to.text);
    snprintf(to.text + n, to.size - n, " (address from %s)", ctl->from);
    ctl_tame(to.text);
    return 1;
}

int ctl_try(struct ctl *ctl, const char *body, const char *path, json_t **json,
            char *error, size_t size)
{
    const struct trouble to = {error, size};
    struct exchange_answer answer;
    json_error_t why = {.text = ""};
    char text[256 + CTL_FROM_BYTES];
    int rc = 0;

    if (ask(ctl, body, path, &answer, to))
        return 1;
    *json = NULL;
    if (answer.status == 200 || answer.status == 503)
        *json = json_loadb(answer.body, answer.n, 0, &why);
    if (answer.status != 200 && (!*json || json_object_get(*json, "error"))) {
        rc = refused(ctl, path, &answer, to);
    } else if (!json_is_object(*json)) {
        snprintf(text, sizeof text,
                 "the answer is no JSON object%s%s; is this a conductor's "
                 "address? (address from %s)",
                 *why.text ? ": " : "", why.text, ctl->from);
        rc = fail(ctl, path, text, to);
    }
    if (rc) { /* the caller may free what it has */
        json_decref(*json);
        *json = NULL;
    }
    free(answer.body);
    return rc;
}

int ctl_ask(struct ctl *ctl, const char *body, const char *path, json_t **json)
{
    char error[1024];
    int rc = ctl_try(ctl, body, path, json, error, sizeof error);

    if (rc)
        options_complain(CTL_NAME, "%s", error);
    return rc;
}

int ctl_text(struct ctl *ctl, const char *path, char **text, int64_t *date_s)
{
    struct exchange_answer answer;
    char error[1024];

    if (ask(ctl, CTL_GET, path, &answer,
            (struct trouble){error, sizeof error})) {
        options_complain(CTL_NAME, "%s", error);
        return 1;
    }
    if (answer.status == 200) {
        *text = answer.body;
        if (date_s)
            *date_s = answer.date_s;
        return 0;
    }
    refused(ctl, path, &answer, (struct trouble){error, sizeof error});
    options_complain(CTL_NAME, "%s", error);
    free(answer.body);
    return 1;
}

char *ctl_instance_path(const char *name, const char *what)
{
    char *escaped = evhttp_uriencode(name, -1, 0);
    size_t n = escaped ? strlen(escaped) + strlen(what) + 32 : 0;
    char *path = n ? malloc(n) : NULL;

    if (path)
        snprintf(path, n, "/admin/instances/%s/%s", escaped, what);
    free(escaped);
    return path;
}

const char *ctl_show(const json_t *object, const char *key, char *text,
                     size_t size)
{
    const json_t *value = json_object_get(object, key);

    if (json_is_string(value))
        snprintf(text, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, size, "%" JSON_INTEGER_FORMAT,
                 json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, size, "%.3f", json_real_value(value));
    else
        snprintf(text, size, "%s", json_is_true(value) ? "yes" : "-");
    ctl_tame(text);
    if (!*text)
        snprintf(text, size, "-");
    return text;
}

const char *ctl_member(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

json_int_t ctl_work(const json_t *instance)
{
    const json_t *prefills = json_object_get(instance, "prefills");

    if (!json_is_integer(prefills))
        return -1;
    return json_integer_value(prefills) +
           json_integer_value(json_object_get(instance, "decodes")) +
           json_integer_value(json_object_get(instance, "exchanges"));
}

const char *ctl_state(const json_t *instance, char *text, size_t size)
{
    size_t n = strlen(ctl_show(instance, "state", text, size));

    if (!json_is_true(json_object_get(instance, "drained")))
        return text;
    if (strcmp(text, "draining") != 0)
        snprintf(text + n, size - n, ",drained");
    else if (ctl_work(instance) == 0)
        snprintf(text, size, "drained");
    return text;
}

void ctl_print_json(const json_t *json)
{
    json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    printf("\n");
}
