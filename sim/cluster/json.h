/*
 * Reads the parts of a cluster file on differences between nodes, and between
 * reality and predictions, for json.c; and tiers, for others, too.
 */
#ifndef SIM_CLUSTER_JSON_H
#define SIM_CLUSTER_JSON_H

#include "base/json_fields.h"
#include "sim/cluster/cluster.h"

#define CLUSTER_TOKENS_MAX INT64_C(1000000000000)
#define CLUSTER_TERM_MAX_US 1e9 /* largest cost term, in us */

/* Reads the memory of a node's tiers, one object of `of` each. One that is
 * missing stays as it is; if `device`, that one must be there.
 *   has  (BLOCK_TIERS) gets which are there; NULL = not asked. */
void cluster_read_tiers(struct fields *f, const struct fields_object *of,
                        bool device, struct cluster_tier *tiers, bool *has);

/* Reads "groups", if any, of `o`: the object "prefill", "decode" or "coupled".
 * `keys`: the fields that a group may have. */
void cluster_read_groups(struct fields *f, const struct fields_object *o,
                         bool decodes, const char *keys, struct cluster *c);

/* Reads the root object's fields of c->reality; the nodes must have been read.
 */
void cluster_read_reality(struct fields *f, const struct fields_object *root,
                          struct cluster *c);

#endif
