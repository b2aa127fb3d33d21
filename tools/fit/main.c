/* conductor-fit: fits a cost model to measured profiles.
 *
 * This program links the GNU Scientific Library (GPL-3.0-or-later). Its source
 * is Apache-2.0 like all of the project; the built binary is a combined work
 * under the GPL. No other program links GSL.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/options.h"
#include "predictor/cost_model_json.h"
#include "tools/fit/model.h"

static const struct option_usage usage = {
    .name = "conductor-fit",
    .synopsis = "--out MODEL.json [--plot FILE.svg] PROFILE.csv...",
    .text = "Fits a cost model to measurements, for the conductor to predict "
            "prefill\nand decode times with:\n\n  prefill_us(u, p) = c0 + c1 u "
            "+ c2 u^2 + c3 u p\n  decode_step_us(b, k) = d0 + d1 b + d2 "
            "k\n\nu: uncached tokens, p: cached tokens, b: batch, k: KV tokens "
            "in it.\nThe fit minimises the relative error, over the median of "
            "each point's\nrepeats. It leaves out terms with which a cost "
            "would fall below 0, or fall\nas work rises. Profiles fitted "
            "together must be of one engine, model,\nmachine and block size.",
    .examples = "  conductor-worker --profile tiny.csv\n"
                "  conductor-fit --out tiny.json tiny.csv\n"
                "  conductor-fit --out tiny.json --plot tiny.svg monday.csv "
                "friday.csv\n",
    .footnote =
        "\nExit status: 0 if the model was written, 1 if not, 2 for wrong "
        "usage.\n"
        "\nThis program links the GNU Scientific Library: the binary is under "
        "the\nGPL, version 3 or later. Its source is under Apache-2.0.\n",
};

struct options {
    const char *out;
    const char *plot;
    struct option_list profiles;
};

/* Parses the command line. Returns 0 to go on, or -1 with the exit status in
 * *status. */
static int parse_options(int argc, char **argv, struct options *o, int *status)
{
    const struct option_spec specs[] = {
        {"out", OPTION_TEXT, &o->out, "FILE", 0, 0,
         "write the model to this file (required)", .letter = 'o'},
        {"plot", OPTION_TEXT, &o->plot, "FILE", 0, 0,
         "draw predicted over measured times as SVG", .letter = 'p'},
        {"", OPTION_LIST, &o->profiles, NULL, 0, 0, NULL},
    };

    if (options_start(&usage, OPTION_TABLE(specs), argc, argv, status))
        return -1;
    if (o->out && o->profiles.count > 0)
        return 0;
    options_missing(usage.name, !o->out ? "--out MODEL.json" : "PROFILE.csv");
    *status = OPTIONS_EXIT_USAGE;
    return -1;
}

static void print_terms(const struct fit_part *part)
{
    const struct fit_result *r = &part->result;

    printf("  %-18s %14s %12s %9s\n", "term", "us a unit", "std error", "t");
    for (size_t j = 0; j < part->form->terms; j++) {
        const char *name = part->form->term_names[j];

        printf("  %-18s", name);
        if (r->used[j])
            printf(" %14.6g %12.3g", r->coefficient[j], r->std_error[j]);
        else
            printf(" %14s %12s", "left out", "-");
        if (r->std_error[j] > 0.0)
            printf(" %9.1f\n", r->coefficient[j] / r->std_error[j]);
        else
            printf(" %9s\n", "-");
    }
}

static void print_part(const struct fit_part *part)
{
    const struct fit_point *worst = &part->points[part->worst];
    double us = fit_predict_us(part->form, &part->result, (double)worst->a,
                               (double)worst->b);

    printf("%s: %zu points, medians of %zu measurements\n", part->form->name,
           part->count, part->rows);
    print_terms(part);
    printf("  R^2 (weighted) %.5f\n", part->result.r2);
    printf("  relative error, cross-validated: median %.2f %%, "
           "p95 %.2f %%\n",
           100.0 * part->errors.median_rel, 100.0 * part->errors.p95_rel);
    printf("  worst point: %s %lld, %s %lld: measured %.6g us, "
           "predicted %.6g us (%+.1f %%)\n\n",
           part->form->term_names[1], (long long)worst->a,
           part->form->terms == COST_MODEL_PREFILL_TERMS ? "cached"
                                                         : "kv_tokens",
           (long long)worst->b, worst->us, us,
           100.0 * (us - worst->us) / worst->us);
}

static void warn_part(const struct fit_part *part)
{
    for (size_t j = 0; j < part->form->terms; j++) {
        const char *name = part->form->term_names[j];

        if (!part->result.used[j])
            fprintf(stderr,
                    "conductor-fit: warning: %s: left out the term %s "
                    "(%.4g with all terms): with it a cost would fall "
                    "below 0, or fall where the work rises\n",
                    part->form->name, name, part->full.coefficient[j]);
        else if (part->result.coefficient[j] < 0.0)
            fprintf(stderr,
                    "conductor-fit: warning: %s: the coefficient of %s "
                    "is negative (%.4g): trust no cost outside of the "
                    "measured range\n",
                    part->form->name, name, part->result.coefficient[j]);
    }
}

static void print_report(const struct cost_model *m,
                         const struct fit_report *report)
{
    const struct cost_model_range *r = &m->range;

    printf("%s on %s, %s, %s\n\n", m->model, m->engine, m->machine, m->date);
    print_part(&report->prefill);
    print_part(&report->decode);
    printf("valid for uncached %lld to %lld, cached to %lld, batch to "
           "%lld, kv_tokens to %lld\n",
           (long long)r->uncached_min_tokens, (long long)r->uncached_max_tokens,
           (long long)r->cached_max_tokens, (long long)r->batch_max,
           (long long)r->kv_tokens_max);
    fflush(stdout);
    warn_part(&report->prefill);
    warn_part(&report->decode);
}

/* Fits and writes the model. Returns 0, or a negative errno with a message in
 * err. */
static int run(const struct options *options, char *err, size_t err_size)
{
    struct profile profile = {0};
    struct fit_report report = {0};
    struct cost_model m;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < options->profiles.count; i++)
        rc = profile_add(&profile, NULL, 0, options->profiles.items[i], err,
                         err_size);
    if (rc == 0)
        rc = fit_model(&profile, &m, &report, err, err_size);
    if (rc != 0)
        goto fini_profile;
    print_report(&m, &report);
    rc = cost_model_save_file(&m, options->out, err, err_size);
    if (rc == 0 && options->plot)
        rc = fit_plot_save(options->plot, &m, &report, err, err_size);
    fit_report_fini(&report);
fini_profile:
    profile_fini(&profile);
    return rc;
}

int main(int argc, char **argv)
{
    struct options o = {.profiles.items =
                            calloc((size_t)argc, sizeof(*o.profiles.items))};
    char err[512] = "out of memory";
    int status = EXIT_FAILURE;

    if (o.profiles.items && parse_options(argc, argv, &o, &status))
        goto out;
    status = EXIT_FAILURE;
    if (!o.profiles.items || run(&o, err, sizeof(err)) != 0) {
        options_complain(usage.name, "%s", err);
        goto out;
    }
    printf("wrote %s%s%s\n", o.out, o.plot ? " and " : "",
           o.plot ? o.plot : "");
    status = EXIT_SUCCESS;
out:
    free(o.profiles.items);
    return status;
}
