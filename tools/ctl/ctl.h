/* What the commands of conductorctl share. */
#ifndef TOOLS_CTL_CTL_H
#define TOOLS_CTL_CTL_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/ctl/where.h"
#include "tools/replay/live/server.h"

#define CTL_NAME "conductorctl"

struct ctl {
    struct event_base *base;
    struct replay_server server;
    char from[CTL_FROM_BYTES]; /* what named its address */
    int64_t timeout_us;
    double limit_s; /* of a drain; 0: none */
    bool once;      /* top: prints one frame, and no screen */
};

/* What is asked by GET, and by POST without a body. */
#define CTL_GET NULL
#define CTL_POST ""

/* Asks the conductor for JSON, by CTL_GET, CTL_POST, or POST with a body of
 * JSON. Returns 0 with *json, which the caller owns; or 1, having said why not.
 * A 503 with JSON counts as an answer. */
[[nodiscard]] int ctl_ask(struct ctl *ctl, const char *body, const char *path,
                          json_t **json);

/* Likewise, but what is wrong is in `error` (`size` bytes), without control
 * characters, and is not said. */
[[nodiscard]] int ctl_try(struct ctl *ctl, const char *body, const char *path,
                          json_t **json, char *error, size_t size);

/* As ctl_ask() for text, which the caller frees. */
[[nodiscard]] int ctl_text(struct ctl *ctl, const char *path, char **text);

/* The path of an instance, or of what is done to it: owned; NULL: no memory. */
[[nodiscard]] char *ctl_instance_path(const char *name, const char *what);

/* Bytes that a terminal would act upon become '?'. Returns the text. */
char *ctl_tame(char *text);

/* A member of an object as it is printed: of text without what a terminal
 * would act upon; "-": it is not there, or null. Cut to `size`. */
const char *ctl_show(const json_t *object, const char *key, char *text,
                     size_t size);

/* The state of an instance as it is printed. One that is drained and not ready
 * keeps its state: "starting,drained". */
const char *ctl_state(const json_t *instance, char *text, size_t size);

/* The commands: the exit status. */
int ctl_instances(struct ctl *ctl);
int ctl_explain(struct ctl *ctl, const char *id);
int ctl_top(struct ctl *ctl);

#endif
