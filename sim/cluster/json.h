/*
 * Parts of a cluster file that say how its nodes differ and how reality differs
 * from the predictions. Internal to sim/cluster: json.c reads the rest.
 */
#ifndef SIM_CLUSTER_JSON_H
#define SIM_CLUSTER_JSON_H

#include "base/json_fields.h"
#include "sim/cluster/cluster.h"

#define CLUSTER_TOKENS_MAX INT64_C(1000000000000)
#define CLUSTER_TERM_MAX_US 1e9 /* as the longest cost that is told apart */

/* Reads memory for cached blocks: `key` of an object, with `path` for its own
 * fields; it may be missing if `optional`, and the tier is untouched then.
 * Returns whether it is there. */
bool cluster_read_tier(struct fields *f, const struct fields_object *of,
                       const char *key, const char *path, bool optional,
                       struct cluster_tier *tier);

/* Reads "groups" of "prefill", "decode" or "coupled", if there are any: `o` is
 * that object, `keys` the fields that a group may have. */
void cluster_read_groups(struct fields *f, const struct fields_object *o,
                         bool decodes, const char *keys, struct cluster *c);

/* Reads the fields of the file's outermost object that end up in c->reality;
 * c's nodes have been read. */
void cluster_read_reality(struct fields *f, const struct fields_object *root,
                          struct cluster *c);

#endif
