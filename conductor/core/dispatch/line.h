/* The waiting requests of one tenant, by priority (lowest first), then by rank
 * (lowest first), then by age. A pairing heap of links inside the requests;
 * nothing is allocated. */
#ifndef CONDUCTOR_CORE_DISPATCH_LINE_H
#define CONDUCTOR_CORE_DISPATCH_LINE_H

#include <stdbool.h>
#include <stdint.h>

/* A waiting request. Its owner sets priority, rank and seq. */
struct line_node {
    struct line_node *child, *next; /* its first child; its next sibling */
    struct line_node *before;       /* the sibling before it, or its parent */
    int32_t priority;
    int64_t rank;
    uint64_t seq; /* grows */
};

/* Returns whether a is served before b. */
bool line_before(const struct line_node *a, const struct line_node *b);

/* Adds a node to a line with the first node *first; NULL = empty. O(1). */
void line_add(struct line_node **first, struct line_node *node);

/* Takes a node out of its line. Amortised O(log n). */
void line_remove(struct line_node **first, struct line_node *node);

#endif
