/* A pairing heap. See line.h. */
#include "conductor/core/dispatch/line.h"

#include <stddef.h>

bool line_before(const struct line_node *a, const struct line_node *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->rank != b->rank ? a->rank < b->rank : a->seq < b->seq;
}

/* Makes one heap of two. Neither is NULL. */
static struct line_node *meld(struct line_node *a, struct line_node *b)
{
    if (line_before(b, a)) {
        struct line_node *swapped = a;

        a = b;
        b = swapped;
    }
    b->before = a;
    b->next = a->child;
    if (b->next)
        b->next->before = b;
    a->child = b;
    return a;
}

/* Makes one heap of siblings: pairs from the left, then all from the right. */
static struct line_node *meld_all(struct line_node *siblings)
{
    struct line_node *pairs = NULL, *all = NULL;

    while (siblings) {
        struct line_node *a = siblings, *b = a->next;

        siblings = b ? b->next : NULL;
        a->next = NULL;
        if (b) {
            b->next = NULL;
            a = meld(a, b);
        }
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct line_node *left = pairs->next;

        pairs->next = NULL;
        all = all ? meld(all, pairs) : pairs;
        pairs = left;
    }
    if (all)
        all->before = NULL;
    return all;
}

void line_add(struct line_node **first, struct line_node *node)
{
    node->child = node->next = node->before = NULL;
    *first = *first ? meld(*first, node) : node;
}

void line_remove(struct line_node **first, struct line_node *node)
{
    struct line_node *children = meld_all(node->child);

    if (node == *first) {
        *first = children;
        return;
    }
    if (node->before->child == node)
        node->before->child = node->next;
    else
        node->before->next = node->next;
    if (node->next)
        node->next->before = node->before;
    if (children)
        *first = meld(*first, children);
}
