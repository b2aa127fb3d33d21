/* conductorctl diagnose: what is wrong with a conductor, and what it rests on.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/options.h"
#include "tools/ctl/bundle.h"
#include "tools/ctl/checks.h"

#define PAGE "docs/operate/on-call.md"
/* Exit status where the conductor cannot be asked. */
#define EXIT_UNASKED 2

static void print_finding(const struct finding *one, size_t number)
{
    const struct check *c = one->check;
    char value[32], limit[32];

    printf("%zu. %s%s%s: %s %s, normal is %s%s", number, c->title,
           *one->subject ? ": " : "", one->subject, c->measure,
           check_show(c, one->value, value),
           c->limit == 0 && !c->below ? ""
           : c->below                 ? "at least "
                                      : "at most ",
           check_show(c, c->limit, limit));
    printf(*one->detail ? " (%s)\n" : "%s\n", one->detail);
    printf("   " PAGE "#%s\n", c->page);
}

static void print_all(const struct ctl *ctl, const struct findings *f)
{
    char name[REPLAY_SERVER_NAME_BYTES], version[64] = "";
    const struct sample *info =
        samples_next(&f->r->now, "conductor_build_info", NULL);
    double up_s = (double)time(NULL) -
                  samples_sum(&f->r->now, "process_start_time_seconds", NULL);

    replay_server_name(&ctl->server, name);
    if (info)
        sample_label(info, "version", version, sizeof version);
    printf("conductor %s, version %s, up %.1f h; two readings, %g s apart\n",
           name, version, up_s / 3600, f->r->over_s);
    for (size_t i = 0; i < f->n; i++)
        print_finding(&f->all[i], i + 1);
    if (f->left_out)
        printf("and %zu more\n", f->left_out);
    if (f->n == 0)
        printf("nothing wrong: %zu checks\n", checks_n);
}

/* Returns the diagnosis as JSON, with all checks; NULL when out of memory. */
static json_t *to_json(const struct findings *f)
{
    json_t *wrong = json_array(), *all = json_array();

    for (size_t i = 0; i < f->n; i++) {
        const struct finding *one = &f->all[i];

        json_array_append_new(
            wrong, json_pack("{s:s, s:s, s:s*, s:f, s:f, s:s*, s:s}", "check",
                             one->check->name, "title", one->check->title,
                             "subject", *one->subject ? one->subject : NULL,
                             "value", one->value, "limit", one->check->limit,
                             "detail", *one->detail ? one->detail : NULL,
                             "page", one->check->page));
    }
    for (size_t i = 0; i < checks_n; i++) {
        const struct check *c = &checks[i];
        bool ok = true;

        for (size_t k = 0; k < f->n; k++)
            ok = ok && f->all[k].check != c;
        json_array_append_new(
            all, json_pack("{s:s, s:s?, s:f, s:s, s:f, s:s, s:b}", "check",
                           c->name, "alert", c->alert, "limit", c->limit,
                           "wrong_if", c->below ? "below" : "above", "least",
                           c->least, "page", c->page, "ok", ok));
    }
    return json_pack("{s:b, s:o, s:I, s:f, s:o}", "ok", f->n == 0, "wrong",
                     wrong, "left_out", (json_int_t)f->left_out, "over_s",
                     f->r->over_s, "checks", all);
}

int ctl_diagnose(struct ctl *ctl, const struct option_list *)
{
    struct findings *f = calloc(1, sizeof(*f));
    json_t *json = NULL;
    struct readings r;
    int status = EXIT_UNASKED;

    if (!f || readings_take(ctl, ctl->over_s, &r)) {
        free(f);
        return EXIT_UNASKED;
    }
    checks_run(&r, f);
    if (ctl->json || ctl->bundle)
        json = to_json(f);
    if (!ctl->json)
        print_all(ctl, f);
    else if (json)
        ctl_print_json(json);
    if (!ctl->bundle || (json && bundle_write(ctl, &r, json) == 0))
        status = f->n > 0;
    json_decref(json);
    readings_free(&r);
    free(f);
    return status;
}
