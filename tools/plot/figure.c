/* See figure.h. */
#include "tools/plot/figure.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "tools/plot/plot.h"

#define BLUE "#1f6fb4"
#define RED "#c8372d"
#define GREY "#777"

#define LOST_KINDS 2
#define LANE_HEIGHT 18.0
#define LANE_GAP 12.0

/* The points of the figure, seconds; each array has room for every record. */
struct series {
    double *sent, *ttft; /* of answered requests */
    size_t answered;
    double *lost[LOST_KINDS]; /* when sent: rejected, failed */
    size_t lost_count[LOST_KINDS];
    double *sorted, *shares; /* the distribution; one more point at 0 */
};

static void collect(const struct replay_record *records, size_t count,
                    double floor_s, struct series *s)
{
    for (size_t i = 0; i < count; i++) {
        const struct replay_record *r = &records[i];
        double at_s = (double)r->intended_us / 1e6;

        if (r->outcome == REPLAY_COMPLETED && r->first_token_us >= 0) {
            double ttft_s = (double)(r->first_token_us - r->intended_us) / 1e6;

            s->sent[s->answered] = at_s;
            s->ttft[s->answered++] = ttft_s > floor_s ? ttft_s : floor_s;
        } else if (r->outcome == REPLAY_REJECTED ||
                   r->outcome == REPLAY_FAILED) {
            size_t kind = r->outcome == REPLAY_FAILED;

            s->lost[kind][s->lost_count[kind]++] = at_s;
        }
    }
    for (size_t i = 0; i < s->answered; i++) {
        s->sorted[i + 1] = s->ttft[i];
        s->shares[i + 1] = (double)(i + 1) / (double)s->answered;
    }
    replay_sort(s->sorted + 1, s->answered);
    s->sorted[0] = s->answered > 0 ? s->sorted[1] : 0.0;
    s->shares[0] = 0.0;
}

/*
 * Requests without a TTFT stand in lanes of their own, at the top of the area,
 * which shrinks by them.
 */
static void draw_lost(struct plot *plot, const struct series *s,
                      struct plot_panel *area)
{
    static const char *const names[LOST_KINDS] = {"rejected", "failed"};

    for (size_t i = 0; i < LOST_KINDS; i++) {
        if (s->lost_count[i] == 0)
            continue;
        struct plot_panel lane = *area;
        lane.height = LANE_HEIGHT;
        lane.title = names[i];
        plot_lane(plot, &lane, s->lost[i], s->lost_count[i], RED);
        area->top += LANE_HEIGHT + LANE_GAP;
        area->height -= LANE_HEIGHT + LANE_GAP;
    }
}

static void draw_time(struct plot *plot, const struct series *s,
                      const struct replay_report *report,
                      const struct plot_panel *panel)
{
    struct plot_panel area = *panel;

    plot_title(plot, &area);
    area.title = "";
    draw_lost(plot, s, &area);
    plot_axes(plot, &area);
    plot_points(plot, &area, s->sent, s->ttft, s->answered, PLOT_DOT, BLUE);
    char text[48];
    snprintf(text, sizeof text, "SLO %g s", report->context.slo_ttft_s);
    plot_guide(plot, &area, report->context.slo_ttft_s, false, text, RED);
}

static void draw_distribution(struct plot *plot, const struct series *s,
                              const struct replay_report *report,
                              const struct plot_panel *panel)
{
    plot_axes(plot, panel);
    if (s->answered > 0) {
        plot_line(plot, panel, s->sorted, s->shares, s->answered + 1, true,
                  BLUE);
        char text[48];
        snprintf(text, sizeof text, "p50 %.3g s", report->ttft_s.p50);
        plot_guide(plot, panel, report->ttft_s.p50, true, text, GREY);
        snprintf(text, sizeof text, "p99 %.3g s", report->ttft_s.p99);
        plot_guide_above(plot, panel, report->ttft_s.p99, report->ttft_s.p50,
                         text, GREY);
    }
}

static int draw(const struct series *s, const struct replay_record *records,
                size_t count, const struct replay_report *report,
                const char *path)
{
    double ttft_min = s->answered > 0 ? s->sorted[0] : 0.01;
    double ttft_max = s->answered > 0 ? s->sorted[s->answered] : 1.0;
    double end_s = count > 0 ? (double)records[count - 1].intended_us / 1e6 : 0;
    double start_s = 0;

    plot_nice_range(&ttft_min, &ttft_max, true);
    plot_nice_range(&start_s, &end_s, false);
    struct plot_panel time = {80,
                              80,
                              560,
                              330,
                              start_s,
                              end_s,
                              ttft_min,
                              ttft_max,
                              false,
                              true,
                              "TTFT of completed requests",
                              "sent at (s)",
                              "TTFT (s)"};
    struct plot_panel distribution = {740,
                                      80,
                                      380,
                                      330,
                                      ttft_min,
                                      ttft_max,
                                      0.0,
                                      1.0,
                                      true,
                                      false,
                                      "Distribution",
                                      "TTFT (s)",
                                      "share of requests"};
    char title[320];
    snprintf(title, sizeof title,
             "%s replay, policy %s: %" PRIu64 " of %" PRIu64
             " requests answered, %.1f %% of input reused%s",
             report->context.mode,
             report->context.policy ? report->context.policy : "unknown",
             report->completed, report->total, 100 * report->prefix_hit_ratio,
             replay_report_ending(report).text);
    struct plot *plot = NULL;
    int rc = plot_open(path, 1160, 480, title, &plot);
    if (rc != 0)
        return rc;
    draw_time(plot, s, report, &time);
    draw_distribution(plot, s, report, &distribution);
    return plot_close(plot);
}

int replay_figure_write(const struct replay_record *records, size_t count,
                        const struct replay_report *report, const char *path)
{
    size_t room = count + 1;
    double *values = calloc(room, 6 * sizeof values[0]);

    if (!values)
        return -ENOMEM;
    struct series s = {.sent = values,
                       .ttft = values + room,
                       .lost = {values + 2 * room, values + 3 * room},
                       .sorted = values + 4 * room,
                       .shares = values + 5 * room};
    /* A logarithmic axis cannot show 0: nothing is faster than 0.1 ms. */
    collect(records, count, 1e-4, &s);
    int rc = draw(&s, records, count, report, path);
    free(values);
    return rc;
}
