/* The status page. Browsers run and show only what is in it; it asks for the
 * key, and gets events with it. */
#include "conductor/front/watch/page.h"

#include "conductor/front/watch/watch.h"

void watch_page(const struct front_call *call)
{
    http_add_header(call->conn, "Content-Security-Policy", page_policy);
    http_add_header(call->conn, "X-Content-Type-Options", "nosniff");
    http_add_header(call->conn, "Referrer-Policy", "no-referrer");
    http_add_header(call->conn, "Cache-Control", "no-store");
    http_reply(call->conn, 200, "text/html; charset=utf-8", page_html,
               page_bytes);
}
