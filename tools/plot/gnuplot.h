/* gnuplot as a child process. */
#ifndef TOOLS_PLOT_GNUPLOT_H
#define TOOLS_PLOT_GNUPLOT_H

#include <stdio.h>

/*
 * Runs the commands of an open file; what they print goes to `picture`. Waits.
 *   script   read from its start; a descriptor stands behind it.
 *   picture  likewise; written from its start on.
 * Returns 0; -ENOPKG when there is no gnuplot; -EPROTO when it failed, which it
 * says on standard error; or a negative errno.
 */
[[nodiscard]] int gnuplot_run(FILE *script, FILE *picture);

#endif
