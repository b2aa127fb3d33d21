/* See readings.h. */
#include "tools/ctl/readings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/options.h"

/* Cuts a line in place. Returns whether it is a sample. */
static bool cut_line(char *line, struct sample *out)
{
    char *brace = strchr(line, '{'), *end = line + strcspn(line, " "), *rest;

    if (*line == '#' || *line == '\0')
        return false;
    out->labels = "";
    if (brace && brace < end) {
        /* A label's value may hold blanks and braces, but no '"' unescaped. */
        end = strrchr(brace, '}');
        if (!end)
            return false;
        *brace = *end = '\0';
        out->labels = brace + 1;
        end++;
    }
    if (*end != ' ')
        return false;
    *end = '\0';
    out->name = line;
    out->value = strtod(end + 1, &rest);
    return rest != end + 1;
}

int samples_cut(char *text, struct samples *out)
{
    size_t lines = 1;
    char *at, *line;

    *out = (struct samples){.whole = text, .text = strdup(text)};
    for (const char *c = text; (c = strchr(c, '\n')); c++)
        lines++;
    out->all = calloc(lines, sizeof(*out->all));
    if (!out->text || !out->all) {
        samples_free(out);
        return 1;
    }
    at = out->text;
    while ((line = strsep(&at, "\n")))
        if (cut_line(line, &out->all[out->n]))
            out->n++;
    return 0;
}

void samples_free(struct samples *samples)
{
    free(samples->whole);
    free(samples->text);
    free(samples->all);
    *samples = (struct samples){0};
}

double samples_sum(const struct samples *samples, const char *name,
                   const char *part)
{
    const struct sample *one;
    double sum = 0;

    for (size_t i = 0; i < samples->n; i++) {
        one = &samples->all[i];
        if (strcmp(one->name, name) == 0 &&
            (!part || strstr(one->labels, part)))
            sum += one->value;
    }
    return sum;
}

const struct sample *samples_next(const struct samples *samples,
                                  const char *name, const struct sample *after)
{
    const struct sample *end = samples->all + samples->n;

    for (after = after ? after + 1 : samples->all; after != end; after++)
        if (strcmp(after->name, name) == 0)
            return after;
    return NULL;
}

const char *sample_label(const struct sample *sample, const char *label,
                         char *text, size_t size)
{
    const char *at;
    char wanted[64];
    size_t n = 0;

    snprintf(wanted, sizeof wanted, "%s=\"", label);
    at = strstr(sample->labels, wanted);
    /* Not the end of another label's name. */
    while (at && at != sample->labels && at[-1] != ',')
        at = strstr(at + 1, wanted);
    at = at ? at + strlen(wanted) : "";
    while (*at && *at != '"' && n + 1 < size) {
        at += *at == '\\' && at[1];
        text[n++] = *at++;
    }
    text[n] = '\0';
    return ctl_tame(text);
}

/* Copies text up to `end`, without escapes, to `to`, which has room for it.
 * Returns where `end` is, or the end of the text. */
static const char *copy_until(const char *at, char end, char *to)
{
    while (*at && *at != end) {
        bool escaped = *at == '\\' && at[1];

        at += escaped;
        *to++ = (char)(escaped && *at == 'n' ? '\n' : *at);
        at++;
    }
    *to = '\0';
    return at;
}

json_t *sample_json(const struct sample *sample)
{
    json_t *labels = json_object(), *value;
    const char *at = sample->labels;
    char *name = malloc(strlen(at) + 1), *text = malloc(strlen(at) + 1);

    while (name && text && *at) {
        at = copy_until(at, '=', name);
        at = copy_until(at + (*at == '='), '"', text); /* the opening quote */
        at = copy_until(at + (*at == '"'), '"', text);
        at += *at == '"';
        at += *at == ',';
        json_object_set_new(labels, name, json_string(text));
    }
    free(name);
    free(text);
    /* Integers up to 2^53 are exact. */
    value = fabs(sample->value) <= 9007199254740992 &&
                    floor(sample->value) == sample->value
                ? json_integer((json_int_t)sample->value)
                : json_real(sample->value);
    return json_pack("{s:s, s:o, s:o?}", "name", sample->name, "labels", labels,
                     "value", value);
}

double readings_rise(const struct readings *r, const char *name,
                     const char *part)
{
    return samples_sum(&r->now, name, part) -
           samples_sum(&r->before, name, part);
}

double readings_above(const struct readings *r, const char *name,
                      const char *le, double least)
{
    char text[128], part[32];

    snprintf(text, sizeof text, "%s_count", name);
    double all = readings_rise(r, text, NULL);
    if (all < least || all <= 0)
        return NAN;
    snprintf(text, sizeof text, "%s_bucket", name);
    snprintf(part, sizeof part, "le=\"%s\"", le);
    return 1 - readings_rise(r, text, part) / all;
}

static int read_metrics(struct ctl *ctl, struct samples *out, int64_t *date_s)
{
    char *text;

    if (ctl_text(ctl, "/metrics", &text, date_s))
        return 1;
    return samples_cut(text, out);
}

int readings_take(struct ctl *ctl, double over_s, struct readings *r)
{
    const struct {
        const char *path;
        json_t **into;
    } views[] = {
        {"/health", &r->health},
        {"/ready", &r->ready},
        {"/admin/instances", &r->instances},
        {"/admin/overview", &r->overview},
        {"/admin/history", &r->history},
    };
    const struct timespec pause = {(time_t)over_s,
                                   (long)(fmod(over_s, 1) * 1e9)};
    char error[1024], name[REPLAY_SERVER_NAME_BYTES];
    int64_t date_s = 0;

    *r = (struct readings){.over_s = over_s, .clock_ahead_s = NAN};
    int rc = read_metrics(ctl, &r->before, NULL);
    if (rc == 0 && !samples_next(&r->before, "conductor_build_info", NULL)) {
        replay_server_name(&ctl->server, name);
        options_complain(CTL_NAME,
                         "%s/metrics: has no conductor_build_info, so this is "
                         "not a conductor's address (address from %s)",
                         name, ctl->from);
        rc = 1;
    }
    if (rc == 0) {
        nanosleep(&pause, NULL);
        rc = read_metrics(ctl, &r->now, &date_s);
    }
    if (rc == 0 && date_s)
        r->clock_ahead_s = (double)(date_s - time(NULL));
    for (size_t i = 0; rc == 0 && i < sizeof views / sizeof views[0]; i++)
        rc = ctl_ask(ctl, CTL_GET, views[i].path, views[i].into);
    if (rc == 0 && ctl_try(ctl, CTL_GET, "/admin/decisions", &r->decisions,
                           error, sizeof error))
        r->decisions = NULL;
    if (rc)
        readings_free(r);
    return rc;
}

void readings_free(struct readings *r)
{
    samples_free(&r->before);
    samples_free(&r->now);
    json_decref(r->health);
    json_decref(r->ready);
    json_decref(r->instances);
    json_decref(r->overview);
    json_decref(r->history);
    json_decref(r->decisions);
}
