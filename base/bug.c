/* Broken invariants. See bug.h. */
#include "base/bug.h"

#include <stdlib.h>

void bug_abort(void)
{
    if (getenv(BUG_ABORTS))
        abort();
}
