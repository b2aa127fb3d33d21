/* Shared by the commands of conductorctl. */
#ifndef TOOLS_CTL_CTL_H
#define TOOLS_CTL_CTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/ctl/where.h"
#include "tools/replay/live/server.h"

#define CTL_NAME "conductorctl"

struct ctl {
    struct loop *loop;
    struct replay_server server;
    char from[CTL_FROM_BYTES]; /* source of the address, for errors */
    int64_t timeout_us;
    double limit_s; /* of a drain, in s; 0 = no limit */
    bool wait;      /* drain: until the instance has no work */
    bool once;      /* top: print one frame, without a screen */
    bool json;      /* diagnose, explain, instances, metrics: print JSON */
    /* diagnose: */
    double over_s;      /* time between its two readings, in s */
    const char *bundle; /* file to write for a bug report; NULL = none */
    const char *config; /* the conductor's configuration, for the bundle */
    const char *log;    /* the conductor's log, for the bundle; NULL = none */
};

/* Values of `body`: GET, and POST without a body. */
#define CTL_GET NULL
#define CTL_POST ""

/* Asks the conductor for JSON, by CTL_GET, CTL_POST, or a POST of JSON. Returns
 * 0 with *json, owned by the caller; or 1 after printing the error. A 503 with
 * JSON counts as an answer. */
[[nodiscard]] int ctl_ask(struct ctl *ctl, const char *body, const char *path,
                          json_t **json);

/* Asks as ctl_ask(), but puts the error in `error` (`size` bytes), without
 * control characters, instead of printing it. */
[[nodiscard]] int ctl_try(struct ctl *ctl, const char *body, const char *path,
                          json_t **json, char *error, size_t size);

/* Asks for text, as ctl_ask(); the caller frees it. *date_s: the time that the
 * conductor's clock shows, Unix time, 0 = not told; NULL = not wanted. */
[[nodiscard]] int ctl_text(struct ctl *ctl, const char *path, char **text,
                           int64_t *date_s);

/* Returns the path of an instance, or of an action on it (`what`): owned, or
 * NULL when out of memory. */
[[nodiscard]] char *ctl_instance_path(const char *name, const char *what);

/* Replaces each control character by '?'. Returns the text. */
char *ctl_tame(char *text);

/* Formats a member of an object for printing, without control characters, cut
 * to `size`; "-" if it is missing or null. Returns the text. */
const char *ctl_show(const json_t *object, const char *key, char *text,
                     size_t size);

/* Returns a member that is a text, or "". */
const char *ctl_member(const json_t *object, const char *key);

/* Returns the prefills, decodes and exchanges of an instance, which may count a
 * request more than once; -1 = not told. */
json_int_t ctl_work(const json_t *instance);

/* Formats an instance's state for printing. A drained instance is "draining"
 * until it has no work, then "drained"; one that is not ready keeps its state:
 * "starting,drained". */
const char *ctl_state(const json_t *instance, char *text, size_t size);

/* Prints JSON and a line end. */
void ctl_print_json(const json_t *json);

struct loop;
struct option_list;

/* Run a command, whose words begin with its name. Return the exit status. */
int ctl_instances(struct ctl *ctl, const struct option_list *words);
int ctl_drain(struct ctl *ctl, const struct option_list *words);
int ctl_undrain(struct ctl *ctl, const struct option_list *words);
int ctl_role(struct ctl *ctl, const struct option_list *words);
int ctl_explain(struct ctl *ctl, const struct option_list *words);
int ctl_top(struct ctl *ctl, const struct option_list *words);
int ctl_diagnose(struct ctl *ctl, const struct option_list *words);

#endif
