/* The same as Basic.h: see there. */
#include <CUnit/Basic.h>
