/* conductorctl top: a live view in a terminal. */
#include <locale.h>
#include <ncurses.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop/loop.h"
#include "base/options.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/frame.h"

#define EVERY_US 1000000
#define MOST_WAIT_US 5000000
#define TEXT_LINES 300
#define TEXT_COLUMNS 120
#define PAGE 10
#define FRAME_FAR (1 << 20)

struct top {
    struct ctl *ctl;
    json_t *overview, *instances; /* owned, from the last answers */
    int64_t heard_us;             /* when the last answers came */
    double fetched_per_s, disk_per_s;
    char trouble[300], where[REPLAY_SERVER_NAME_BYTES];
    size_t from; /* index of the first instance shown */
    bool quits;
    struct frame frame;
};

static double bytes_of(const json_t *overview, const char *which)
{
    return json_number_value(
        json_object_get(json_object_get(overview, "transfers"), which));
}

/* Takes both answers. A restarted conductor counts from 0 again: rates are then
 * unknown. */
static void take(struct top *t, json_t *overview, json_t *instances)
{
    int64_t now_us = clock_now_us();
    double s = (double)(now_us - t->heard_us) / 1e6;
    double fetched = bytes_of(overview, "fetched_bytes") -
                     bytes_of(t->overview, "fetched_bytes");
    double disk =
        bytes_of(overview, "disk_bytes") - bytes_of(t->overview, "disk_bytes");
    bool known = t->overview && s > 0;

    t->fetched_per_s = known && fetched >= 0 ? fetched / s : -1;
    t->disk_per_s = known && disk >= 0 ? disk / s : -1;
    json_decref(t->overview);
    json_decref(t->instances);
    t->overview = overview;
    t->instances = instances;
    t->heard_us = now_us;
    *t->trouble = '\0';
}

/* Asks for both. Returns 0, or 1 with the error in t->trouble. */
static int ask(struct top *t)
{
    json_t *overview = NULL, *instances = NULL;

    if (ctl_try(t->ctl, CTL_GET, "/admin/overview", &overview, t->trouble,
                sizeof t->trouble) ||
        ctl_try(t->ctl, CTL_GET, "/admin/instances", &instances, t->trouble,
                sizeof t->trouble)) {
        json_decref(overview);
        return 1;
    }
    take(t, overview, instances);
    return 0;
}

static void make(struct top *t, size_t lines, size_t columns)
{
    char away[340];
    const struct frame_facts facts = {.where = t->where,
                                      .overview = t->overview,
                                      .instances = t->instances,
                                      .trouble = away,
                                      .fetched_per_s = t->fetched_per_s,
                                      .disk_per_s = t->disk_per_s};

    snprintf(away, sizeof away, "%s%s", *t->trouble ? "AWAY: " : "",
             t->trouble);
    frame_make(&t->frame, &facts, lines, columns, &t->from);
}

static void draw(struct top *t)
{
    int lines, columns;

    getmaxyx(stdscr, lines, columns);
    make(t, (size_t)lines, (size_t)columns);
    erase();
    for (size_t i = 0; i < t->frame.n; i++) {
        attrset(i == 0 && *t->trouble       ? A_REVERSE
                : i == FRAME_HEAD_LINES - 1 ? A_BOLD
                                            : A_NORMAL);
        mvaddnstr((int)i, 0, t->frame.lines[i], columns);
    }
    refresh();
}

static void on_key(struct top *t, int key)
{
    const struct {
        int key;
        ptrdiff_t by;
    } moves[] = {{KEY_UP, -1},           {'k', -1},
                 {KEY_DOWN, 1},          {'j', 1},
                 {KEY_PPAGE, -PAGE},     {KEY_NPAGE, PAGE},
                 {KEY_HOME, -FRAME_FAR}, {KEY_END, FRAME_FAR}};

    if (key == 'q' || key == 'Q')
        t->quits = true;
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++)
        if (key == moves[i].key) {
            ptrdiff_t from = (ptrdiff_t)t->from + moves[i].by;

            t->from = from > 0 ? (size_t)from : 0;
        }
}

/* Handles keys, also while an answer is awaited. */
static void on_input(void *arg, unsigned)
{
    struct top *t = arg;
    int key;

    while ((key = getch()) != ERR)
        on_key(t, key);
    if (t->quits)
        loop_stop(t->ctl->loop);
    else
        draw(t);
}

/* The terminal was resized. */
static void on_resize(void *arg, unsigned)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row)
        return;
    resizeterm(size.ws_row, size.ws_col);
    draw(arg);
}

static void on_time(void *arg)
{
    const struct top *t = arg;

    loop_stop(t->ctl->loop);
}

static void wait_a_while(struct top *t)
{
    struct loop_timer timer;

    if (t->quits)
        return;
    loop_timer_init(t->ctl->loop, &timer, on_time, t);
    if (loop_timer_start(&timer, EVERY_US) == 0)
        loop_run(t->ctl->loop);
    loop_timer_stop(&timer);
}

static int run_screen(struct top *t)
{
    struct loop *loop = t->ctl->loop;
    struct loop_watch input, resized;
    int rc = 1;

    loop_watch_init(loop, &input, STDIN_FILENO, LOOP_READ, on_input, t);
    loop_signal_init(loop, &resized, SIGWINCH, on_resize, t);
    if (!loop_watch_start(&input, 0) && !loop_watch_start(&resized, 0))
        rc = 0;
    while (rc == 0 && !t->quits) {
        ask(t);
        if (t->quits)
            break;
        draw(t);
        wait_a_while(t);
    }
    loop_watch_stop(&resized);
    loop_watch_stop(&input);
    return rc;
}

static int on_screen(struct top *t)
{
    SCREEN *screen;
    int rc;

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        options_complain(CTL_NAME,
                         "top: needs a terminal; use %s status, or top "
                         "--once",
                         CTL_NAME);
        return 1;
    }
    setlocale(LC_ALL, "");
    screen = newterm(NULL, stdout, stdin);
    if (!screen) {
        const char *term = getenv("TERM");

        options_complain(CTL_NAME,
                         "top: TERM: \"%s\": no such terminal is known; "
                         "use %s status, or top --once",
                         term ? term : "", CTL_NAME);
        return 1;
    }
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, true);
    nodelay(stdscr, true);
    curs_set(0);
    rc = run_screen(t);
    endwin();
    delscreen(screen);
    return rc;
}

static int once(struct top *t)
{
    if (ask(t)) {
        options_complain(CTL_NAME, "%s", t->trouble);
        return 1;
    }
    make(t, TEXT_LINES, TEXT_COLUMNS);
    for (size_t i = 0; i < t->frame.n; i++)
        printf("%s\n", t->frame.lines[i]);
    return 0;
}

int ctl_top(struct ctl *ctl, const struct option_list *)
{
    struct top *t = calloc(1, sizeof *t);
    int rc;

    if (!t)
        return 1;
    t->ctl = ctl;
    t->fetched_per_s = t->disk_per_s = -1;
    replay_server_name(&ctl->server, t->where);
    /* A silent conductor shows as away soon. */
    if (!ctl->once && ctl->timeout_us > MOST_WAIT_US)
        ctl->timeout_us = MOST_WAIT_US;
    rc = ctl->once ? once(t) : on_screen(t);
    json_decref(t->overview);
    json_decref(t->instances);
    free(t);
    return rc;
}
