/*
 * Reads the parts of a cluster file on differences between nodes, and between
 * reality and predictions. Internal to sim/cluster: json.c reads the rest.
 */
#ifndef SIM_CLUSTER_JSON_H
#define SIM_CLUSTER_JSON_H

#include "base/json_fields.h"
#include "sim/cluster/cluster.h"

#define CLUSTER_TOKENS_MAX INT64_C(1000000000000)
#define CLUSTER_TERM_MAX_US 1e9 /* largest cost term, in us */

/* Reads a tier's memory: object `key` of `of`; `path` is the prefix of its
 * fields in errors. If `optional`, it may be missing, and *tier stays as it is.
 * Returns whether it is there. */
bool cluster_read_tier(struct fields *f, const struct fields_object *of,
                       const char *key, const char *path, bool optional,
                       struct cluster_tier *tier);

/* Reads "groups", if any, of `o`: the object "prefill", "decode" or "coupled".
 * `keys`: the fields that a group may have. */
void cluster_read_groups(struct fields *f, const struct fields_object *o,
                         bool decodes, const char *keys, struct cluster *c);

/* Reads the root object's fields of c->reality; the nodes must have been read.
 */
void cluster_read_reality(struct fields *f, const struct fields_object *root,
                          struct cluster *c);

#endif
