/* conductor-replay cake: predicts a table of the Cake paper. */
#include <stdio.h>

#include "tools/replay/command.h"
#include "tools/replay/paper/cake/result.h"

static const struct option_usage usage = {
    .name = "cake",
    .synopsis = "--table FILE.csv [OPTIONS]",
    .text =
        "Predicts, for each row of a table of the Cake paper, how much faster "
        "computing and\nloading at once is than loading alone and than "
        "computing alone, and\nprints it beside the paper's number. Nothing is "
        "measured here: the costs are\nconstants of the paper's machines "
        "(tools/replay/paper/cake/DESIGN.md), and the\nscheduler's load plan "
        "splits the prompt.\n\nColumns: hardware, util_pct, bandwidth_gbps, "
        "model, seq_len, chunk, kv_bits,\nspeedup_io, speedup_compute.",
    .examples =
        "  conductor-replay cake --table tests/scenario/data/cake.csv\n"
        "  conductor-replay cake --table table3.csv --plot cake.svg --csv "
        "cake.csv\n"
        "  conductor-replay cake --table table5.csv --calibration own.json "
        "--json\n",
};

struct settings {
    const char *table, *calibration, *csv, *plot;
    bool json, skip_unknown;
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        {"table", OPTION_TEXT, &s->table, "FILE", 0, 0,
         "CSV with the published speed-ups", .required = true},
        {"calibration", OPTION_TEXT, &s->calibration, "FILE", 0, 0,
         "costs as JSON (default: those of the paper's machines)"},
        {"skip-unknown", OPTION_FLAG, &s->skip_unknown, NULL, 0, 0,
         "leave out rows for which the calibration has no costs"},
        {"json", OPTION_FLAG, &s->json, NULL, 0, 0,
         "print JSON instead of the table"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0, "a line a row"},
        {"plot", OPTION_OUTPUT, &s->plot, "FILE", 0, 0,
         "draw predicted over published speed-ups as SVG"},
    };
    const struct option_table table = {specs, sizeof specs / sizeof specs[0]};
    return replay_parse(&usage, &table, argc, argv, status);
}

static int print_json(const struct cake_result *r)
{
    json_t *json = cake_result_json(r);

    if (!json)
        return replay_complain(usage.name, "out of memory");
    int rc =
        json_dumpf(json, stdout,
                   JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));
    json_decref(json);
    putchar('\n');
    return rc != 0 ? 1 : 0;
}

static int report(const struct settings *s, const struct cake_result *r)
{
    int status = 0;

    if (s->json)
        status = print_json(r);
    else
        cake_result_print(r, stdout);
    return status |
           REPLAY_OUTPUT(usage.name, s->csv, cake_result_csv(r, s->csv)) |
           REPLAY_OUTPUT(usage.name, s->plot, cake_result_plot(r, s->plot));
}

int replay_command_cake(int argc, char **argv)
{
    struct settings s = {0};
    struct cake_calibration calibration;
    struct cake_table table = {0};
    struct cake_result result;
    char error[CAKE_ERROR_BYTES];
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (cake_calibration_read_file(s.calibration, &calibration, error) != 0 ||
        cake_table_read(NULL, 0, s.table, &table, error) != 0)
        return replay_complain(usage.name, "%s", error);
    if (cake_result_make(&table, s.table, &calibration, s.skip_unknown, &result,
                         error) == 0) {
        status = report(&s, &result);
        cake_result_fini(&result);
    } else {
        status = replay_complain(usage.name, "%s", error);
    }
    cake_table_fini(&table);
    return status;
}
