/* What of a load was asked for, and what has come: a bitmap each, and a cursor
 * into either. Pure.
 *
 * A unit is a block, or one layer of a block. Blocks are asked for from the
 * last one backward; by layers, the blocks of the first layer come first:
 *
 *      whole blocks          by layers
 *      n-1 .. 2  1  0        layer 0:  0    1    2  .. n-1
 *                            layer 1:  n   n+1  n+2 .. 2n-1
 */
#ifndef WORKERS_LOAD_UNITS_H
#define WORKERS_LOAD_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define LOAD_UNIT_NONE UINT32_MAX

enum load_unit { UNIT_WANTED, UNIT_ASKED, UNIT_CAME };

/* Changed in units.c only. */
struct load_units {
    bool by_layer;
    uint32_t layers;  /* units of a block */
    uint32_t first;   /* block */
    uint32_t n;       /* blocks from there on */
    uint32_t cursor;  /* all units in front of it were asked for */
    uint32_t gate;    /* all that count in front of it have come */
    uint32_t n_asked; /* these may have come */
    uint32_t n_came;
    uint64_t *asked; /* (n x layers) bits, owned */
    uint64_t *came;  /* the same */
};

/* n wanted blocks of so many layers each. 0, or -ENOMEM. */
[[nodiscard]] int load_units_init(struct load_units *u, uint32_t n,
                                  uint32_t layers, bool by_layer);

/* Free it. */
void load_units_fini(struct load_units *u);

/* Blocks in front of `first` are not loaded. Before anything is asked for. */
void load_units_begin(struct load_units *u, uint32_t first);

/* The next wanted unit, in the order above, of blocks [from, to);
 * LOAD_UNIT_NONE: none. O(units behind the cursor). */
uint32_t load_units_next(struct load_units *u, uint32_t from, uint32_t to);

/* The block of a unit. */
uint32_t load_units_block(const struct load_units *u, uint32_t unit);

/* What becomes of a unit. */
void load_units_set(struct load_units *u, uint32_t unit, enum load_unit state);

/* All of block b is wanted, again. O(layers). */
void load_units_forget(struct load_units *u, uint32_t b);

/* Units of block b in that state. O(layers). */
uint32_t load_units_count(const struct load_units *u, uint32_t b,
                          enum load_unit state);

/* By layers: how many of them, in order, all blocks in front of `end` have. */
uint32_t load_units_gate(struct load_units *u, uint32_t end);

#endif
