/* Draws predicted against measured times as an SVG. Part of conductor-fit. */
#ifndef TOOLS_FIT_PLOT_H
#define TOOLS_FIT_PLOT_H

#include "tools/fit/model.h"

/* Writes the file `path`: a frame for prefill and one for decode, both axes
 * logarithmic, one dot a point, the diagonal, and 10 % to either side of it.
 * Borrows everything.
 * Returns 0, or what chart_write() does with a message in err (err_size
 * bytes). */
__attribute__((warn_unused_result)) int
fit_plot_save(const char *path, const struct cost_model *m,
              const struct fit_report *report, char *err, size_t err_size);

#endif
